package schedule_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A caller with a clock can time compiling and solving apart, and the plan does not depend on it.
func TestCompiledIsCalledOnceBetweenCompilingAndSolving(t *testing.T) {
	s := enginetest.World([]snapshot.Pool{enginetest.Pool("general", enginetest.Types())}, enginetest.Pods(20, "web", enginetest.Requests("cpu", "1"))...)
	budget := schedule.DefaultBudget()
	plain := schedule.Solve(s, budget)
	calls := 0
	budget.Compiled = func() { calls++ }
	timed := schedule.Solve(s, budget)
	if calls != 1 {
		t.Errorf("called %d times, want once", calls)
	}
	if len(plain.Launches) == 0 || len(plain.Launches) != len(timed.Launches) || plain.Stats.HourlyCost != timed.Stats.HourlyCost {
		t.Errorf("plans differ: %+v and %+v", plain.Stats, timed.Stats)
	}
}
