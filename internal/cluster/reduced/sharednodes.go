package reduced

import (
	"hash/maphash"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// maxSharedValue limits how long the value of a label or annotation may be in bytes to be kept for other objects. Longer ones, such as the
// pods that a NodeClaim was launched for, are of one object.
const maxSharedValue = 64

// instanceKey describes what nodes have in common that have the same amounts of resources.
type instanceKey struct{ pool, instanceType string }

// nodeParts are the parts of the last Node and NodeClaim of an instance type that others may have, too.
type nodeParts struct {
	capacity, allocatable, claimCapacity, claimAllocatable corev1.ResourceList
	requirements                                           []karpv1.Requirement
	requests                                               corev1.ResourceList
	owners                                                 []metav1.OwnerReference
}

// partsOf are the parts to compare with those of an object that has these labels.
func (s *Sharer) partsOf(labels map[string]string) *nodeParts {
	key := instanceKey{labels[karpv1.LabelNodePool], labels[corev1.LabelInstanceTypeStable]}
	parts, known := s.instances.get(key)
	if !known {
		parts = &nodeParts{}
		s.instances.set(key, parts)
	}
	return parts
}

// shareNode replaces parts of a Node by equal parts of others.
func (s *Sharer) shareNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shareString(&node.Name)
	s.shareMap(&node.Labels)
	s.shareMap(&node.Annotations)
	parts := s.partsOf(node.Labels)
	sameAsLast(&node.Status.Capacity, &parts.capacity)
	sameAsLast(&node.Status.Allocatable, &parts.allocatable)
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		s.shareString((*string)(&c.Type))
		s.shareString((*string)(&c.Status))
		s.shareString(&c.Reason)
		s.shareString(&c.Message)
	}
	info := &node.Status.NodeInfo
	for _, text := range []*string{
		&info.KernelVersion, &info.OSImage, &info.ContainerRuntimeVersion, &info.KubeletVersion,
		&info.OperatingSystem, &info.Architecture,
	} {
		s.shareString(text)
	}
}

// shareClaim replaces parts of a NodeClaim by equal parts of others.
func (s *Sharer) shareClaim(claim *karpv1.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shareLabels(&claim.Labels)
	s.shareMap(&claim.Annotations)
	parts := s.partsOf(claim.Labels)
	sameAsLast(&claim.OwnerReferences, &parts.owners)
	sameAsLast(&claim.Spec.Requirements, &parts.requirements)
	sameAsLast(&claim.Spec.Resources.Requests, &parts.requests)
	sameAsLast(&claim.Status.Capacity, &parts.claimCapacity)
	sameAsLast(&claim.Status.Allocatable, &parts.claimAllocatable)
	claim.Status.Conditions = exact(claim.Status.Conditions)
	for i := range claim.Status.Conditions {
		c := &claim.Status.Conditions[i]
		s.shareString(&c.Type)
		s.shareString((*string)(&c.Status))
		s.shareString(&c.Reason)
		s.shareString(&c.Message)
	}
	s.shareString(&claim.Status.ImageID)
	s.shareString(&claim.Status.NodeName)
}

// sameAsLast makes *v the last value if both are equal, so that *v can be collected, and else remembers *v as the last.
func sameAsLast[T any](v, last *T) {
	if reflect.DeepEqual(*v, *last) {
		*v = *last
		return
	}
	*last = *v
}

// shareLabels replaces labels by equal ones of another object. NodeClaims of one instance type in one zone have the same, 2 KB each, and so
// have pods of one owner in one zone.
func (s *Sharer) shareLabels(m *map[string]string) {
	if len(*m) == 0 {
		return
	}
	// The order of the entries does not matter to a sum.
	var sum uint64
	for key, value := range *m {
		sum += maphash.Comparable(s.seed, [2]string{key, value})
	}
	if known, found := s.labels.get(sum); found && maps.Equal(known, *m) {
		*m = known
		return
	}
	s.shareMap(m)
	s.labels.set(sum, *m)
}

// shareMap replaces a map of labels or annotations by one with shared keys and values.
func (s *Sharer) shareMap(m *map[string]string) {
	if len(*m) == 0 {
		return
	}
	out := make(map[string]string, len(*m))
	for key, value := range *m {
		s.shareString(&key)
		if len(value) <= maxSharedValue {
			s.shareString(&value)
		}
		out[key] = value
	}
	*m = out
}
