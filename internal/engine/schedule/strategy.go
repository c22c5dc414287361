package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Budget bounds the work of a Solve, in steps, so that the result does not depend on the machine. One step is
// one instance type looked at. When the budget is spent the plan is finished without looking ahead: it
// is as correct as ever, but may cost more.
type Budget struct {
	// Steps is the bound; zero means that there is none.
	Steps int
}

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

// fewPods is how many pods are worth more than one strategy: with more of them, what is left over at the end no longer decides.
const fewPods = 500

// outcome is a plan with what it asks of pods.
type outcome struct {
	Plan
	conceded int
}

// Solve places the snapshot's pods: on nodes that exist or are on their way first, then into new claims of the
// heaviest pool that can take them. Soft constraints are respected as long as they can be. Whatever the
// budget, every pod of the snapshot is in the plan exactly once.
func Solve(s *snapshot.Snapshot, budget Budget) Plan {
	best := run(s, budget, balanced)
	steps := best.Stats.Steps
	if len(best.Launches) == 0 || len(s.Pods) > fewPods || budget.Steps > 0 && steps >= budget.Steps {
		return best.Plan
	}
	all := []*outcome{best}
	for _, how := range []strategy{bySize, firstFit} {
		o := run(s, budget, how)
		steps += o.Stats.Steps
		all = append(all, o)
	}
	best = choose(all)
	best.Stats.Steps = steps
	return best.Plan
}

// choose takes the outcome that places most pods and gives up fewest of their preferences; of those the cheapest, or one of
// at most 1 % more that has fewer nodes. The last outcome is first fit, which nothing that is chosen may exceed.
func choose(all []*outcome) *outcome {
	best := slices.MinFunc(all, func(a, b *outcome) int {
		switch {
		case len(a.Rejected) != len(b.Rejected):
			return len(a.Rejected) - len(b.Rejected)
		case a.conceded != b.conceded:
			return a.conceded - b.conceded
		case a.Stats.HourlyCost < b.Stats.HourlyCost:
			return -1
		case a.Stats.HourlyCost > b.Stats.HourlyCost:
			return 1
		}
		return len(a.Launches) - len(b.Launches)
	})
	cheapest := best
	limit := min(cheapest.Stats.HourlyCost*1.01, max(cheapest.Stats.HourlyCost, all[len(all)-1].Stats.HourlyCost))
	for _, o := range all {
		if len(o.Rejected) == len(cheapest.Rejected) && o.conceded == cheapest.conceded &&
			o.Stats.HourlyCost <= limit*(1+1e-9) && len(o.Launches) < len(best.Launches) {
			best = o
		}
	}
	return best
}

// priced is what a node of an offering costs the plan.
func (sv *solver) priced(price float64) float64 { return price }
