package provisioning

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A node launched into the reservation of drifted nodes, which go before their replacements come, counts for the breaker.
func TestRefillOfAReservation(t *testing.T) {
	for gate, want := range map[bool]string{true: "Drifted", false: ""} {
		f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("web"),
			controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) {
				condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because("AMIDrift", ""), controllertest.Start)
			}),
			controllertest.ReadyNode("a", func(n *corev1.Node) { n.Labels[engine.ReservationID] = "cr-1" }))
		p := provisioner(f)
		p.TerminateFirst = gate
		p.Solve = func(s *snapshot.Snapshot, b schedule.Budget) schedule.Plan {
			plan := schedule.Solve(s, b)
			for i := range plan.Launches {
				l := &plan.Launches[i]
				l.Requirements = l.Requirements.With(requirement.In(engine.ReservationID, "cr-1"))
			}
			return plan
		}
		run(t, p)
		for _, c := range claims(t, f.API) {
			if got := c.Annotations[karpv1.AnnotationLaunchReason]; c.Name != "a" && got != want {
				t.Errorf("gate %t: the claim is launched for %q, want %q", gate, got, want)
			}
		}
		if n := len(claims(t, f.API)); n != 2 {
			t.Errorf("gate %t: %d claims, want the drifted one and another", gate, n)
		}
	}
}
