package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestNobodyWaitsForATerminatingPodAndFollowsIt: a pod that terminates leaves its place, so that a plan does not keep away from it. A pod
// that must keep away from such pods can be scheduled only once they are gone, and follows none of them. Nor does one that such a pod in their
// domain keeps away.
func TestNobodyWaitsForATerminatingPodAndFollowsIt(t *testing.T) {
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: Now()} }
	nodeIn := func(zone string, pods ...*corev1.Pod) snapshot.Node {
		return Node("n-"+zone, "general", inZone(zone), func(n *snapshot.Node) {
			for _, p := range pods {
				n.Pods = append(n.Pods, Bound(p, n.Name))
			}
		})
	}
	b := func() *corev1.Pod { return Pod("going", Labeled("app", "b"), going) }
	node := func() snapshot.Node { return nodeIn("z1", b()) }
	keeper := func() *corev1.Pod { return Pod("keeper", Apart(Zone, "f"), going) }
	f := Pod("f", Labeled("app", "f"), Near(Host, "b"))
	checkPlans(t, []planCase{
		{"follows it", withNodes(world(Pod("f", Near(Host, "b"))), node()), []string{"on n-z1: f"}},
		{"keeps away from it", withNodes(world(Pod("f", Apart(Zone, "b"))), node()), []string{"on n-z1: f"}},
		{"both", withNodes(world(Pod("f", Near(Host, "b"), Apart(Zone, "b"))), node()), []string{"unschedulable (Topology): f"}},
		{"follows it, and another keeps away from the follower", withNodes(world(f), nodeIn("z1", b(), keeper())), []string{
			"unschedulable (Topology): f",
		}},
		{
			"follows it, and another in another zone keeps away from the follower", withNodes(world(f), nodeIn("z1", b()), nodeIn("z2", keeper())),
			[]string{"on n-z1: f"},
		},
	})
}
