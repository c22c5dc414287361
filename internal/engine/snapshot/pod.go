package snapshot

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
)

// Terminal reports whether the pod has completed.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// Terminating reports whether the pod is being deleted.
func Terminating(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// Active reports whether the pod runs, or will, and is not being deleted.
func Active(p *corev1.Pod) bool { return !Terminal(p) && !Terminating(p) }

func ownedBy(p *corev1.Pod, apiVersion, kind string) bool {
	for _, o := range p.OwnerReferences {
		if o.APIVersion == apiVersion && o.Kind == kind {
			return true
		}
	}
	return false
}

// DaemonOwned reports whether the pod belongs to a DaemonSet: it starts and stops with its node.
func DaemonOwned(p *corev1.Pod) bool { return ownedBy(p, "apps/v1", "DaemonSet") }

// Mirror reports whether the pod is the mirror of a static pod.
func Mirror(p *corev1.Pod) bool { return ownedBy(p, "v1", "Node") }

// Provisionable reports whether the pod needs a node that Dovetail could launch: kube-scheduler has found none, it is
// not about to preempt other pods, and it does not come with nodes anyway.
func Provisionable(p *corev1.Pod) bool { return p.Status.NominatedNodeName == "" && unschedulable(p) }

// UnschedulableSince is since when kube-scheduler has found no node for the pod; false if it has not tried, or has found one.
func UnschedulableSince(p *corev1.Pod) (time.Time, bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// Preempted reports whether kube-scheduler evicts the pod for another.
func Preempted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// Nominated reports whether the pod is Provisionable but for the node that kube-scheduler has nominated it to: it waits there until other
// pods are evicted, and needs another node once that one is gone.
func Nominated(p *corev1.Pod) bool { return p.Status.NominatedNodeName != "" && unschedulable(p) }

// unschedulable reports whether kube-scheduler has found no node for the pod, which comes with none.
func unschedulable(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || DaemonOwned(p) || Mirror(p) || !Active(p) {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

// Arriving reports whether kube-scheduler has not tried the pod yet.
func Arriving(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || p.Status.NominatedNodeName != "" || DaemonOwned(p) || Mirror(p) || !Active(p) ||
		len(p.Spec.SchedulingGates) > 0 {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return false
		}
	}
	return true
}

// FailsToBind reports whether kube-scheduler has found a node for the pod and could not bind it there: a policy or a webhook rejects
// that, for example. No node is launched for it, and it takes room.
func FailsToBind(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || p.Status.NominatedNodeName != "" || DaemonOwned(p) || Mirror(p) || !Active(p) {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulerError {
			return true
		}
	}
	return false
}

// Waiting are the pods that have no node though kube-scheduler has tried them.
func (s *Snapshot) Waiting() (out []*corev1.Pod) {
	for _, p := range s.Pods {
		if p.Spec.NodeName == "" {
			out = append(out, p)
		}
	}
	for _, p := range s.Arriving {
		if FailsToBind(p) {
			out = append(out, p)
		}
	}
	return out
}

// ResizeDeferredSince returns the time from which the kubelet has deferred the resize of a bound pod: its node has no room for it now.
// It is false for any other pod, and while no time is known.
func ResizeDeferredSince(p *corev1.Pod) (time.Time, bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonDeferred {
			return c.LastTransitionTime.Time, !c.LastTransitionTime.IsZero()
		}
	}
	return time.Time{}, false
}

// Reschedulable reports whether the pod will need another node when its node is removed: it is active, or a
// StatefulSet will recreate it under its name.
func Reschedulable(p *corev1.Pod) bool {
	if DaemonOwned(p) || Mirror(p) {
		return false
	}
	return Active(p) || (Terminating(p) && ownedBy(p, "apps/v1", "StatefulSet"))
}

// Protection is the state of a pod's do-not-disrupt annotation at some instant.
type Protection string

// The states of Protection.
const (
	Unprotected Protection = ""
	// ProtectedForever is the value "true".
	ProtectedForever Protection = "forever"
	// ProtectedUntil is a duration since the pod's start that has not passed, or the pod has not started.
	ProtectedUntil Protection = "until"
	// ProtectionElapsed is a duration that has passed.
	ProtectionElapsed Protection = "elapsed"
	// ProtectionInvalid is any other value; it protects nothing.
	ProtectionInvalid Protection = "invalid"
)

// Blocks reports whether the pod must not be disrupted.
func (p Protection) Blocks() bool { return p == ProtectedForever || p == ProtectedUntil }

// DoNotDisrupt reads the pod's annotation. The time is when a protection by duration elapses, zero if the pod has not
// started or there is none.
func DoNotDisrupt(p *corev1.Pod, now time.Time) (Protection, time.Time) {
	value, ok := p.Annotations[karpv1.AnnotationDoNotDisrupt]
	if !ok {
		return Unprotected, time.Time{}
	}
	if value == "true" {
		return ProtectedForever, time.Time{}
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return ProtectionInvalid, time.Time{}
	}
	if p.Status.StartTime == nil {
		return ProtectedUntil, time.Time{}
	}
	if end := p.Status.StartTime.Add(d); now.Before(end) {
		return ProtectedUntil, end
	}
	return ProtectionElapsed, time.Time{}
}

// Disruptable reports whether nothing on the pod blocks its eviction.
func Disruptable(p *corev1.Pod, now time.Time) bool {
	protection, _ := DoNotDisrupt(p, now)
	return !Active(p) || !protection.Blocks()
}

// Evictable reports whether draining would evict the pod, so that PodDisruptionBudgets apply.
func Evictable(p *corev1.Pod, now time.Time) bool {
	return Active(p) && !ToleratesDisruption(p) && !Mirror(p) && Disruptable(p, now)
}

// ToleratesDisruption reports whether the pod stays on a node with the taint karpenter.sh/disrupted.
func ToleratesDisruption(p *corev1.Pod) bool {
	taint := karpv1.TaintDisrupted()
	return Tolerates(p.Spec.Tolerations, &taint)
}

// Requests returns what the pod takes of a node's allocatable resources, with init containers, sidecars, pod-level
// resources, overhead and in-place resizing, and one of "pods". Amounts are bounded (see package quantity), so that
// they can be added and compared.
func Requests(p *corev1.Pod) corev1.ResourceList {
	if out, plain := plainRequests(p); plain {
		return out
	}
	// Where a pod has overhead, PodRequests may add to the amounts of the pod's own list.
	if len(p.Spec.Overhead) > 0 && p.Spec.Resources != nil {
		p = p.DeepCopy()
	}
	out := resource.PodRequests(quantity.ClampPod(p), resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	out[corev1.ResourcePods] = *resourceapi.NewQuantity(1, resourceapi.DecimalSI)
	return out
}

// plainRequests is Requests of most pods: those with containers that take what they request, and nothing else counts. They are planned by
// the ten thousand, and PodRequests makes six maps of each, three times as slow.
func plainRequests(p *corev1.Pod) (_ corev1.ResourceList, plain bool) {
	s := &p.Status
	if len(p.Spec.InitContainers) > 0 || len(p.Spec.Overhead) > 0 || p.Spec.Resources != nil || s.Resources != nil ||
		s.AllocatedResources != nil || resource.IsPodResizeInfeasible(p) {
		return nil, false
	}
	size := 1
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if !quantity.Bounded(c.Resources.Requests) || !takesItsRequests(c, s) {
			return nil, false
		}
		size += len(c.Resources.Requests)
	}
	out := make(corev1.ResourceList, size)
	for i := range p.Spec.Containers {
		for name, q := range p.Spec.Containers[i].Resources.Requests {
			if sum, known := out[name]; known {
				sum.Add(q)
				out[name] = sum
			} else {
				out[name] = q.DeepCopy()
			}
		}
	}
	out[corev1.ResourcePods] = *resourceapi.NewQuantity(1, resourceapi.DecimalSI)
	return out, true
}

// takesItsRequests reports whether no resize of the container is under way: what its kubelet reports is what it requests.
func takesItsRequests(c *corev1.Container, s *corev1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		reported := &s.ContainerStatuses[i]
		if reported.Name != c.Name {
			continue
		}
		if reported.AllocatedResources != nil && !equalLists(reported.AllocatedResources, c.Resources.Requests) {
			return false
		}
		actual := reported.Resources
		return actual == nil || actual.Requests == nil || equalLists(actual.Requests, c.Resources.Requests)
	}
	return len(s.InitContainerStatuses) == 0
}

func equalLists(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if other, has := b[name]; !has || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// DaemonRequests is Requests of a pod made from a template that no API server has defaulted: limits count
// where requests are missing.
func DaemonRequests(p *corev1.Pod) corev1.ResourceList {
	p = p.DeepCopy()
	RequestLimits(&p.Spec)
	return Requests(p)
}

// RequestLimits defaults requests to limits, as the API server does for a pod, but not for a template. What the pod as a whole requests
// defaults to what its containers do, if one of them requests the resource.
func RequestLimits(spec *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			list[i].Resources.Requests = withDefaultRequests(list[i].Resources)
		}
	}
	if spec.Resources == nil || len(spec.Resources.Limits) == 0 {
		return
	}
	whole := *spec.Resources
	requests := maps.Clone(whole.Requests)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	sum := resource.AggregateContainerRequests(quantity.ClampPod(&corev1.Pod{Spec: *spec}), resource.PodResourcesOptions{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		q, requested := sum[name]
		if _, has := requests[name]; requested && !has {
			requests[name] = q
		}
	}
	whole.Requests = requests
	whole.Requests = withDefaultRequests(whole)
	spec.Resources = &whole
}

func withDefaultRequests(r corev1.ResourceRequirements) corev1.ResourceList {
	missing := false
	for name := range r.Limits {
		_, requested := r.Requests[name]
		missing = missing || !requested
	}
	if !missing {
		return r.Requests
	}
	out := maps.Clone(r.Limits)
	maps.Copy(out, r.Requests)
	return out
}

// KnownEphemeral reports whether the taint is one that a joining node has and loses by itself. Such taints do not
// block scheduling on a managed node before it is initialized.
func KnownEphemeral(t *corev1.Taint) bool {
	if strings.HasPrefix(t.Key, "readiness.k8s.io/") {
		return true
	}
	switch t.Key {
	case corev1.TaintNodeNotReady:
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	case corev1.TaintNodeUnreachable, "node.cloudprovider.kubernetes.io/uninitialized":
		return t.Effect == corev1.TaintEffectNoSchedule
	case karpv1.TaintKeyUnregistered:
		return t.Effect == corev1.TaintEffectNoExecute
	}
	return false
}

// SchedulingTaints returns those that pods must tolerate. While a managed node is not initialized, taints that will be
// removed do not count: known ephemeral ones and the claim's startup taints.
func SchedulingTaints(taints, startup []corev1.Taint, initialized bool) []corev1.Taint {
	if initialized {
		return taints
	}
	var out []corev1.Taint
	for i := range taints {
		t := &taints[i]
		if KnownEphemeral(t) || hasTaint(startup, t) {
			continue
		}
		out = append(out, *t)
	}
	return out
}

func hasTaint(list []corev1.Taint, t *corev1.Taint) bool {
	for i := range list {
		if list[i].Key == t.Key && list[i].Effect == t.Effect {
			return true
		}
	}
	return false
}

// FullyBlocked reports whether budgets block the eviction of the pod now and forever: one that can never allow a
// disruption, or more than one budget.
func FullyBlocked(p *corev1.Pod, budgets []Budget, now time.Time) bool {
	if !Evictable(p, now) {
		return false
	}
	var matching []Budget
	for _, b := range budgets {
		if b.Selects(p) {
			matching = append(matching, b)
		}
	}
	switch len(matching) {
	case 0:
		return false
	case 1:
		return matching[0].neverAllows() && !matching[0].waivedFor(p)
	default:
		return true
	}
}

// CurrentlyReschedulable reports whether the pod needs another node now if its node is removed: pods that cannot be
// evicted yet stay.
func CurrentlyReschedulable(p *corev1.Pod, budgets []Budget, now time.Time) bool {
	return Reschedulable(p) && Disruptable(p, now) && !FullyBlocked(p, budgets, now)
}

// Ready reports whether the pod serves requests: its condition Ready is True.
func Ready(p *corev1.Pod) bool { return podReady(p) == corev1.ConditionTrue }

// podReady is the status of the pod's Ready condition, empty if it has none.
func podReady(p *corev1.Pod) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

// IsVirtual reports whether a pod is a virtual pod of a buffer.
func IsVirtual(p *corev1.Pod) bool {
	return p.Annotations[karpv1.AnnotationCapacityBufferFakePod] == "true"
}

// ClaimName is the PersistentVolumeClaim behind a pod's volume.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) (string, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, true
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	}
	return "", false
}
