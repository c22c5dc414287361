package cluster

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ReasonTaintStuck is the reason of Initialized=Unknown on a claim whose node waits for a taint beyond its time. It is
// not capacity on its way any more.
const ReasonTaintStuck = "TaintStuck"

// ReasonNotReadyStuck is the reason of Initialized=Unknown on a claim with a node that has registered and does not become Ready
// in time. Like one that waits for a taint, it is not in-flight capacity any more.
const ReasonNotReadyStuck = "NodeNeverReady"

// claimedNode merges a NodeClaim with its Node; node is nil until one has joined.
func (f *Facts) claimedNode(claim *karpv1.NodeClaim, node *corev1.Node) snapshot.Node {
	out := snapshot.Node{
		Name:           claim.Name,
		Claim:          claim.Name,
		ClaimUID:       claim.UID,
		Pool:           claim.Labels[karpv1.LabelNodePool],
		Labels:         claim.Labels,
		Requirements:   claim.Spec.Requirements,
		Annotations:    claim.Annotations,
		Taints:         claim.Spec.Taints,
		Capacity:       claim.Status.Capacity,
		Allocatable:    claim.Status.Allocatable,
		Launched:       condition.IsTrue(claim, karpv1.ConditionLaunched),
		Consolidatable: condition.IsTrue(claim, karpv1.ConditionConsolidatable),
		CreatedAt:      claim.CreationTimestamp.Time,
		Nominated:      nominatedPods(claim, karpv1.AnnotationNominatedPods, f.NominationWindow, f.Now),

		InstanceTerminating: condition.IsTrue(claim, karpv1.ConditionInstanceTerminating),
	}
	if expire := claim.Spec.ExpireAfter.Duration; expire != nil {
		out.ExpireAfter = *expire
	}
	out.Deleting = claim.DeletionTimestamp != nil || out.InstanceTerminating || f.Condemned[claim.UID]
	if node != nil {
		mergeNode(&out, claim, node)
	}
	stuck, _ := condition.Get(claim, karpv1.ConditionInitialized)
	switch {
	case out.Initialized:
	case stuck.Reason == ReasonTaintStuck && node != nil:
		// Nobody knows when the taint goes. Its pods are planned anew, for where they can run.
		out.Taints, out.Nominated = node.Spec.Taints, nil
	case stuck.Reason == ReasonNotReadyStuck && node != nil:
		out.Taints, out.Nominated = notReadyTaints(node), nil
	default:
		out.Taints = snapshot.SchedulingTaints(out.Taints, claim.Spec.StartupTaints, false /* initialized */)
	}
	if drifted, _ := condition.Get(claim, karpv1.ConditionDrifted); drifted.Status == metav1.ConditionTrue {
		out.DriftedAt = drifted.LastTransitionTime.Time
	}
	out.Bounded, out.Replaces = claim.Spec.TerminationGracePeriod != nil, claim.Replaces()
	if virtual := nominatedPods(claim, karpv1.AnnotationNominatedBuffers, f.NominationWindow, f.Now); len(virtual) > 0 {
		out.Virtual = len(virtual)
		if !out.Launched {
			out.NominatedVirtual = virtual
		}
	}
	if node == nil && condition.IsTrue(claim, karpv1.ConditionRegistered) {
		// Its Node has joined and was removed since. What the claim promises will not come any more.
		out.Allocatable, out.Nominated = nil, nil
	}
	// A promise made while the entry bore the claim's name still holds under the node's.
	for _, name := range []string{claim.Name, out.Name} {
		if until := f.Nominated[name]; until.After(out.NominatedUntil) {
			out.NominatedUntil = until
		}
	}
	return out
}

// notReadyTaints are those of a node that is not Ready. The node lifecycle controller adds its taint a moment after kubelet's
// report; a plan made in between must not take the node for a free one.
func notReadyTaints(node *corev1.Node) []corev1.Taint {
	added := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&added) }) {
		return node.Spec.Taints
	}
	return append(slices.Clone(node.Spec.Taints), added)
}

// mergeNode lays what the Node says over what the claim promised. Until the node is initialized the
// promise fills the gaps: a device plugin that has not reported yet must not cause a second node.
func mergeNode(out *snapshot.Node, claim *karpv1.NodeClaim, node *corev1.Node) {
	out.Registered = node.Labels[karpv1.LabelRegistered] == "true"
	out.Initialized = node.Labels[karpv1.LabelInitialized] == "true"
	out.Ready = NodeReady(node)
	out.Deleting = out.Deleting || node.DeletionTimestamp != nil
	if out.Registered {
		out.Name, out.Labels, out.Annotations = node.Name, node.Labels, node.Annotations
		out.Taints = node.Spec.Taints
	}
	if out.Initialized {
		out.Capacity, out.Allocatable = node.Status.Capacity, node.Status.Allocatable
		return
	}
	out.Capacity = promised(node.Status.Capacity, claim.Status.Capacity)
	out.Allocatable = promised(node.Status.Allocatable, claim.Status.Allocatable)
}

// foreignNode is a node that nobody of ours launched. It takes pods like any other and is never ended.
func foreignNode(node *corev1.Node) snapshot.Node {
	return snapshot.Node{
		Name: node.Name, Labels: node.Labels, Annotations: node.Annotations, Taints: node.Spec.Taints,
		Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable,
		Launched: true, Registered: true, Initialized: true, Ready: NodeReady(node),
		Deleting: node.DeletionTimestamp != nil, CreatedAt: node.CreationTimestamp.Time,
	}
}

// promised fills what seen lacks, or has at zero, from what the claim expects.
func promised(seen, expected corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(seen)
	if out == nil {
		out = corev1.ResourceList{}
	}
	for name, want := range expected {
		if have, ok := out[name]; !ok || have.Cmp(resource.Quantity{}) == 0 {
			out[name] = want
		}
	}
	return out
}

// nominatedPods reads from an annotation which pods a claim was bought for. The promise ends a while after the node was
// initialized: a pod that still waits then was kept off for a reason that the plan did not see, and
// must be planned afresh.
func nominatedPods(claim *karpv1.NodeClaim, annotation string, window time.Duration, now time.Time) []types.UID {
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if c, _ := condition.Get(claim, karpv1.ConditionInitialized); c.Status == metav1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) > window {
		return nil
	}
	out := claim.Nominated(annotation)
	slices.Sort(out)
	return out
}

// NodeReady reports the Node's Ready condition.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
