package disruption

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// record records a pass: what it depends on besides the Snapshot, what it decides, and each of its decisions.
func (l *Loop) record(rec *recorder.Pass, in *pass.Input, decided *pass.Decisions) {
	for i := range decided.Dropped {
		if d := &decided.Dropped[i]; !d.Part && d.Proposal.ID != "" {
			l.Recorder.Step(recorder.Step{Decision: d.Proposal.ID, What: recorder.StepRejected, Message: d.Why.Message})
		}
	}
	for i := range decided.Start {
		l.recordValidated(&decided.Start[i])
	}
	if !rec.Recording() {
		return
	}
	if !decided.Idle() {
		rec.Call(recorder.CallPass, recorder.RecordInput(in, decided), recorder.RecordDecisions(decided))
	}
	for i := range decided.Start {
		if c := &decided.Start[i]; !c.Validated || c.ConsolidationType == disrupt.TypeEmpty { // the others are recorded since they were proposed
			rec.Decide(recorder.CommandDecision(&c.Command, recorder.Basis{Snapshot: in.Snapshot, Allowances: c.Allowances}))
		}
	}
	for i := range decided.Propose {
		if c := &decided.Propose[i]; c.ConsolidationType != disrupt.TypeEmpty {
			rec.Decide(recorder.CommandDecision(&c.Command, recorder.Basis{
				Snapshot: in.Snapshot, Allowances: c.Allowances, Found: foundBy(c, decided),
			}))
		}
	}
}

// foundBy is the search that found a command; nil if none did.
func foundBy(c *pass.Decision, decided *pass.Decisions) *consolidate.Result {
	if c.Reason != karpv1.DisruptionUnderutilized {
		return nil
	}
	return decided.Found
}

// recordValidated records that a proposal is still valid.
func (l *Loop) recordValidated(c *pass.Decision) {
	if c.Validated && c.ConsolidationType != disrupt.TypeEmpty {
		l.Recorder.Step(recorder.Step{
			Decision: c.ID, What: recorder.StepValidated, Message: "its pods still fit elsewhere for less, and the budgets allow it",
		})
	}
}

// recordStart records whether a command was started.
func (l *Loop) recordStart(id string, err error) {
	step := recorder.Step{Decision: id, What: recorder.StepStarted}
	if err != nil {
		step.What, step.Message = recorder.StepFailed, err.Error()
	}
	l.Recorder.Step(step)
}

// recordRollBack records why a command was rolled back.
func (q *Queue) recordRollBack(e karpv1.DisruptionCommand, why string) {
	q.Recorder.Step(recorder.Step{Decision: e.ID, What: recorder.StepRolledBack, Message: why})
}
