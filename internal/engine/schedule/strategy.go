package schedule

import (
	"cmp"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
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
	// Unexplained leaves out why pods are rejected, for simulations of which only the placements count.
	Unexplained bool
}

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

// keepsBalance reports whether the strategy chooses by both CPU and memory what fills a node.
func (how strategy) keepsBalance() bool {
	return how == balanced || how == undivided || how == apartFirst
}

// forAnyQueue reports whether the strategy also runs for queues of more than maxPodsForAllStrategies.
func (how strategy) forAnyQueue() bool {
	return how == balanced || how == firstFit || how == apartFirst
}

// maxPodsForAllStrategies is the number of pods up to which bySize and leastPods run too. In larger queues the partly
// filled nodes at the end are a small part of the cost, and each strategy would take as much time as the first.
const maxPodsForAllStrategies = 500

// Solve schedules the snapshot's pods: onto existing and in-flight nodes first, then onto new claims of the heaviest
// pool that can take them. It respects preferences as long as possible. Whatever the budget, every pod of the snapshot
// is in the plan exactly once.
func Solve(s *snapshot.Snapshot, budget Budget) Plan {
	groups := snapshot.ReadGroups(s)
	plan := solveGroups(s, groups, budget)
	if plan.Abandoned {
		return plan
	}
	return inOrder(s, groups, plan, func(s *snapshot.Snapshot) Plan { return solveGroups(s, groups, budget) })
}

// solveGroups is Solve, whatever the order in which kube-scheduler takes the pods of a group.
func solveGroups(s *snapshot.Snapshot, groups snapshot.Groups, budget Budget) Plan {
	if len(openGroups(s, groups)) > 0 {
		return solveDomains(s, groups, budget)
	}
	return solveIn(s, groups, fixedDomains(groups), budget)
}

// solveIn is Solve with groups in domains.
func solveIn(s *snapshot.Snapshot, groups snapshot.Groups, in domains, budget Budget) Plan {
	sv := newSolver(s)
	sv.podGroups, sv.stop = podGroups{groups, in}, budget.Stop
	queue := sv.compile(nil)
	if sv.abandoned { // constraints of some classes are not compiled: nothing can be planned
		return Plan{Abandoned: true}
	}
	if budget.Compiled != nil {
		budget.Compiled()
	}
	compiled := sv.steps
	zones := effectiveZones(queue)
	plan := sv.solveQueue(queue, budget)
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
