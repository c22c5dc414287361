package provisioning

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// recordPlan gives each launch of a plan the ID of its decision, and records the plan before it is carried out.
func (p *Provisioner) recordPlan(pass *recorder.Pass, got *solved) {
	if p.Recorder == nil {
		return
	}
	plan := &got.plan
	for i := range plan.Launches {
		plan.Launches[i].ID = fmt.Sprintf("%s-%d", pass.ID(), i)
	}
	if !pass.Recording() {
		return
	}
	pass.Call(recorder.CallSolve, recorder.SolveInput{Validated: p.ValidatePlans},
		recorder.RecordPlan(plan, codePlanningFailed, codeInvalidPlan, codePostponed, codePodsRefused))
	launches := got.kept()
	for i := range launches {
		pass.Decide(recorder.LaunchDecision(got.snap, &launches[i]))
	}
	pass.Commit()
}

// recordBuffers does the same for the launches of capacity buffers.
func (p *Provisioner) recordBuffers(d outcome, planned *snapshot.Snapshot, room *buffer.Placement) {
	pass, snap := d.pass, d.snap
	if p.Recorder == nil {
		return
	}
	for i := range room.Launches {
		room.Launches[i].ID = fmt.Sprintf("%s-b%d", pass.ID(), i)
	}
	if !pass.Recording() || room.Abandoned {
		return
	}
	pass.Call(recorder.CallBuffers, recorder.ExclusionOf(snap, planned), recorder.RecordBuffers(room))
	for i := range room.Launches {
		pass.Decide(recorder.LaunchDecision(snap, &room.Launches[i]))
	}
	pass.Commit()
}
