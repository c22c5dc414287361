package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// plainResources decodes the resources of a container that are valid: requests and limits of resources of the core, which are not
// negative, and no request above its limit. It reports false for all others, which are decoded and validated as all other parts
// are. Jobs that differ in size have no other part of their own.
func plainResources(text []byte) (*corev1.ResourceRequirements, bool) {
	out, ok := &corev1.ResourceRequirements{}, true
	c := cursor{text: text}
	err := c.object(func(key []byte) error {
		var list *corev1.ResourceList
		switch string(key) {
		case "requests":
			list = &out.Requests
		case "limits":
			list = &out.Limits
		}
		if b, err := c.next(); err != nil || b != '{' || list == nil || *list != nil {
			ok = false
			return c.value()
		}
		*list = corev1.ResourceList{}
		return c.object(func(key []byte) error {
			c.space()
			begin := c.at
			err := c.value()
			ok = ok && plainAmount(*list, key, c.text[begin:c.at])
			return err
		})
	})
	for name, limit := range out.Limits {
		request, both := out.Requests[name]
		ok = ok && (!both || request.Cmp(limit) <= 0)
	}
	return out, ok && err == nil
}

// plainAmount adds an amount to the list, and reports false for what is not plain.
func plainAmount(list corev1.ResourceList, key, text []byte) bool {
	var name corev1.ResourceName
	switch string(key) {
	case "cpu":
		name = corev1.ResourceCPU
	case "memory":
		name = corev1.ResourceMemory
	case "ephemeral-storage":
		name = corev1.ResourceEphemeralStorage
	default:
		return false
	}
	amount, plain := plainString(text)
	if _, twice := list[name]; twice || !plain {
		return false
	}
	q, err := resource.ParseQuantity(strings.TrimSpace(amount))
	list[name] = q
	return err == nil && q.Sign() >= 0
}
