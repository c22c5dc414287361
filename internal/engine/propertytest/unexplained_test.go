package propertytest

import (
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/decisiontext"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// TestUnexplainedPlansAreTheSame leaves the reasons of rejected pods out: nothing else of a plan changes.
func TestUnexplainedPlansAreTheSame(t *testing.T) {
	first, count := worldRange(t, 400)
	rejected := 0
	for seed := first; seed < first+count; seed++ {
		s := seeded(seed).anyWorld()
		plan := func(unexplained bool) string {
			budget := schedule.DefaultBudget()
			budget.FirstFitOnly, budget.Unexplained = true, unexplained
			p := schedule.Compile(s).Simulate(schedule.Simulation{Budget: budget})
			for i := range p.Rejected {
				rejected++
				p.Rejected[i].Reasons = nil
			}
			var out strings.Builder
			decisiontext.Plan(&out, &p)
			return out.String()
		}
		if got, want := plan(true), plan(false); got != want {
			t.Errorf("world %d:\n%s\nwith reasons:\n%s", seed, got, want)
		}
	}
	if rejected < int(count) {
		t.Errorf("%d pods were rejected in %d worlds", rejected, count)
	}
}
