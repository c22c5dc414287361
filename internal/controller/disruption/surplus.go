package disruption

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A launch is surplus if its NodeClaim was launched for pods, its node could take pods (Initialized), and consolidation removes it,
// as empty or underutilized, before any pod but those of DaemonSets was ever bound to it. It does not matter for how long the node
// stood there, nor whether the pods that did not come are those that it was launched for: a node that took other pods was of use.
//
// Not surplus are nodes of pools with replicas and of CapacityBuffers, which are launched for no pods; nodes that never joined, which
// dovetail_join_failures_total counts; and nodes that are removed for another reason, since pods might still have come.
//
// All facts are on objects: the annotation with the pods, the condition, and status.lastPodEventTime, which is zero until the first
// pod comes. So a restart of the controller loses nothing. The deletion of the claim is what is counted, and it happens once.

// mayBeSurplus reports whether what a command removes is a surplus launch, as far as its claim shows.
func mayBeSurplus(claim *karpv1.NodeClaim, reason karpv1.DisruptionReason) bool {
	if reason != karpv1.DisruptionEmpty && reason != karpv1.DisruptionUnderutilized {
		return false
	}
	_, forPods := claim.Annotations[karpv1.AnnotationNominatedPods]
	_, forBuffers := claim.Annotations[karpv1.AnnotationNominatedBuffers]
	return forPods && !forBuffers && claim.Status.LastPodEventTime.IsZero() && condition.IsTrue(claim, karpv1.ConditionInitialized)
}

// surplusCause is what became of the pods that a claim was launched for. Those that were nominated to another claim since are not on
// its list. It is empty if a pod runs on the claim's node: then the claim does not show yet that it has come.
//
// Cost: once through all pods.
func surplusCause(claim *karpv1.NodeClaim, pods []corev1.Pod) metrics.Surplus {
	nominated := map[types.UID]bool{}
	for _, uid := range claim.Nominated(karpv1.AnnotationNominatedPods) {
		nominated[uid] = true
	}
	bound, waiting := 0, 0
	for i := range pods {
		switch pod := &pods[i]; {
		case pod.Spec.NodeName != "" && pod.Spec.NodeName == claim.Status.NodeName && !snapshot.DaemonOwned(pod):
			return ""
		case !nominated[pod.UID]:
		case pod.Spec.NodeName != "":
			bound++
		case pod.DeletionTimestamp == nil && !snapshot.Terminal(pod):
			waiting++
		}
	}
	switch {
	case len(nominated) == 0:
		return metrics.SurplusLaunchedAgain
	case waiting > 0:
		return metrics.SurplusUnbound
	case bound > 0:
		return metrics.SurplusBoundElsewhere
	default:
		return metrics.SurplusPodsGone
	}
}

// surplus returns the cause if the removal of a claim removes a surplus launch, else an empty one. It is queried before the deletion,
// which may let pods move.
func (q *Queue) surplus(ctx context.Context, claim *karpv1.NodeClaim, reason karpv1.DisruptionReason) metrics.Surplus {
	if !mayBeSurplus(claim, reason) {
		return ""
	}
	var all corev1.PodList
	if err := q.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		q.Log.Warn("cannot tell why no pod has come to a node", "NodeClaim", claim.Name, "error", err)
		return ""
	}
	return surplusCause(claim, all.Items)
}

// countSurplus counts a surplus launch with a claim that has been deleted.
func (q *Queue) countSurplus(claim *karpv1.NodeClaim, cause metrics.Surplus) {
	if cause == "" {
		return
	}
	q.Metrics.SurplusLaunches.WithLabelValues(string(cause)).Inc()
	q.Log.Info("a node is removed that no pod has come to", "NodeClaim", claim.Name, "cause", string(cause))
}
