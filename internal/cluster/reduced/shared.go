package reduced

import (
	"hash/maphash"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// maxKept limits how many values a table keeps at most, twice. Owners and nodes of a cluster with 100,000 pods are fewer.
const maxKept = 1 << 14

// Sharer reduces objects as Transform does. In addition, the pods of a ReplicaSet, DaemonSet or other owner have one copy of what they
// have in common in memory: labels, containers, tolerations and the like. So have the nodes and NodeClaims of an instance type: amounts
// of resources, requirements, names and values of labels. Objects in caches are never changed, so nobody can report.
//
// What it remembers is bounded, and what it forgets costs memory only. It is safe for concurrent use.
type Sharer struct {
	mu        sync.Mutex
	owners    table[ownerKey, *corev1.Pod]
	instances table[instanceKey, *nodeParts]
	strings   table[string, string]
	// conditions are the last of pods that changed in the same second.
	conditions table[conditionsKey, []corev1.PodCondition]
	// labels are of NodeClaims and pods, by a hash under seed.
	labels table[uint64, map[string]string]
	seed   maphash.Seed
}

// ownerKey describes what pods have in common that are made from one template.
type ownerKey struct{ namespace, owner string }

// conditionsKey describes what pods with equal conditions have in common: the last of them changed in the same second.
type conditionsKey struct {
	ownerKey
	phase corev1.PodPhase
	at    int64
}

// NewSharer returns a Sharer that has seen nothing.
func NewSharer() *Sharer { return &Sharer{seed: maphash.MakeSeed()} }

// Transform reduces an object before it enters a cache, see Transform. Cost for a pod: comparing it with another pod of its owner.
func (s *Sharer) Transform(o any) (any, error) {
	out, err := Transform(o)
	switch object := out.(type) {
	case *corev1.Pod:
		s.share(object)
	case *corev1.Node:
		s.shareNode(object)
	case *karpv1.NodeClaim:
		s.shareClaim(object)
	}
	return out, err
}

// share replaces parts of a pod by the equal parts of an earlier pod of its owner.
func (s *Sharer) share(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shareStrings(pod)
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return
	}
	key := ownerKey{pod.Namespace, string(owner.UID)}
	like, known := s.owners.get(key)
	if !known {
		s.owners.set(key, onlyCommon(pod))
		return
	}
	if pod.GenerateName == like.GenerateName {
		pod.GenerateName = like.GenerateName
	}
	// Labels are not those of the first pod alone: the API server adds the zone of its node to those of a pod that is bound.
	if common(&pod.Labels, like.Labels); len(pod.Labels) > 0 && !sameMap(pod.Labels, like.Labels) {
		s.shareLabels(&pod.Labels)
	}
	common(&pod.Annotations, like.Annotations)
	common(&pod.OwnerReferences, like.OwnerReferences)
	common(&pod.Finalizers, like.Finalizers)
	a, b := &pod.Spec, &like.Spec
	common(&a.Containers, b.Containers)
	common(&a.InitContainers, b.InitContainers)
	common(&a.Volumes, b.Volumes)
	common(&a.Tolerations, b.Tolerations)
	common(&a.NodeSelector, b.NodeSelector)
	common(&a.Affinity, b.Affinity)
	common(&a.TopologySpreadConstraints, b.TopologySpreadConstraints)
	common(&a.Overhead, b.Overhead)
	common(&a.ReadinessGates, b.ReadinessGates)
	common(&a.ResourceClaims, b.ResourceClaims)
	common(&a.TerminationGracePeriodSeconds, b.TerminationGracePeriodSeconds)
	common(&a.AutomountServiceAccountToken, b.AutomountServiceAccountToken)
	common(&a.ShareProcessNamespace, b.ShareProcessNamespace)
	common(&a.EnableServiceLinks, b.EnableServiceLinks)
	common(&a.Priority, b.Priority)
	common(&a.PreemptionPolicy, b.PreemptionPolicy)
	common(&pod.Status.ContainerStatuses, like.Status.ContainerStatuses)
	common(&pod.Status.InitContainerStatuses, like.Status.InitContainerStatuses)
	s.shareConditions(key, pod)
	// The first pods of an owner have no statuses yet; those that run are many, and alike.
	if pod.Status.Phase == corev1.PodRunning {
		like.Status = corev1.PodStatus{
			ContainerStatuses: pod.Status.ContainerStatuses, InitContainerStatuses: pod.Status.InitContainerStatuses,
		}
	}
}

// shareConditions replaces the conditions of a pod by equal ones of another pod of its owner. kube-scheduler refuses
// hundreds of pods in one second, and 240 bytes of conditions are a sixth of a pod.
func (s *Sharer) shareConditions(owner ownerKey, pod *corev1.Pod) {
	if len(pod.Status.Conditions) == 0 {
		return
	}
	last := &pod.Status.Conditions[len(pod.Status.Conditions)-1]
	key := conditionsKey{owner, pod.Status.Phase, last.LastTransitionTime.Unix()}
	if like, known := s.conditions.get(key); known && reflect.DeepEqual(like, pod.Status.Conditions) {
		pod.Status.Conditions = like
		return
	}
	s.conditions.set(key, pod.Status.Conditions)
}

// onlyCommon is a pod with what pods of an owner may have in common, which shares everything with the pod.
func onlyCommon(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: pod.GenerateName, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
			Finalizers: pod.Finalizers,
		},
		Spec: pod.Spec,
	}
	out.Status.ContainerStatuses, out.Status.InitContainerStatuses = pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses
	return out
}

// common makes *v the value of another pod if both are equal, so that *v can be collected.
func common[T any](v *T, other T) {
	if reflect.DeepEqual(*v, other) {
		*v = other
	}
}

func sameMap(a, b map[string]string) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// shareStrings has one copy of strings that many pods have, no matter who owns them.
func (s *Sharer) shareStrings(pod *corev1.Pod) {
	for _, text := range []*string{
		&pod.Namespace, &pod.Spec.NodeName, &pod.Spec.ServiceAccountName, &pod.Spec.DeprecatedServiceAccount, &pod.Spec.SchedulerName,
		&pod.Spec.PriorityClassName, (*string)(&pod.Spec.RestartPolicy), (*string)(&pod.Spec.DNSPolicy), (*string)(&pod.Status.Phase),
	} {
		s.shareString(text)
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		s.shareString((*string)(&c.Type))
		s.shareString((*string)(&c.Status))
		s.shareString(&c.Reason)
		s.shareString(&c.Message)
	}
}

func (s *Sharer) shareString(text *string) {
	if *text == "" {
		return
	}
	if known, found := s.strings.get(*text); found {
		*text = known
		return
	}
	s.strings.set(*text, *text)
}

// table remembers the values that were used last: as soon as the recent ones are maxKept, they become the older ones, and the older
// ones are forgotten that nobody has requested since. Each operation takes constant time.
type table[K comparable, V any] struct{ recent, older map[K]V }

func (t *table[K, V]) get(key K) (V, bool) {
	if v, found := t.recent[key]; found {
		return v, true
	}
	v, found := t.older[key]
	if found {
		t.set(key, v)
	}
	return v, found
}

func (t *table[K, V]) set(key K, v V) {
	if len(t.recent) >= maxKept {
		t.recent, t.older = nil, t.recent
	}
	if t.recent == nil {
		t.recent = map[K]V{}
	}
	t.recent[key] = v
}
