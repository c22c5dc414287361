package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ReasonTaintStuck is the reason of Initialized=Unknown on a claim with a node that has kept a startup taint for too
// long. The node no longer counts as in-flight capacity.
const ReasonTaintStuck = "TaintStuck"

// ReasonNotReadyStuck is the reason of Initialized=Unknown on a claim with a registered node that does not become Ready
// in time. The node no longer counts as in-flight capacity.
const ReasonNotReadyStuck = "NodeNeverReady"

// nodeFromClaim merges a NodeClaim with its Node; node is nil until one has joined.
func (f *Facts) nodeFromClaim(claim *karpv1.NodeClaim, node *corev1.Node) snapshot.Node {
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
		LaunchedFor:    claim.Annotations[karpv1.AnnotationNominatedPods],
		PodClasses:     claim.Annotations[karpv1.AnnotationPodClasses],
		SettledAt:      f.settledAt(claim, node),
		PodCame:        !claim.Status.LastPodEventTime.IsZero(),
		Rebooting:      condition.IsTrue(claim, karpv1.ConditionRebooting),
		DRADrivers:     karpv1.RequestedDRADrivers(claim),

		InstanceTerminating: condition.IsTrue(claim, karpv1.ConditionInstanceTerminating),
	}
	out.Nominated = nominatedPods(claim, karpv1.AnnotationNominatedPods, out.SettledAt, f.Now)
	if expire := claim.Spec.ExpireAfter.Duration; expire != nil {
		out.ExpireAfter = *expire
	}
	out.Deleting = claim.DeletionTimestamp != nil || out.InstanceTerminating || f.MarkedForDeletion[claim.UID]
	reason, _ := condition.Get(claim, karpv1.ConditionDisruptionReason)
	out.Emptied = reason.Status == metav1.ConditionTrue && reason.Reason == string(karpv1.DisruptionEmpty)
	if node != nil {
		mergeNode(&out, claim, node)
		out.MaintenancePlanned = f.LifecycleConditions && nodeConditionTrue(node, corev1.NodeMaintenancePlanned)
	}
	stuck, _ := condition.Get(claim, karpv1.ConditionInitialized)
	switch {
	case out.Rebooting:
		// The taints go with the reboot, so its pods wait for it and get no other node.
		out.Taints = slices.DeleteFunc(
			slices.Clone(snapshot.SchedulingTaints(out.Taints, claim.Spec.StartupTaints, false /* initialized */)),
			func(t corev1.Taint) bool { return t.Key == karpv1.TaintKeyRebooting },
		)
	case out.Initialized:
	case stuck.Reason == ReasonTaintStuck && node != nil:
		// It is unknown when the taint goes, so the pods are planned again, for other nodes.
		out.Taints, out.Nominated = node.Spec.Taints, nil
	case stuck.Reason == ReasonNotReadyStuck && node != nil:
		out.Taints, out.Nominated = notReadyTaints(node), nil
	default:
		out.Taints = snapshot.SchedulingTaints(out.Taints, claim.Spec.StartupTaints, false /* initialized */)
	}
	if drifted, _ := condition.Get(claim, karpv1.ConditionDrifted); drifted.Status == metav1.ConditionTrue {
		out.DriftedAt, out.DriftedForResize = drifted.LastTransitionTime.Time, drifted.Reason == disrupt.ResizeDeferred
	}
	out.Bounded, out.Replaces = claim.Spec.TerminationGracePeriod != nil, claim.Replaces()
	if virtual := nominatedPods(claim, karpv1.AnnotationNominatedBuffers, out.SettledAt, f.Now); len(virtual) > 0 {
		out.Virtual = len(virtual)
		if !out.Launched {
			out.NominatedVirtual = virtual
		}
	}
	if node == nil && condition.IsTrue(claim, karpv1.ConditionRegistered) {
		// Its Node had registered and was deleted since: the claim's capacity will not come.
		out.Allocatable, out.Nominated = nil, nil
	}
	// A nomination under the claim's name still holds under the node's.
	for _, name := range []string{claim.Name, out.Name} {
		if until := f.Nominated[name]; until.After(out.NominatedUntil) {
			out.NominatedUntil = until
		}
	}
	return out
}

// taintsOf are the taints of a Node. A cordoned one refuses pods from when spec.unschedulable is set: the node lifecycle controller adds
// the taint a moment later, and kube-scheduler does not wait for it.
func taintsOf(node *corev1.Node) []corev1.Taint {
	if !node.Spec.Unschedulable {
		return node.Spec.Taints
	}
	return withTaint(node.Spec.Taints, corev1.TaintNodeUnschedulable)
}

// notReadyTaints are the taints of a node that is not Ready, including the one that the node lifecycle controller adds
// a moment later: a plan made in between must not use the node.
func notReadyTaints(node *corev1.Node) []corev1.Taint {
	return withTaint(node.Spec.Taints, corev1.TaintNodeNotReady)
}

// withTaint are the taints with one of this key and effect NoSchedule.
func withTaint(taints []corev1.Taint, key string) []corev1.Taint {
	added := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
	if slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&added) }) {
		return taints
	}
	return append(slices.Clone(taints), added)
}

// mergeNode overrides the claim's expectations by the Node's values. Until the node is initialized, the expectations
// fill the gaps: a device plugin that has not reported yet must not cause a second node.
func mergeNode(out *snapshot.Node, claim *karpv1.NodeClaim, node *corev1.Node) {
	out.Registered = node.Labels[karpv1.LabelRegistered] == "true"
	out.Initialized = node.Labels[karpv1.LabelInitialized] == "true"
	out.Ready = NodeReady(node)
	out.DeclaredFeatures = node.Status.DeclaredFeatures
	out.Deleting = out.Deleting || node.DeletionTimestamp != nil
	if out.Registered {
		out.Name, out.Labels, out.Annotations = node.Name, node.Labels, node.Annotations
		out.Taints = taintsOf(node)
	}
	if out.Initialized {
		out.Capacity, out.Allocatable = node.Status.Capacity, node.Status.Allocatable
		return
	}
	out.Capacity = withExpected(node.Status.Capacity, claim.Status.Capacity)
	out.Allocatable = withExpected(node.Status.Allocatable, claim.Status.Allocatable)
}

// unmanagedNode returns the entry of a node without a NodeClaim. Pods can schedule on it, and it is never disrupted.
func unmanagedNode(node *corev1.Node) snapshot.Node {
	return snapshot.Node{
		Name: node.Name, Labels: node.Labels, Annotations: node.Annotations, Taints: taintsOf(node),
		Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable,
		Launched: true, Registered: true, Initialized: true, Ready: NodeReady(node),
		Deleting: node.DeletionTimestamp != nil, CreatedAt: node.CreationTimestamp.Time,
		DeclaredFeatures: node.Status.DeclaredFeatures,
	}
}

// withExpected returns seen with the resources that it lacks, or has at zero, from expected.
func withExpected(seen, expected corev1.ResourceList) corev1.ResourceList {
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

// nominatedPods returns the pods that a claim was launched for, from an annotation. The nomination expires when its node, initialized, has
// settled: a pod that is still pending then could not schedule for a reason that the plan did not see, and is planned again.
func nominatedPods(claim *karpv1.NodeClaim, annotation string, settledAt, now time.Time) []types.UID {
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if condition.IsTrue(claim, karpv1.ConditionInitialized) && now.After(settledAt) {
		return nil
	}
	out := claim.Nominated(annotation)
	slices.Sort(out)
	return out
}

// settledAt is from when on an initialized node is as its pods will find it: the nomination window after its initialization, and while it
// has taints that something else may remove, the grace period of startup taints. A node that is removed
// since nothing needs it, or for a reason that is not known, has settled. It is zero for a claim that is not initialized.
func (f *Facts) settledAt(claim *karpv1.NodeClaim, node *corev1.Node) time.Time {
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	if initialized.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	removed, _ := condition.Get(claim, karpv1.ConditionDisruptionReason)
	switch karpv1.DisruptionReason(removed.Reason) {
	case karpv1.DisruptionEmpty, karpv1.DisruptionUnderutilized, "":
		if claim.DeletionTimestamp != nil {
			return initialized.LastTransitionTime.Time
		}
	}
	after := f.NominationWindow
	if f.TaintGracePeriod > after && node != nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return mayBeRemoved(claim, &t)
	}) {
		after = f.TaintGracePeriod
	}
	return initialized.LastTransitionTime.Add(after)
}

// mayBeRemoved reports whether a taint of an initialized node is one that its owner may remove soon: neither the pool's nor one that states
// that the node must not be used.
func mayBeRemoved(claim *karpv1.NodeClaim, t *corev1.Taint) bool {
	if t.Effect == corev1.TaintEffectPreferNoSchedule || karpv1.IsTaintDisrupted(*t) ||
		slices.ContainsFunc(claim.Spec.Taints, func(declared corev1.Taint) bool { return declared.MatchTaint(t) }) {
		return false
	}
	return !strings.HasPrefix(t.Key, "node.kubernetes.io/") || snapshot.KnownEphemeral(t) || t.Key == corev1.TaintNodeNetworkUnavailable
}

// NodeReady reports the Node's Ready condition.
func NodeReady(node *corev1.Node) bool { return nodeConditionTrue(node, corev1.NodeReady) }

func nodeConditionTrue(node *corev1.Node, of corev1.NodeConditionType) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == of && c.Status == corev1.ConditionTrue
	})
}
