package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// maxPinnedGroups and maxPinnedDomains bound how many plans solvePinned makes.
const (
	maxPinnedGroups  = 2
	maxPinnedDomains = 8
)

// solvePinned improves a plan that leaves pods over which must be with others of their own set, while the first of the
// set may still choose its domain. The first pod alone takes the cheapest domain, and the limits of a pool there may
// not hold the others. So it tries each domain for the whole set, and keeps the plan that schedules the most pods.
//
// Cost: one solve per domain, only for such plans.
func (sv *solver) solvePinned(a attempt, plan Plan) Plan {
	budget, taken := &a.budget, plan.Stats.Steps
	for _, g := range sv.splitSets(a.queue, &plan) {
		best := ""
		for _, d := range g.Universe()[:min(len(g.Universe()), maxPinnedDomains)] {
			if budget.LookaheadSteps > 0 && taken >= budget.LookaheadSteps || budget.MaxSteps > 0 && taken >= budget.MaxSteps {
				break
			}
			g.Pin(d)
			again := newPortfolio(sv, a).plan()
			if taken += again.Stats.Steps; again.Abandoned {
				g.Pin("")
				return again
			}
			if byPrice(&again).fewer(byPrice(&plan)) {
				plan, best = again, d
			}
		}
		g.Pin(best)
		defer g.Pin("")
	}
	plan.Stats.Steps = taken
	return plan
}

// splitSets are the sets of pods, as groups, that may choose their domain, and of which the plan schedules some and
// leaves others.
func (sv *solver) splitSets(queue []*queuedPod, plan *Plan) []*topology.Group {
	rejected := make(map[*corev1.Pod]bool, len(plan.Rejected))
	for i := range plan.Rejected {
		rejected[plan.Rejected[i].Pod] = true
	}
	placed, left := map[*topology.Group]bool{}, []*topology.Group(nil)
	seen := map[*class]bool{}
	for _, q := range queue {
		c := q.class
		if len(c.Invalid()) > 0 || c.unplaceable() {
			continue
		}
		if !rejected[q.pod] {
			for _, g := range c.Matches() {
				placed[g] = true
			}
			continue
		}
		if seen[c] {
			continue
		}
		seen[c] = true
		for _, v := range c.Views(c.Levels()[len(c.Levels())-1]) {
			if v.Self() && v.Group().ChoosesDomain() && !slices.Contains(left, v.Group()) {
				left = append(left, v.Group())
			}
		}
	}
	left = slices.DeleteFunc(left, func(g *topology.Group) bool { return !placed[g] })
	return left[:min(len(left), maxPinnedGroups)]
}
