package disrupt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ReservationOf is the capacity reservation that a node runs in; empty if it runs in none.
func (v *View) ReservationOf(n *snapshot.Node) string {
	if key := v.Snapshot.Labels.ReservationID; key != "" {
		return n.Labels[key]
	}
	return ""
}

// HoldsReservation reports whether a node runs in a capacity reservation, or may be launched into one.
func (v *View) HoldsReservation(n *snapshot.Node) bool {
	key := v.Snapshot.Labels.ReservationID
	return v.ReservationOf(n) != "" || !n.Launched && slices.ContainsFunc(n.Requirements, func(r karpv1.Requirement) bool {
		return r.Key == key && r.Operator == corev1.NodeSelectorOpIn
	})
}
