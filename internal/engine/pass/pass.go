// Package pass decides what a pass over a cluster does with its nodes, as a pure function over a Snapshot: which nodes go, in which order,
// and why the others stay.
//
// Commands that read a cluster, and shadow mode, decide with it. They have no memory of passes before.
package pass

import (
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Work is what a pass looks for, one or more of the constants.
type Work uint

// The kinds of work, in the order in which a pass does them: what goes for one is not looked at for the next.
const (
	// Empty finds nodes without pods.
	Empty Work = 1 << iota
	// Drift finds drifted nodes to replace. Those of static pools are left out: their pools replace them.
	Drift
	// Savings finds nodes that cost more than what would replace them.
	Savings
)

// Input is all that a pass depends on. It is not changed.
type Input struct {
	// Snapshot has the clock, Now.
	Snapshot *snapshot.Snapshot
	// Problem is that of the Snapshot, if the caller has it. It is as before when Decide returns.
	Problem *schedule.Problem
	// Plan is a plan for the pending pods of the Snapshot: the nodes that take them stay. Nil if there is none.
	Plan     *plan.Plan
	Work     Work
	Settings Settings
}

// ManyDrifted and ManyRejected are bounds for commands that show what passes would do: what changes beyond them is in the next passes.
const ManyDrifted, ManyRejected = 10, 5

// Settings are those of the controller, and bounds.
type Settings struct {
	Consolidation consolidate.Settings
	// MaxDrift is how many drifted nodes are replaced at most, MaxDriftRejections after how many that cannot be replaced the search for
	// them stops. Each takes a simulation.
	MaxDrift, MaxDriftRejections int
}

// Decisions are what a pass decides.
type Decisions struct {
	// Start are the commands, in the order in which they are performed. Each is right by itself, as far as budgets allow at once.
	Start []disrupt.Command
	// Stay are nodes that stay, and why. Nodes that the search did not come to are in neither list.
	Stay []Stay
	// Steps is what the search for savings took, TimedOut whether it was stopped at its most steps: see consolidate.Result.
	Steps    int
	TimedOut bool
}

// Stay is a node that stays.
type Stay struct {
	Node        *snapshot.Node
	disrupt.Why // empty if the search did not come to the node
}

// Decide decides what a pass does with the nodes of a Snapshot. It costs a classification of the nodes; a simulation per drifted node that
// is tried; and for Savings, up to Settings.Consolidation.MaxSteps.
func Decide(in Input) Decisions {
	d := &decider{Input: in, gone: map[*disrupt.Candidate]bool{}}
	d.Snapshot = nominated(in.Snapshot, in.Plan) // on which the Problem does not depend
	d.view = disrupt.NewView(d.Snapshot)
	for _, b := range d.view.BlockedNodes {
		d.stay(b.Node, b.Why)
	}
	if in.Work&Empty != 0 {
		d.empty()
	}
	if in.Work&Drift != 0 {
		d.drift()
	}
	if in.Work&Savings != 0 {
		d.savings()
	}
	return d.out
}

// decider decides one pass.
type decider struct {
	Input
	view *disrupt.View
	// gone are the candidates of commands, and empty nodes that wait for a budget.
	gone map[*disrupt.Candidate]bool
	out  Decisions
}

func (d *decider) stay(n *snapshot.Node, why disrupt.Why) {
	d.out.Stay = append(d.out.Stay, Stay{n, why})
}

func (d *decider) start(c disrupt.Command) {
	for _, candidate := range c.Candidates {
		d.gone[candidate] = true
	}
	d.out.Start = append(d.out.Start, c)
}

// problem compiles the Snapshot at the first use.
func (d *decider) problem() *schedule.Problem {
	if d.Problem == nil {
		d.Problem = consolidate.Compile(d.Snapshot)
	}
	return d.Problem
}

func (d *decider) empty() {
	room := d.view.RemainingBudgets(disrupt.Allowances(d.Snapshot, karpv1.DisruptionEmpty))
	empty, _ := d.view.Empty()
	for _, c := range empty {
		one := []*disrupt.Candidate{c}
		if !room.Allow(one) {
			d.gone[c] = true
			d.stay(c.Node, disrupt.Why{
				Reason: disrupt.EmptyOverBudget, Message: "the node is empty, and a budget of its NodePool holds it back for now",
			})
			continue
		}
		room.Use(one)
		d.start(disrupt.Command{Reason: karpv1.DisruptionEmpty, ConsolidationType: "empty", Candidates: one, Savings: c.Price})
	}
}

func (d *decider) drift() {
	order := new(disrupt.DriftBackoff).DriftOrder(d.view.Drifted(false /* static */), d.Snapshot.Now)
	order = slices.DeleteFunc(order, func(c *disrupt.Candidate) bool { return d.gone[c] })
	if len(order) == 0 {
		return
	}
	search := replace.DriftSearch{
		Order: order, Remaining: d.view.RemainingBudgets(disrupt.Allowances(d.Snapshot, karpv1.DisruptionDrifted)),
		MaxRejections: d.Settings.MaxDriftRejections, Budget: schedule.DefaultBudget(),
	}
	p := d.problem()
	defer p.RevertTo(p.AppliedPlans())
	for i := range d.out.Start { // empty nodes that go take no pods
		p.Apply(simulationOf(&d.out.Start[i]), &d.out.Start[i].Plan)
	}
	for range d.Settings.MaxDrift {
		c, _ := replace.Drift(p, d.view, search)
		if c == nil {
			return
		}
		d.start(*c)
		p.Apply(simulationOf(c), &c.Plan) // so that the next node's pods do not get the same room
		search.Remaining.Use(c.Candidates)
		search.Order = slices.DeleteFunc(search.Order, func(c *disrupt.Candidate) bool { return d.gone[c] })
	}
}

// simulationOf is the simulation that found the command.
func simulationOf(c *disrupt.Command) (out schedule.Simulation) {
	for _, candidate := range c.Candidates {
		out.Removed, out.Pods = append(out.Removed, candidate.Index), append(out.Pods, candidate.Pods...)
	}
	return out
}

func (d *decider) savings() {
	left := slices.DeleteFunc(slices.Clone(d.view.Candidates), func(c *disrupt.Candidate) bool { return d.gone[c] })
	totals, _ := new(disrupt.PoolCosts).Update(d.view)
	found := consolidate.Find(consolidate.Input{
		Problem: d.problem(), Snapshot: d.Snapshot, Candidates: left,
		Budgets: d.view.RemainingBudgets(disrupt.Allowances(d.Snapshot, karpv1.DisruptionUnderutilized)).Allowances(),
		Totals:  consolidate.PoolTotals(d.Snapshot, d.view.Candidates, totals),
	}, d.Settings.Consolidation)
	leaving := map[string]bool{}
	for c := range d.gone {
		leaving[c.Node.Name] = true
	}
	for i := range found.Commands {
		if !slices.ContainsFunc(found.Commands[i].Plan.Placements, func(p plan.Placement) bool { return leaving[p.Node] }) {
			d.start(found.Commands[i])
		}
	}
	d.out.Steps, d.out.TimedOut = found.Steps, found.TimedOut != ""
	for _, k := range found.Unconsolidatable {
		d.stay(k.Candidate.Node, k.Why)
	}
}

// nominated is the Snapshot with the nodes nominated that take pods of the plan.
func nominated(s *snapshot.Snapshot, of *plan.Plan) *snapshot.Snapshot {
	if of == nil || len(of.Placements) == 0 {
		return s
	}
	takes := map[string]bool{}
	for i := range of.Placements {
		takes[of.Placements[i].Node] = true
	}
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	for i := range out.Nodes {
		if n := &out.Nodes[i]; takes[n.Name] {
			n.NominatedUntil = s.Now.Add(time.Minute) // any time after now: no time passes here
		}
	}
	return &out
}
