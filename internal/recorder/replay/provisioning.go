package replay

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// planned is a plan and its snapshot.
type planned struct {
	snap *snapshot.Snapshot
	plan schedule.Plan
}

// run replays a call. It returns false for a call that decides nothing.
func (x *replayed) run(c recorder.CallRecord) (Result, bool) {
	switch c.Name {
	case recorder.CallSolve:
		return call(c, x.solve, differentPlans)
	case recorder.CallBuffers:
		return call(c, x.buffers, differentBuffers)
	case recorder.CallPass:
		return call(c, x.decide, differentPasses)
	}
	return Result{Call: c.Name, Same: true, Skipped: "an earlier version has recorded it in another form", Changes: []Change{}}, true
}

func (x *replayed) solve(in *recorder.SolveInput, _ *recorder.PlanRecord) (*recorder.PlanRecord, string) {
	plan := schedule.Solve(x.snap, schedule.DefaultBudget())
	if in.Validated {
		plan, _, _ = validate.Withhold(x.snap, plan)
	}
	x.provisioned = &planned{x.snap, plan}
	out := recorder.RecordPlan(&plan)
	return &out, ""
}

func (x *replayed) buffers(in *recorder.Exclusion, _ *recorder.BuffersRecord) (*recorder.BuffersRecord, string) {
	var plan schedule.Plan
	if x.provisioned != nil {
		plan = x.provisioned.plan
	}
	snap := x.snap
	if len(in.Pods) > 0 {
		snap = in.Apply(snap)
	}
	room := buffer.Plan(snap, plan, schedule.DefaultBudget())
	out := recorder.RecordBuffers(&room)
	return &out, ""
}

func differentBuffers(was, is *recorder.BuffersRecord) []Change {
	changes := differentLaunches(was.Launches, is.Launches)
	for _, node := range keysOf(was.Nodes, is.Nodes) {
		if a, b := was.Nodes[node], is.Nodes[node]; a != b {
			changes = append(changes, Change{Was: bufferLine(a, node), Is: bufferLine(b, node)})
		}
	}
	return changes
}

func keysOf[V any](maps ...map[string]V) []string {
	var out []string
	for _, m := range maps {
		for key := range m {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
