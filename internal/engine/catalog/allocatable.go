package catalog

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Allocatable returns what the reservations leave of capacity for pods, at least zero. Memory in huge pages is no longer
// ordinary memory.
func Allocatable(capacity corev1.ResourceList, reserved ...corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(capacity))
	huge := resource.Quantity{}
	for name, has := range capacity {
		left := has.DeepCopy()
		for _, list := range reserved {
			left.Sub(list[name])
		}
		out[name] = atLeastZero(left)
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			huge.Add(has)
		}
	}
	if memory, ok := out[corev1.ResourceMemory]; ok && !huge.IsZero() {
		memory.Sub(huge)
		out[corev1.ResourceMemory] = atLeastZero(memory)
	}
	return out
}

func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		return resource.Quantity{Format: q.Format}
	}
	return q
}

// Override is list with the values of override, resource by resource.
func Override(list, override corev1.ResourceList) corev1.ResourceList {
	if len(override) == 0 {
		return list
	}
	out := maps.Clone(list)
	if out == nil {
		out = corev1.ResourceList{}
	}
	maps.Copy(out, override)
	return out
}
