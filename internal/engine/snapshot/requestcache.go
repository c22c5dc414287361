package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// maxRequestParts bounds what a RequestCache keeps where pods share nothing, as those of files.
const maxRequestParts = 1 << 14

// RequestCache computes values that depend on nothing but the requests and limits of a pod. Pods that share the memory of
// these parts, as the pods of one owner do in a cache of informers, have one value: of 100,000 running pods, a few hundred
// are summed.
//
// It is valid as long as nobody changes pods. It is not safe for concurrent use.
type RequestCache[V any] struct {
	compute func(*corev1.Pod) V
	known   map[requestParts]V
}

// requestParts identifies what Requests reads of a pod. The pointers keep their targets alive, so that no other pod gets
// their addresses.
type requestParts struct {
	containers, initContainers part[corev1.Container]
	statuses, initStatuses     part[corev1.ContainerStatus]
	resizeInfeasible           bool
}

// part is a slice, by its identity.
type part[T any] struct {
	first  *T
	length int
}

func partOf[T any](list []T) (out part[T]) {
	if len(list) > 0 {
		out = part[T]{&list[0], len(list)}
	}
	return out
}

// NewRequestCache returns a cache of what compute returns. Callers share the values, and must not change them.
func NewRequestCache[V any](compute func(*corev1.Pod) V) *RequestCache[V] {
	return &RequestCache[V]{compute, map[requestParts]V{}}
}

// Of is the value of the pod. Cost: a lookup, for a pod that shares its parts with an earlier one.
func (c *RequestCache[V]) Of(pod *corev1.Pod) V {
	if pod.Spec.Resources != nil || len(pod.Spec.Overhead) > 0 || pod.Status.Resources != nil || pod.Status.AllocatedResources != nil {
		return c.compute(pod) // few pods have any
	}
	parts := requestParts{
		partOf(pod.Spec.Containers), partOf(pod.Spec.InitContainers),
		partOf(pod.Status.ContainerStatuses), partOf(pod.Status.InitContainerStatuses),
		resource.IsPodResizeInfeasible(pod),
	}
	if v, found := c.known[parts]; found {
		return v
	}
	v := c.compute(pod)
	if len(c.known) < maxRequestParts {
		c.known[parts] = v
	}
	return v
}
