package schedule

import (
	"cmp"
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Budget bounds the work of a Solve in steps, so that the result does not depend on the speed of the host. One step is
// one check: of an instance type, of a node or bin for a pod, or of one topology rule there. When LookaheadSteps are spent, the
// plan is finished by first fit: it is as correct as ever, but may cost more.
type Budget struct {
	// LookaheadSteps bounds planning with lookahead; zero means no bound.
	LookaheadSteps int
	// MaxSteps finishes planning: pods that are not scheduled by then are rejected with code BudgetSpent. Pods with very many
	// terms come last, and have a share of it together, which is divided among namespaces. Zero means no bound.
	MaxSteps int
	// Stop is called periodically. Once it returns true, the plan is abandoned: see Plan.Abandoned. A nil Stop never
	// does.
	Stop func() bool
	// Compiled is called once when the snapshot is compiled and the search begins, so that a caller with a clock can time
	// both. It may be nil.
	Compiled func()
	// FirstFitOnly plans by first fit alone, without a lower bound: for many simulations of small changes.
	FirstFitOnly bool
}

// similarCost is the ratio up to which two plans cost the same; the one with fewer nodes is better. Every node has
// costs that prices do not show: daemons, IP addresses, upgrades, API load. 1 % is little against the swings of spot
// prices.
const similarCost = 1.01

// strategy is a way of sizing and filling new nodes. Every strategy leads to a correct plan.
type strategy int

const (
	// balanced sizes a node for what it can hold of the queue, and keeps CPU and memory in balance.
	balanced strategy = iota
	// bySize does the same in the order of the queue, which has large pods first.
	bySize
	// undivided is balanced without dividing pods over zones first. Few pods are better served by the zones of nodes that
	// have room for them.
	undivided
	// apartFirst is balanced, but the pods that host rules keep apart open nodes for themselves, and others fill these up:
	// see apartfirst.go.
	apartFirst
	// firstFit lets nodes grow as long as there is a type: first fit decreasing.
	firstFit
	// leastPods does the same, but a pod goes to the node with the fewest pods that can grow to hold it: worst fit
	// decreasing by number of pods, which is Karpenter's rule.
	leastPods
)

// plain reports whether the strategy sizes nodes one pod at a time, without looking ahead.
func (how strategy) plain() bool { return how == firstFit || how == leastPods }

// forAnyQueue reports whether the strategy also runs for queues of more than maxPodsForAllStrategies.
func (how strategy) forAnyQueue() bool {
	return how == balanced || how == firstFit || how == apartFirst
}

// maxPodsForAllStrategies is the number of pods up to which bySize and leastPods run too. In larger queues the partly
// filled nodes at the end are a small part of the cost, and each strategy would take as much time as the first.
const maxPodsForAllStrategies = 500

// outcome is a plan with its strategy, its full cost, and the preferences that it drops.
type outcome struct {
	Plan
	strategy           strategy
	cost               float64
	relaxedPreferences int
	// unplaceable counts the pods of Rejected that no plan can schedule, whatever happens to other pods.
	unplaceable int
	// divided is true if pods were divided over zones.
	divided bool
}

// Solve schedules the snapshot's pods: onto existing and in-flight nodes first, then onto new claims of the heaviest
// pool that can take them. It respects preferences as long as possible. Whatever the budget, every pod of the snapshot
// is in the plan exactly once.
func Solve(s *snapshot.Snapshot, budget Budget) Plan {
	groups := snapshot.ReadGroups(s)
	if len(openGroups(s, groups)) > 0 {
		return solveDomains(s, groups, budget)
	}
	return solveIn(s, groups, fixedDomains(groups), budget)
}

// solveIn is Solve with groups in domains.
func solveIn(s *snapshot.Snapshot, groups snapshot.Groups, in domains, budget Budget) Plan {
	sv := newSolver(s)
	sv.groups, sv.domains, sv.budget = groups, in, budget
	queue := sv.compile(nil)
	if sv.abandoned {
		return Plan{Abandoned: true}
	}
	if budget.Compiled != nil {
		budget.Compiled()
	}
	compiled := sv.steps
	zones := effectiveZones(queue)
	plan := sv.solveGangs(queue, budget)
	if plan.Abandoned {
		return plan
	}
	plan.Zones, plan.UnusablePools, plan.Ignored = zones, sv.pools.Unusable(sv.bestEffort), ignoredTerms(queue)
	plan.Stats.Steps += compiled
	plan.Costly = sv.costly(plan.Rejected)
	return plan
}

// ignoredTerms lists the terms of node affinity that the plan leaves out. Pods that are not considered at all are not
// listed.
func ignoredTerms(queue []*queuedPod) []IgnoredTerms {
	var out []IgnoredTerms
	for _, q := range queue {
		if k := q.class.Constraints; len(k.Invalid()) == 0 && len(k.Selection().Ignored) > 0 {
			out = append(out, IgnoredTerms{Pod: q.pod, Why: k.Selection().Ignored})
		}
	}
	slices.SortStableFunc(out, func(a, b IgnoredTerms) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return out
}

// solve plans the queue with each strategy and picks the best outcome.
//
// Invariant: firstFit is always among the strategies, so no chosen plan costs more than first fit decreasing; in small
// queues leastPods is, too. A run is given up as soon as it costs more than the best outcome so far allows.
func (sv *solver) solve(queue []*queuedPod, budget Budget) Plan {
	sv.prices.market, sv.prices.bound, sv.abandoned, sv.budget = nil, nil, false, budget
	sv.wholeGroups, sv.shares.later = map[*topology.Group]bool{}, false
	sv.topology.ResetHostFloors()
	sv.topology.ResetForesight()
	sv.keepEntangledHosts(queue)
	sv.findCrossRules(queue)
	how, steps := balanced, 0
	if budget.FirstFitOnly {
		how = firstFit
	}
	best := sv.runStrategy(queue, how, math.Inf(1), &steps)
	switch {
	case sv.abandoned:
		return Plan{Abandoned: true}
	case budget.FirstFitOnly:
		return best.Plan
	}
	if len(best.Launches) == 0 {
		return best.Plan
	}
	all := []*outcome{best}
	pods := len(queue) - best.unplaceable
	for _, how := range sv.otherStrategies(queue, best) {
		if how.plain() && sv.pricesAny() ||
			!how.forAnyQueue() && pods > maxPodsForAllStrategies || budget.LookaheadSteps > 0 && steps >= budget.LookaheadSteps {
			continue
		}
		// A plan that schedules all pods can be improved only in price. With many pods, one preference that can be met
		// is no reason for all other pods to cost more.
		most := math.Inf(1)
		if len(best.Rejected) == best.unplaceable && (best.relaxedPreferences == 0 || pods > maxPodsForAllStrategies) {
			most = best.cost * similarCost
		}
		if o := sv.runStrategy(queue, how, most, &steps); o != nil {
			all = append(all, o)
		}
		if sv.abandoned {
			return Plan{Abandoned: true}
		}
	}
	best = choose(all)
	best.Stats.Steps = steps
	return best.Plan
}

// otherStrategies are those to try after the first.
func (sv *solver) otherStrategies(queue []*queuedPod, best *outcome) []strategy {
	out := []strategy{bySize, firstFit, leastPods}
	if best.divided {
		out = []strategy{bySize, undivided, firstFit, leastPods}
	}
	if best.strategy == apartFirst {
		if len(best.Rejected) > best.unplaceable {
			out = slices.Insert(out, 0, balanced) // limits may hold more pods on larger nodes
		}
		return out
	}
	if sv.apart = sv.decisiveHostRules(queue, best); len(sv.apart) > 0 {
		out = slices.Insert(out, 0, apartFirst)
	}
	return out
}

// choose picks the outcome that schedules the most pods, then the one that drops the fewest preferences, then the
// cheapest. Of those within similarCost, it picks the one with the fewest nodes, unless that costs more than a plain one.
func choose(all []*outcome) *outcome {
	best := slices.MinFunc(all, func(a, b *outcome) int {
		return cmp.Or(cmp.Compare(len(a.Rejected), len(b.Rejected)), cmp.Compare(a.relaxedPreferences, b.relaxedPreferences),
			cmp.Compare(a.cost, b.cost), cmp.Compare(len(a.Launches), len(b.Launches)))
	})
	cheapest := best
	equal := func(o *outcome) bool {
		return len(o.Rejected) == len(cheapest.Rejected) && o.relaxedPreferences == cheapest.relaxedPreferences
	}
	limit := cheapest.cost * similarCost
	for _, o := range all {
		if o.strategy.plain() && equal(o) {
			limit = min(limit, o.cost)
		}
	}
	for _, o := range all {
		if equal(o) && o.cost <= limit*(1+1e-9) && len(o.Launches) < len(best.Launches) {
			best = o
		}
	}
	return best
}
