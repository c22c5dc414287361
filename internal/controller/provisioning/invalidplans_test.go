package provisioning

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// two pods that need a node each, of different zones.
func twoLaunches() (*snapshot.Snapshot, schedule.Plan) {
	s := engine.World([]snapshot.Pool{engine.Pool("general", engine.Types())},
		engine.Pod("a", engine.Requests("cpu", "1"), engine.Selects(engine.Zone, "z1")),
		engine.Pod("b", engine.Requests("cpu", "1"), engine.Selects(engine.Zone, "z2")))
	return s, schedule.Solve(s, schedule.Budget{})
}

func TestValidPlanIsNotChanged(t *testing.T) {
	p := provisioner(controllertest.New(t))
	s, plan := twoLaunches()
	if got := p.withholdInvalid(s, plan); len(got.Launches) != 2 || len(got.Rejected) != 0 {
		t.Errorf("%d launches, %d rejected", len(got.Launches), len(got.Rejected))
	}
	if n := testutil.ToFloat64(p.Metrics.InvalidPlans); n != 0 {
		t.Errorf("%v invalid plans", n)
	}
}

func TestLaunchesThatBreakARuleAreWithheld(t *testing.T) {
	p := provisioner(controllertest.New(t))
	s, plan := twoLaunches()
	k := slices.IndexFunc(plan.Launches, func(l schedule.Launch) bool { return l.Pods[0].Name == "b" })
	plan.Launches[k].Pods[0].Spec.NodeSelector[engine.Zone] = "z3"
	got := p.withholdInvalid(s, plan)
	if len(got.Launches) != 1 || got.Launches[0].Pods[0].Name != "a" {
		t.Errorf("launches %v", got.Launches)
	}
	if len(got.Rejected) != 1 || got.Rejected[0].Pod.Name != "b" ||
		!strings.Contains(wording.Reason(got.Rejected[0].Reasons[0]), "nodeSelector is not satisfied") {
		t.Errorf("rejected %v", got.Rejected)
	}
	if n := testutil.ToFloat64(p.Metrics.InvalidPlans); n != 1 {
		t.Errorf("%v invalid plans", n)
	}
	if len(plan.Launches) != 2 {
		t.Error("the plan itself was changed")
	}
}
