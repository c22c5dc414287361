package termination

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// A spot notice: pods with volumes of every tier are evicted at once, while the others wait for their tier.
func TestReclaimedMachinesGiveTheirVolumesBackFirst(t *testing.T) {
	critical := func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }
	for _, tt := range []struct {
		reason string
		want   []string
	}{
		{"Drifted", []string{"db", "web"}},
		{karpv1.ReasonSpotInterrupted, []string{"db", "queue", "store", "web"}},
		{karpv1.ReasonReservationInterrupted, []string{"db", "queue", "store", "web"}},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			f := controllertest.New(
				t,
				controllertest.ReadyNode("a", controllertest.DeletingNode, closed),
				controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting, func(c *karpv1.NodeClaim) {
					condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because(tt.reason, tt.reason), controllertest.Start)
				}),
				controllertest.Pod("web", "node-a"),
				controllertest.Pod("db", "node-a", mounting("data")),
				controllertest.Pod(
					"queue",
					"node-a",
					mounting("more"),
					critical,
				),
				controllertest.Pod("store", "node-a", mounting("most"), controllertest.OwnedByDaemonSet),
				controllertest.Pod("dns", "node-a", critical),
				controllertest.Pod("agent", "node-a", controllertest.OwnedByDaemonSet),
			)
			r := nodeReconciler(f, &ec2{})
			f.Reconcile(r, "node-a")
			var got []string
			for key := range r.Evictor.requests {
				got = append(got, key.name)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("evicted: %v, want %v", got, tt.want)
			}
		})
	}
}
