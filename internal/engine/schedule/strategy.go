package schedule

import (
	"cmp"
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Budget bounds the work of a Solve, in steps, so that the result does not depend on the machine. One step is one look: at an
// instance type, at a node or bin for a pod, or at one topology rule there. When the budget is spent the plan is finished without
// looking ahead: it is as correct as ever, but may cost more.
type Budget struct {
	// Steps is the bound; zero means that there is none.
	Steps int
	// Most is where planning ends, whatever is left: pods that have no place by then are rejected with code BudgetSpent. Pods that have
	// very many terms come last, and each kind of them has a share of it. Zero means that there is no such bound.
	Most int
	// Stop is called now and then; once it returns true, the plan is abandoned: see Plan.Abandoned. Nil never does.
	Stop func() bool
	// Plain makes a plan by first fit alone, with no lower bound: for many questions about small changes.
	Plain bool
}

// similarCost is the ratio up to which plans cost the same; the one with fewer nodes is better.
const similarCost = 1.01

// strategy is a way of sizing and filling new nodes. Each leads to a correct plan.
type strategy int

const (
	// balanced sizes a node for what it can hold of the queue, keeping cores and memory in balance.
	balanced strategy = iota
	// bySize does the same in the order of the queue, which has large pods first.
	bySize
	// firstFit lets nodes grow as long as there is a type: first fit decreasing.
	firstFit
)

// maxPodsForAllStrategies is how many pods are worth more than one strategy: with more of them, what is left over at the end no longer decides.
const maxPodsForAllStrategies = 500

// outcome is a plan with how it came about, what it costs with all that is paid per node, and what it asks of pods.
type outcome struct {
	Plan
	strategy           strategy
	cost               float64
	relaxedPreferences int
	// hopeless counts the pods of Rejected that no plan has a place for, whatever becomes of others.
	unplaceable int
}

// Solve places the snapshot's pods: on nodes that exist or are on their way first, then into new claims of the
// heaviest pool that can take them. Soft constraints are respected as long as they can be. Whatever the
// budget, every pod of the snapshot is in the plan exactly once.
func Solve(s *snapshot.Snapshot, budget Budget) Plan {
	sv := newSolver(s)
	sv.budget = budget
	queue := sv.compile(nil)
	if sv.abandoned {
		return Plan{Abandoned: true}
	}
	compiled := sv.steps
	zones := effectiveZones(queue)
	plan := sv.solve(queue, budget)
	if plan.Abandoned {
		return plan
	}
	plan.Zones, plan.Barren, plan.Ignored = zones, sv.unusablePools(), ignoredTerms(queue)
	plan.Stats.Steps += compiled
	return plan
}

// ignoredTerms lists what of the pods' node affinity is left out, but for pods that are not considered at all.
func ignoredTerms(queue []*queuedPod) []IgnoredTerms {
	var out []IgnoredTerms
	for _, q := range queue {
		if k := q.class.constraintClass; len(k.invalid) == 0 && len(k.node.Ignored) > 0 {
			out = append(out, IgnoredTerms{q.pod, k.node.Ignored})
		}
	}
	slices.SortStableFunc(out, func(a, b IgnoredTerms) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return out
}

// solve makes plans for the queue and chooses. First fit is always among them, so nothing dearer is chosen; it is
// given up as soon as it has cost more than could be.
func (sv *solver) solve(queue []*queuedPod, budget Budget) Plan {
	sv.lp, sv.abandoned = nil, false
	how := balanced
	if budget.Plain {
		how = firstFit
	}
	best := sv.runStrategy(queue, budget, how, math.Inf(1))
	switch {
	case sv.abandoned:
		return Plan{Abandoned: true}
	case budget.Plain:
		return best.Plan
	}
	steps := best.Stats.Steps
	if len(best.Launches) == 0 {
		return best.Plan
	}
	all := []*outcome{best}
	pods := len(queue) - best.unplaceable
	for _, how := range []strategy{bySize, firstFit} {
		if how == bySize && pods > maxPodsForAllStrategies || budget.Steps > 0 && steps >= budget.Steps {
			continue
		}
		// What places all pods can be bettered only in price. With many pods, one that gets its wish is no reason
		// for all others to cost more.
		most := math.Inf(1)
		if len(best.Rejected) == best.unplaceable && (best.relaxedPreferences == 0 || pods > maxPodsForAllStrategies) {
			most = best.cost * similarCost
		}
		if o := sv.runStrategy(queue, budget, how, most); o != nil {
			steps += o.Stats.Steps
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

// choose takes the outcome that places most pods and gives up fewest of their preferences; of those the cheapest, or one of
// about that price that has fewer nodes, but none that is dearer than first fit.
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
		if o.strategy == firstFit && equal(o) {
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

// priced is what a node of an offering costs the plan.
func (sv *solver) nodePrice(price float64) float64 { return price + sv.s.Settings.NodeCost }
