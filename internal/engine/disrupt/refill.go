package disrupt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// RefillReason is the disruption that a launch for pods makes up for, where drifted nodes are terminated first: Drifted
// while nodes of a capacity reservation that it may use are drifted, else none. The slot is one that such a node left, or
// one that was free when its drift began; what becomes of the new node states in both cases whether another may go. The
// last drifted node has no refill: nothing is left to hold back.
func RefillReason(s *snapshot.Snapshot, l *plan.Launch) karpv1.DisruptionReason {
	key := s.Labels.ReservationID
	r := l.Requirements.Get(key)
	if key == "" || r.Operator() != corev1.NodeSelectorOpIn {
		return ""
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Claim != "" && n.Initialized && !n.DriftedAt.IsZero() && slices.Contains(r.Values(), n.Labels[key]) {
			return karpv1.DisruptionDrifted
		}
	}
	return ""
}
