package termination

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// reclaimed reports whether the cloud takes the claim's machine away, minutes from now.
func reclaimed(claim *karpv1.NodeClaim) bool {
	if claim == nil {
		return false
	}
	c, _ := condition.Get(claim, karpv1.ConditionDisruptionReason)
	return c.Status == metav1.ConditionTrue && (c.Reason == karpv1.ReasonSpotInterrupted || c.Reason == karpv1.ReasonReservationInterrupted)
}

// hurry changes a drain for a machine that is about to be taken away: all pods with volumes are asked to go at once, whatever
// their tier, before the others. What is still attached when the machine goes keeps the pods' successors waiting for minutes.
func hurry(d drain, pods []*corev1.Pod, now time.Time) drain {
	var first []*corev1.Pod
	for _, p := range pods {
		if hasVolume(p) && drainable(p, now) && !snapshot.Terminal(p) && !slices.Contains(d.Force, p) {
			first = append(first, p)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(d.Evict), func(p *corev1.Pod) bool { return slices.Contains(first, p) })
	d.Evict = append(first, rest...)
	return d
}
