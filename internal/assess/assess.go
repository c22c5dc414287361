// Package assess computes what a cluster costs, what the same pods would cost, and what keeps them from it. It changes nothing: it
// takes an inspect.View, and carries out consolidation in its own copies of the snapshot.
package assess

import (
	"cmp"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// Settings describes what an assessment depends on besides the cluster.
type Settings struct {
	// Consolidation are the settings of the controller.
	Consolidation consolidate.Settings
	// Budget bounds each plan, as in the controller.
	Budget schedule.Budget
	// NodeGroups repacks the pods of nodes without a NodePool, too.
	NodeGroups bool
	// Steps bounds all passes towards the outcome Consolidated together, FreeSteps those towards each of the others. Both are in steps
	// of consolidate.Result. Zero means no bound.
	Steps, FreeSteps int
	// RuleSteps bounds all plans without one constraint together, in steps of schedule.Budget. Zero means no bound.
	RuleSteps int
}

const (
	// outcomeSteps bounds the passes towards the outcome Consolidated: a fleet of 2,000 nodes with 20,000 pods takes 310 million in 17 CPU
	// seconds, one with 30,000 pods 267 million.
	outcomeSteps = 600_000_000
	// freeSteps bounds those towards each other outcome. Without disruption budgets, a pass or two find nearly all: the same fleets take
	// 104 to 192 million steps.
	freeSteps = 200_000_000
	// ruleSteps bounds the plans without one constraint: schedule.DefaultBudget measures 35 ns for a step of a plan.
	ruleSteps = 40_000_000
)

// DefaultSettings returns those of a controller with default settings, with the bounds of an assessment.
func DefaultSettings() Settings {
	return Settings{Budget: schedule.DefaultBudget(), Steps: outcomeSteps, FreeSteps: freeSteps, RuleSteps: ruleSteps}
}

// Assess computes the report of a cluster, without usage and doctor, which are read elsewhere.
//
// Cost: two to six times that of consolidateFully, and that of measure. The outcomes are computed at the same time, as far as there are
// cores.
func Assess(view *inspect.View, settings Settings) *Report {
	a := &assessment{view: view, settings: settings, prices: newPriceList(view)}
	return a.report()
}

// assessment is one run.
type assessment struct {
	view     *inspect.View
	settings Settings
	prices   *priceList
}

func (a *assessment) report() *Report {
	s := a.view.Snapshot
	out := &Report{
		TakenAt: s.Now.UTC(), Prices: a.view.Prices, PricesProblem: a.view.PricesProblem, Now: fleetOf(a.withUnclaimed(), a.prices),
		Notes: append([]string{}, a.view.Notes...),
	}
	begin := newFuture(s)
	plan := schedule.Solve(begin.Snapshot, a.settings.Budget)
	out.Pending = pending(s, &plan, a.prices)
	begin.schedule(&plan)

	fresh := parallel.Begin(func() measured { return a.measure(a.repack(begin)) })
	free := parallel.Begin(func() endState { return a.consolidateFully(begin.without(allGuards...), a.settings.FreeSteps) })
	guarded := a.consolidateFully(begin, a.settings.Steps)
	unguarded, repacked := free.Wait(), fresh.Wait()
	gate := parallel.Begin(func() *Gate { return a.gate(begin, &guarded, out.Now.HourlyCost-a.planned()) })
	out.Moves = a.moves(&guarded)
	out.Outcomes = a.outcomes(out, &guarded, &unguarded, repacked.repack)
	out.Kept = a.kept(&guarded)
	out.Guards = a.guards(begin, &guarded, &unguarded)
	out.Rules = repacked.rules
	out.Gate = gate.Wait()
	out.Consolidatable, out.NodeGroups = a.consolidatable(), a.settings.NodeGroups
	out.Search = a.search(repacked.unmeasured)
	return out
}

// consolidatable counts the nodes of NodePools.
func (a *assessment) consolidatable() int {
	pools := map[string]bool{}
	for i := range a.view.Snapshot.Pools {
		pools[a.view.Snapshot.Pools[i].NodePool.Name] = true
	}
	count := 0
	for i := range a.view.Snapshot.Nodes {
		if n := &a.view.Snapshot.Nodes[i]; n.Claim != "" && pools[n.Pool] {
			count++
		}
	}
	return count
}

// search states the bounds of the searches.
func (a *assessment) search(unmeasured []string) Search {
	return Search{
		LeastShare: leastShare, LeastSaved: leastSaved, MaxPasses: maxPasses, OutcomeSteps: a.settings.Steps,
		FreeSteps: a.settings.FreeSteps, RuleSteps: a.settings.RuleSteps,
		UnmeasuredRules: unmeasured,
	}
}

// withUnclaimed returns the snapshot with the nodes of a pool that no NodeClaim stands for, too: plans leave them out, and they
// cost money.
func (a *assessment) withUnclaimed() *snapshot.Snapshot {
	known := make(map[string]bool, len(a.view.Snapshot.Nodes))
	for i := range a.view.Snapshot.Nodes {
		known[a.view.Snapshot.Nodes[i].Name] = true
	}
	claimed := map[string]bool{}
	for _, c := range a.view.NodeClaims {
		claimed[c.Status.ProviderID] = c.Status.ProviderID != ""
	}
	out := *a.view.Snapshot
	out.Nodes = slices.Clone(out.Nodes)
	for _, n := range a.view.Nodes {
		if known[n.Name] || claimed[n.Spec.ProviderID] {
			continue
		}
		out.Nodes = append(out.Nodes, snapshot.Node{
			Name: n.Name, Pool: n.Labels[labelPool], Labels: n.Labels, Allocatable: n.Status.Allocatable, Launched: true,
		})
	}
	return &out
}

// pending returns what becomes of the pods that wait.
func pending(s *snapshot.Snapshot, plan *schedule.Plan, prices *priceList) Pending {
	out := Pending{Pods: len(s.Pods), Nodes: len(plan.Launches), Unschedulable: len(plan.Rejected)}
	for i := range plan.Launches {
		out.HourlyCost += plan.Launches[i].Offering.Price + prices.overhead
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; leaves(n) && n.Launched && !n.InstanceTerminating {
			price, _ := prices.of(n)
			out.DeletedNodes, out.DeletedHourlyCost = out.DeletedNodes+1, out.DeletedHourlyCost+price
		}
	}
	return out
}

// outcomes compares what the cluster comes to with what it costs now.
func (a *assessment) outcomes(r *Report, guarded, unguarded *endState, fresh repack) []Outcome {
	extra := r.Now.HourlyCost - a.planned()
	outcome := func(name string, hourly float64, nodes int) Outcome {
		hourly += extra
		saved := r.comparable() - hourly
		return Outcome{
			Name: name, HourlyCost: hourly, MonthlyCost: monthly(hourly), HourlySavings: saved, MonthlySavings: monthly(saved), Nodes: nodes,
		}
	}
	of := func(name string, s *endState) Outcome {
		hourly, nodes := cost(s.Snapshot, a.prices)
		out := outcome(name, hourly, nodes)
		out.Cut = s.cut
		for _, p := range s.passes {
			out.Moves += len(p.commands)
			for i := range p.commands {
				for _, c := range p.commands[i].Candidates {
					out.Evictions += len(c.Pods)
				}
			}
		}
		return out
	}
	return []Outcome{
		of(Consolidated, guarded), of(Unguarded, unguarded),
		outcome(Repacked, fresh.hourly, fresh.nodes), outcome(LowerBound, fresh.bound, 0),
	}
}

// planned returns what the nodes of the snapshot cost that plans know. The others cost the same in all outcomes.
func (a *assessment) planned() float64 {
	hourly, _ := cost(a.view.Snapshot, a.prices)
	return hourly
}

// moves lists the commands in order.
func (a *assessment) moves(s *endState) []Move {
	out := []Move{}
	for i, p := range s.passes {
		for k := range p.commands {
			c := &p.commands[k]
			m := Move{
				Pass: i + 1, AfterSeconds: p.at.Seconds(), Reason: string(c.Reason), Removed: []Node{}, Launched: []Node{},
			}
			for _, gone := range c.Candidates {
				price, _ := a.prices.of(gone.Node)
				n := Node{
					Name: gone.Node.Name, NodePool: gone.Node.Pool, InstanceType: instanceType(gone.Node), Zone: gone.Zone,
					CapacityType: gone.CapacityType, HourlyCost: price, Pods: len(gone.Pods),
				}
				m.Removed = append(m.Removed, n)
				m.Evictions += n.Pods
				m.HourlySavings += price
			}
			for l := range c.Plan.Launches {
				n := a.launched(&c.Plan.Launches[l])
				m.Launched = append(m.Launched, n)
				m.HourlySavings -= n.HourlyCost
			}
			for _, placed := range c.Plan.Placements {
				m.ToExisting += len(placed.Pods)
			}
			m.MonthlySavings = monthly(m.HourlySavings)
			out = append(out, m)
		}
	}
	return out
}

func (a *assessment) launched(l *schedule.Launch) Node {
	return Node{
		NodePool: l.Pool.Name, InstanceType: l.InstanceTypes[0].Name, Zone: l.Offering.Zone, CapacityType: l.Offering.CapacityType,
		HourlyCost: l.Offering.Price + a.prices.overhead, Pods: len(l.Pods),
	}
}

// notReached states why a node stays that a search did not come to before its bound.
const notReached = "the search stopped before it"

// kept groups the nodes that stay by the reason without the names in it.
func (a *assessment) kept(s *endState) []Kept {
	at := map[string]int{}
	price := make(map[string]float64, len(s.Nodes))
	for i := range s.Nodes {
		price[s.Nodes[i].Name], _ = a.prices.of(&s.Nodes[i])
	}
	out := []Kept{}
	for _, k := range s.kept {
		reason := cmp.Or(k.Why.Summary(), notReached)
		i, known := at[reason]
		if !known {
			i = len(out)
			at[reason] = i
			full := cmp.Or(k.Message, notReached)
			out = append(out, Kept{Reason: reason, Example: k.Node + ": " + full, node: k.Node, plain: full == reason})
		}
		out[i].Nodes++
		out[i].HourlyCost += price[k.Node]
	}
	for i := range out {
		out[i].MonthlyCost = monthly(out[i].HourlyCost)
	}
	slices.SortFunc(out, func(x, y Kept) int {
		return cmp.Or(cmp.Compare(y.HourlyCost, x.HourlyCost), cmp.Compare(x.Reason, y.Reason))
	})
	return out
}
