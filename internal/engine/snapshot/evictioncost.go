package snapshot

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// statedCost is the eviction cost that an annotation of the pod states: karpenter.sh/disruption-cost, or the one of ReplicaSets
// where the pod lacks that; 0 for none.
func statedCost(p *corev1.Pod) (key string, cost int64, err error) {
	key = karpv1.AnnotationDisruptionCost
	text, ok := p.Annotations[key]
	if !ok {
		key = corev1.PodDeletionCost
		if text, ok = p.Annotations[key]; !ok || p.Annotations[karpv1.AnnotationOwnDeletionCost] == text {
			return key, 0, nil // our own value states where the pod is, not what it costs
		}
	}
	cost, err = strconv.ParseInt(text, 10, 32)
	return key, cost, err
}

// InvalidCost reports whether the pod's annotation on its eviction cost is ignored because it is not an int32, and which it is.
func InvalidCost(p *corev1.Pod) (key string, invalid bool) {
	key, _, err := statedCost(p)
	return key, err != nil
}

// EvictionCost is the cost of evicting a pod, in plain pods: 1, plus what its annotation states (in units of 2^27) and its
// priority (in units of 2^25), within ±10. An annotation that is not an int32 counts as 0. The formula is Karpenter's.
func EvictionCost(p *corev1.Pod) float64 {
	const perDeletionCost, perPriority, most = 1 << 27, 1 << 25, 10.0
	cost := 1.0
	if _, stated, err := statedCost(p); err == nil {
		cost += float64(stated) / perDeletionCost
	}
	if p.Spec.Priority != nil {
		cost += float64(*p.Spec.Priority) / perPriority
	}
	return min(max(cost, -most), most)
}
