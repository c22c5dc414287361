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

// interrupted reports whether the cloud reclaims the claim's instance within minutes.
func interrupted(claim *karpv1.NodeClaim) bool {
	if claim == nil {
		return false
	}
	c, _ := condition.Get(claim, karpv1.ConditionDisruptionReason)
	return c.Status == metav1.ConditionTrue && (c.Reason == karpv1.ReasonSpotInterrupted || c.Reason == karpv1.ReasonReservationInterrupted)
}

// evictVolumesFirst changes the drain of an interrupted instance: pods with volumes are evicted first and at once, in
// any tier. A volume that is still attached when the instance goes keeps the pod's successor waiting for minutes.
func evictVolumesFirst(d drain, pods []*corev1.Pod, now time.Time) drain {
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
