package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestNobodyWaitsForATerminatingPodAndFollowsIt: a pod that terminates leaves its place, so that a plan does not keep away from it. A pod
// that must keep away from such pods can be scheduled only once they are gone, and follows none of them.
func TestNobodyWaitsForATerminatingPodAndFollowsIt(t *testing.T) {
	node := func() snapshot.Node {
		return Node("n1", "general", func(n *snapshot.Node) {
			going := Bound(Pod("going", Labeled("app", "b")), "n1")
			going.DeletionTimestamp = &metav1.Time{Time: Now()}
			n.Pods = []*corev1.Pod{going}
		})
	}
	checkPlans(t, []planCase{
		{"follows it", withNodes(world(Pod("f", Near(Host, "b"))), node()), []string{"on n1: f"}},
		{"keeps away from it", withNodes(world(Pod("f", Apart(Zone, "b"))), node()), []string{"on n1: f"}},
		{"both", withNodes(world(Pod("f", Near(Host, "b"), Apart(Zone, "b"))), node()), []string{"unschedulable (Topology): f"}},
	})
}
