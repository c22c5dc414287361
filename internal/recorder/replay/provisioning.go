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
func (x *pass) run(c recorder.CallRecord) (Result, bool) {
	switch c.Name {
	case recorder.CallSolve:
		return call(c, x.solve, differentPlans)
	case recorder.CallBuffers:
		return call(c, x.buffers, differentBuffers)
	}
	if x.disruption == nil {
		x.disruption = newDisruption(x.replayer, x.snap)
	}
	return x.disruption.run(c)
}

func (x *pass) solve(in *recorder.SolveInput, _ *recorder.PlanRecord) (*recorder.PlanRecord, string) {
	plan := schedule.Solve(x.snap, schedule.DefaultBudget())
	if in.Validated {
		withhold(x.snap, &plan)
	}
	x.provisioned = &planned{x.snap, plan}
	out := recorder.RecordPlan(&plan)
	return &out, ""
}

// withhold drops the launches that violate a rule.
func withhold(s *snapshot.Snapshot, plan *schedule.Plan) {
	broken := map[int]bool{}
	for _, v := range validate.Check(s, *plan) {
		for _, k := range v.Launches {
			broken[k] = true
		}
	}
	kept := make([]schedule.Launch, 0, len(plan.Launches))
	for i := range plan.Launches {
		if !broken[i] {
			kept = append(kept, plan.Launches[i])
		}
	}
	plan.Launches = kept
}

func (x *pass) buffers(in *recorder.Exclusion, _ *recorder.BuffersRecord) (*recorder.BuffersRecord, string) {
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
