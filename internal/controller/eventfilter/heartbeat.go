package eventfilter

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// IgnoreHeartbeats drops updates of a Node that change nothing but when its conditions were last reported. Updates of other objects
// pass, and resyncs, which change nothing at all.
func IgnoreHeartbeats() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(*corev1.Node)
		after, is := e.ObjectNew.(*corev1.Node)
		return !was || !is || !cluster.Heartbeat(before, after)
	}}
}
