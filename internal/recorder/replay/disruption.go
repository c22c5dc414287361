package replay

import (
	"errors"
	"fmt"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	staticpool "github.com/dovetail-k8s/dovetail/internal/engine/static"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// disruption is the state of a disruption pass, as the loop has it.
type disruption struct {
	replayer *Replayer
	view     *disrupt.View
	budgets  map[karpv1.DisruptionReason]*disrupt.RemainingBudgets
	taken    map[string]bool
	problem  *schedule.Problem
	// byClaim finds candidates. Those for repair are others, since all of their pods must move.
	byClaim, forRepair map[string]*disrupt.Candidate
	repairs            *replace.RepairSearch
	refills            map[string]*replace.StaticRefill
	// rechecking is true while validated commands are applied to the problem. unknownBefore is true after one that is not known.
	rechecking, unknownBefore bool
}

func newDisruption(y *Replayer, s *snapshot.Snapshot) *disruption {
	d := &disruption{
		replayer: y, view: disrupt.NewView(s), budgets: map[karpv1.DisruptionReason]*disrupt.RemainingBudgets{}, taken: map[string]bool{},
		byClaim: map[string]*disrupt.Candidate{}, forRepair: map[string]*disrupt.Candidate{}, refills: map[string]*replace.StaticRefill{},
	}
	for _, reason := range []karpv1.DisruptionReason{
		karpv1.DisruptionEmpty, karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized, karpv1.DisruptionUnhealthy,
	} {
		d.budgets[reason] = d.view.RemainingBudgets(disrupt.Allowances(s, reason))
	}
	for _, list := range [][]*disrupt.Candidate{d.view.BoundedDrain, d.view.Candidates} {
		for _, c := range list {
			d.byClaim[c.Node.Claim] = c
		}
	}
	return d
}

func (d *disruption) compiled() *schedule.Problem {
	if d.problem == nil {
		d.problem = consolidate.Compile(d.view.Snapshot)
	}
	return d.problem
}

func (d *disruption) run(c recorder.CallRecord) (Result, bool) {
	if d.rechecking && c.Name != recorder.CallRecheck {
		d.problem.Revert()
		d.rechecking = false
	}
	switch c.Name {
	case recorder.CallTake:
		return call(c, d.take, differentNames("take"))
	case recorder.CallRepair:
		return call(c, d.repair, differentOutcomes)
	case recorder.CallConfirm:
		return call(c, d.confirm, differentNames("still empty:"))
	case recorder.CallRecheck:
		return call(c, d.recheck, differentOutcomes)
	case recorder.CallEmpty:
		return call(c, d.empty, differentNames("delete empty"))
	case recorder.CallStatic:
		return call(c, d.static, differentStatic)
	case recorder.CallRefill:
		return call(c, d.refill, differentOutcomes)
	case recorder.CallDrift:
		return call(c, d.drift, differentDrift)
	case recorder.CallFind:
		return call(c, d.find, differentFinds)
	}
	return Result{Call: c.Name, Same: true, Skipped: "this version does not know the call", Changes: []Change{}}, true
}

// candidates finds candidates by their claims.
func (d *disruption) candidates(claims []string) ([]*disrupt.Candidate, string) {
	out := make([]*disrupt.Candidate, 0, len(claims))
	for _, name := range claims {
		c := d.byClaim[name]
		if c == nil {
			c = d.forRepair[name]
		}
		if c == nil {
			return nil, fmt.Sprintf("node claim %q is no candidate for this version", name)
		}
		out = append(out, c)
	}
	return out, ""
}

// take follows what the loop did; it decides nothing.
func (d *disruption) take(claims *[]string, _ *[]string) (*[]string, string) {
	if len(*claims) > 0 && d.byClaim[(*claims)[0]] == nil {
		d.due()
	}
	list, why := d.candidates(*claims)
	if why != "" {
		return nil, why
	}
	for _, room := range d.budgets {
		room.Use(list)
	}
	for _, name := range *claims {
		d.taken[name] = true
	}
	return nil, ""
}

// due finds the nodes that are due for repair.
func (d *disruption) due() {
	if d.repairs != nil {
		return
	}
	due, _ := d.view.Unhealthy()
	for _, c := range due {
		d.forRepair[c.Node.Claim] = c
	}
	d.repairs = &replace.RepairSearch{
		View: d.view, Remaining: d.budgets[karpv1.DisruptionUnhealthy], Breaker: d.view.NewBreaker(due), Budget: schedule.DefaultBudget(),
	}
}

func (d *disruption) freed(reason karpv1.DisruptionReason) *replace.FreedSlots {
	return &replace.FreedSlots{
		View: d.view, Compile: consolidate.Compile, Budget: schedule.DefaultBudget(), Remaining: d.budgets[reason],
	}
}

func (d *disruption) repair(in *recorder.RepairInput, _ *recorder.OutcomeRecord) (*recorder.OutcomeRecord, string) {
	d.due()
	c := d.forRepair[in.Claim]
	if c == nil {
		return &recorder.OutcomeRecord{Why: "the node is not due for repair"}, ""
	}
	if in.Freed && d.repairs.Freed == nil {
		d.repairs.Freed = d.freed(karpv1.DisruptionUnhealthy)
	}
	search := *d.repairs
	search.Reboots = in.Reboots
	out := recorder.RecordRepair(search.Evaluate(d.compiled, c))
	return &out, ""
}

func (d *disruption) confirm(in, _ *[]string) (*[]string, string) {
	empty, _ := d.view.Empty()
	still := map[string]bool{}
	for _, c := range empty {
		still[c.Node.Claim] = true
	}
	out := []string{}
	for _, name := range *in {
		if still[name] && !d.taken[name] && d.budgets[karpv1.DisruptionEmpty].Allow([]*disrupt.Candidate{d.byClaim[name]}) {
			out = append(out, name)
		}
	}
	return &out, ""
}

func (d *disruption) recheck(in *recorder.RecheckInput, _ *recorder.OutcomeRecord) (*recorder.OutcomeRecord, string) {
	found := d.replayer.commands[in.ID]
	if found == nil || d.unknownBefore {
		d.unknownBefore = true // those after it are validated beside it
		return nil, "the pass that found the command is not among those replayed"
	}
	fresh := *found
	var why string
	if fresh.Candidates, why = d.candidates(in.Claims); why != "" {
		return &recorder.OutcomeRecord{Why: why}, ""
	}
	d.rechecking = true
	err := consolidate.Recheck(d.compiled(), d.view.Snapshot, &fresh, consolidate.Settings{SpotToSpot: in.SpotToSpot})
	if err != nil && !errors.As(err, new(*consolidate.Invalid)) {
		return nil, err.Error()
	}
	out := recorder.RecordError(err)
	return &out, ""
}

func (d *disruption) empty(_ *struct{}, _ *[]string) (*[]string, string) {
	out := []string{}
	empty, _ := d.view.Empty()
	for _, c := range empty { // as the loop does, which takes each at once
		one := []*disrupt.Candidate{c}
		if d.taken[c.Node.Claim] || !d.budgets[karpv1.DisruptionEmpty].Allow(one) {
			continue
		}
		out = append(out, c.Node.Claim)
		for _, room := range d.budgets {
			room.Use(one)
		}
		d.taken[c.Node.Claim] = true
	}
	return &out, ""
}

func (d *disruption) static(in *disrupt.BackoffRecord, _ *[]recorder.StaticRecord) (*[]recorder.StaticRecord, string) {
	out := recorder.RecordStatic(disrupt.FromRecord(*in).StaticDrift(d.view, d.budgets[karpv1.DisruptionDrifted]))
	return &out, ""
}

func (d *disruption) refill(in *recorder.RefillInput, _ *recorder.OutcomeRecord) (*recorder.OutcomeRecord, string) {
	d.due()
	candidates, why := d.candidates([]string{in.Claim})
	if in.Reason == karpv1.DisruptionUnhealthy && d.forRepair[in.Claim] != nil {
		candidates, why = []*disrupt.Candidate{d.forRepair[in.Claim]}, ""
	}
	if why != "" {
		return nil, why
	}
	key := in.NodePool + "/" + string(in.Reason)
	refill := d.refills[key]
	if refill == nil {
		pool := candidates[0].Pool
		refill = &replace.StaticRefill{
			View: d.view, Reason: in.Reason, Remaining: d.budgets[in.Reason], Pool: pool, Limit: staticpool.Limit(pool), Room: in.Room,
			Enabled: in.Enabled,
		}
		d.refills[key] = refill
	}
	first := refill.AtLimit
	if in.InReservation {
		first = refill.InReservation
	}
	cmd, why := first(candidates[0])
	return &recorder.OutcomeRecord{Command: recorder.RecordCommand(cmd), Why: why}, ""
}

func (d *disruption) drift(in *recorder.DriftInput, _ *recorder.DriftRecord) (*recorder.DriftRecord, string) {
	candidates, why := d.candidates(in.Claims)
	if why != "" {
		return nil, why
	}
	search := replace.DriftSearch{
		Order: candidates, Remaining: d.budgets[karpv1.DisruptionDrifted], MaxRejections: in.MaxRejections, Budget: schedule.DefaultBudget(),
	}
	if in.Freed {
		search.Freed = d.freed(karpv1.DisruptionDrifted)
	}
	out := recorder.RecordDrift(replace.Drift(d.compiled(), d.view, search))
	return &out, ""
}

func (d *disruption) find(in *recorder.FindInput, was *recorder.FindRecord) (*recorder.FindRecord, string) {
	without := map[string]bool{}
	for _, name := range in.Without {
		without[name] = true
	}
	var candidates []*disrupt.Candidate
	for _, c := range d.view.Candidates {
		if !without[c.Node.Claim] {
			candidates = append(candidates, c)
		}
	}
	costs := map[string]float64{}
	for pool, cost := range in.Costs {
		costs[pool] = float64(cost)
	}
	found := consolidate.Find(
		consolidate.Input{
			Problem: d.compiled(), Snapshot: d.view.Snapshot, Candidates: candidates,
			Budgets: d.budgets[karpv1.DisruptionUnderutilized].Allowances(),
			Totals:  consolidate.PoolTotals(d.view.Snapshot, d.view.Candidates, costs),
		},
		consolidate.Settings{SpotToSpot: in.SpotToSpot, MaxSteps: in.MaxSteps, PoolsFirst: in.PoolsFirst},
	)
	out := recorder.RecordFind(&found)
	d.replayer.keep(was.Commands, out.Commands, found.Commands)
	return &out, ""
}
