package disruption

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// decide gives a command the ID of its decision and records it, unless it has one already.
func (l *Loop) decide(r *passState, cmd *disrupt.Command) {
	if cmd.ID != "" {
		return
	}
	cmd.ID = l.ID()
	l.recordDecision(r, cmd, nil)
}

// recordDecision records a command; found is the search that it is from, nil if it is from none.
func (l *Loop) recordDecision(r *passState, cmd *disrupt.Command, found *consolidate.Result) {
	if r.rec.Recording() {
		r.rec.Decide(recorder.CommandDecision(cmd, recorder.Basis{
			Snapshot: r.Snapshot, Allowances: r.allowancesOf(cmd), Found: found,
		}))
	}
}

// allowancesOf are what the budgets leave to a command, whether it is counted already or not.
func (r *passState) allowancesOf(cmd *disrupt.Command) []disrupt.Allowance {
	out := r.budgets[cmd.Reason].Allowances()
	for _, c := range cmd.Candidates {
		for i := range out {
			if out[i].Pool.Name == c.Node.Pool && r.taken[c.Node.ClaimUID] {
				out[i].Allowed++
			}
		}
	}
	return out
}

// recordStart records whether a command was started.
func (l *Loop) recordStart(id string, err error) {
	step := recorder.Step{Decision: id, What: recorder.StepStarted}
	if err != nil {
		step.What, step.Message = recorder.StepFailed, err.Error()
	}
	l.Recorder.Step(step)
}

// recordFind gives the commands of a search their IDs, and records the search.
func (l *Loop) recordFind(r *passState, candidates []*disrupt.Candidate, found *consolidate.Result) {
	for i := range found.Commands {
		found.Commands[i].ID = l.ID()
	}
	if !r.rec.Recording() {
		return
	}
	in := recorder.FindInput{
		Costs: recorder.Costs(r.costs), SpotToSpot: l.Consolidation.SpotToSpot, MaxSteps: l.Consolidation.MaxSteps,
		PoolsFirst: l.Consolidation.PoolsFirst,
	}
	searched := make(map[*disrupt.Candidate]bool, len(candidates))
	for _, c := range candidates {
		searched[c] = true
	}
	for _, c := range r.Candidates {
		if !searched[c] {
			in.Without = append(in.Without, c.Node.Claim)
		}
	}
	r.rec.Call(recorder.CallFind, in, recorder.RecordFind(found))
}

// recordRecheck records whether a command is still valid.
func (l *Loop) recordRecheck(r *passState, cmd *disrupt.Command, err error) {
	if err == nil {
		l.Recorder.Step(recorder.Step{
			Decision: cmd.ID, What: recorder.StepValidated, Message: "its pods still fit elsewhere for less, and the budgets allow it",
		})
	}
	r.rec.Call(
		recorder.CallRecheck,
		recorder.RecheckInput{ID: cmd.ID, Claims: recorder.ClaimNames(cmd.Candidates), SpotToSpot: l.Consolidation.SpotToSpot},
		recorder.RecordError(err),
	)
}

// recordConfirm records whether a node that is due is still empty.
func (r *passState) recordConfirm(cmd *disrupt.Command, why *consolidate.Invalid) {
	still := recorder.ClaimNames(cmd.Candidates)
	in := still
	if why != nil {
		still = []string{}
	}
	r.rec.Call(recorder.CallConfirm, in, still)
}

// recordRefill records whether a node of a static pool is terminated first.
func (r *passState) recordRefill(refill *replace.StaticRefill, c *disrupt.Candidate, inReservation bool, out recorder.OutcomeRecord) {
	r.rec.Call(recorder.CallRefill, recorder.RefillInput{
		Claim: c.Node.Claim, NodePool: refill.Pool.Name, Reason: refill.Reason, Room: refill.Room, Enabled: refill.Enabled,
		InReservation: inReservation,
	}, out)
}

// recordRepair records how a node is repaired, or why not.
func (r *passState) recordRepair(search *replace.RepairSearch, c *disrupt.Candidate, cmd *disrupt.Command, held *replace.HeldBack) {
	r.rec.Call(
		recorder.CallRepair,
		recorder.RepairInput{Claim: c.Node.Claim, Reboots: search.Reboots, Freed: search.Freed != nil},
		recorder.RecordRepair(cmd, held),
	)
}

// recordEmpty records the deletion of empty nodes. Each has an ID of its own, so that their outcomes are apart.
func (l *Loop) recordEmpty(r *passState, all *disrupt.Command, idOf func(i int) string) {
	for i, c := range all.Candidates {
		one := *all
		one.ID, one.Candidates, one.Savings = idOf(i), []*disrupt.Candidate{c}, c.Price
		l.recordDecision(r, &one, nil)
	}
	r.rec.Commit()
}

// recordRollBack records why a command was rolled back.
func (q *Queue) recordRollBack(e karpv1.DisruptionCommand, why string) {
	q.Recorder.Step(recorder.Step{Decision: e.ID, What: recorder.StepRolledBack, Message: why})
}
