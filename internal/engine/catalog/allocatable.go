package catalog

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Allocatable is what capacity leaves for pods beside the reservations, never less than nothing. Memory that is set
// aside as huge pages is no ordinary memory any more.
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

// Overridden is what of list holds where override says otherwise, resource by resource.
func Overridden(list, override corev1.ResourceList) corev1.ResourceList {
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
