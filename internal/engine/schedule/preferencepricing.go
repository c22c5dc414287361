package schedule

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// preferenceMode is what a run does about preferences.
type preferenceMode int

const (
	// preferencesRespected keeps them as long as anything satisfies them.
	preferencesRespected preferenceMode = iota
	// preferencesIgnored drops them all.
	preferencesIgnored
	// preferencesPriced keeps those that cost little: see placePriced.
	preferencesPriced
)

// pricing is the state of the policy Priced. Under the other policies the solver has none.
//
// A queue with preferences is planned in all three modes, and the plan with the least objective is chosen: its price, and
// the share of the own price of each pod that keeps none of its preferences. The plan that weighs preferences counts only
// if it costs no more than the one that respects all. So:
//
//   - The plan costs no more than the one that respects preferences, and no more than the one that ignores them, plus the
//     share of the own prices of the pods that keep some.
//   - It leaves as few pods as the plan of the other two that leaves fewer.
//   - No preference that is kept costs more than the share of the pod's own price.
type pricing struct {
	// share is the most that the preferences of a pod may cost, as a share of its own price.
	share float64
	// ownPrices are own prices without a linear program, in $/h.
	ownPrices map[*class]float64

	// expected is the relaxation level at which the last pod of a class was placed that needed a new node, in this run or
	// the one before: nodes are sized for pods that are likely to come.
	expected map[*class]int
}

// fillScope is which pods of the queue a new node may be filled with.
type fillScope int

const (
	fillWithAll fillScope = iota
	// fillBare drops all preferences of the queue.
	fillBare
	// fillPreferring leaves pods without preferences out, which need not pay for those of others.
	fillPreferring
)

// newPricing is nil unless the policy is Priced.
func newPricing(s snapshot.Settings) *pricing {
	if s.PreferencePolicy != snapshot.PreferencesPriced {
		return nil
	}
	return &pricing{share: max(0, s.PreferenceCost), ownPrices: map[*class]float64{}, expected: map[*class]int{}}
}

// leastKept is the first relaxation level of the class that counts when pods are divided over zones.
func (r *run) leastKept(k *podclass.Constraints) int {
	if r.mode == preferencesRespected {
		return 0
	}
	return k.Bare()
}

// meritOf is the merit of the run's plan: in mode preferencesPriced by its objective, in mode preferencesIgnored by price.
func (r *run) meritOf(p *Plan) merit {
	m := byPrice(p)
	switch r.mode {
	case preferencesRespected:
		m.dropped = r.relaxed
	case preferencesPriced:
		m = byObjective(p)
	}
	m.plain = r.how.plain()
	return m
}

// leastLevel is the first relaxation level at which pods of the class are placed, or planned with others.
func (r *run) leastLevel(c *class) int {
	switch {
	case r.mode == preferencesRespected:
		return 0
	case r.mode == preferencesIgnored || r.weighing.scope == fillBare:
		return c.Bare()
	case c.Packing() == r.weighing.first:
		return r.weighing.level
	}
	return r.pricing.expected[c]
}

// weighs reports whether the pods of the class have preferences that are weighed against their price. Pods with very many
// terms are placed without theirs, as all are once the lookahead budget is spent.
func (r *run) weighs(c *class) bool {
	return r.mode == preferencesPriced && c.Prefers()
}

// scoped runs something with a scope of filling new nodes that are sized for pods of the class at a level.
func (r *run) scoped(scope fillScope, c *class, level int, run func()) {
	w := &r.weighing
	swap := scope == fillBare
	if swap {
		r.sizer.Alternate()
	}
	w.scope, w.first, w.level = scope, c.Packing(), level
	run()
	w.scope, w.first, w.level = fillWithAll, nil, 0
	if swap {
		r.sizer.Alternate()
	}
}

// ownPrice is what a pod of the class costs without preferences, in $/h: its value at the prices of the lower bound.
// Without a linear program it is the pod's share of the type that costs the least for it.
func (r *run) ownPrice(c *class) float64 {
	if !r.budget.FirstFitOnly {
		return c.boundValue
	}
	if own, known := r.pricing.ownPrices[c]; known {
		return own
	}
	own := 0.0
	for _, l := range r.candidateLists(c.Constraints) {
		for _, cand := range l.List() {
			room := l.TypeOf(cand).Room()
			if !c.Requests().Within(room) {
				continue
			}
			if cost := cand.Price * shareOf(c.Requests(), room); own == 0 || cost < own {
				own = cost
			}
		}
	}
	r.pricing.ownPrices[c] = own
	return own
}

// shareOf is the largest share of the room that the requests, which fit, take on any axis.
func shareOf(requests, room resources.Vec) float64 {
	most := 0.0
	for i, r := range requests {
		if r > 0 {
			most = max(most, float64(r)/float64(room[i]))
		}
	}
	return most
}

// droppedWorth is the share of the own prices of the pods of this run that keep none of their preferences, in $/h.
func (r *run) droppedWorth() float64 {
	p := r.pricing
	if p == nil || r.budget.FirstFitOnly {
		return 0
	}
	total := 0.0
	for _, c := range r.classes {
		if !c.undivided().Prefers() {
			continue
		}
		for i := range c.attempts {
			if c.Levels()[i].Preferences() == 0 {
				total += p.share * r.ownPrice(c) * float64(c.attempts[i].placed)
			}
		}
	}
	return total
}

// solveWithPolicy plans the queue, and tries again what another order may place; under the policy Priced it does so in each
// mode. Plans by first fit alone only weigh preferences.
func (sv *solver) solveWithPolicy(queue []*queuedPod, budget Budget) Plan {
	a := attempt{queue: queue, budget: budget}
	switch {
	case sv.pricing == nil:
	case budget.FirstFitOnly:
		a.mode = preferencesPriced
	default:
		clear(sv.pricing.expected)
	}
	plan := sv.retry(a, newPortfolio(sv, a).plan())
	if sv.pricing == nil || budget.FirstFitOnly || plan.Abandoned || !anyPrefers(queue) {
		return plan
	}
	return sv.solveWithPrices(a, plan)
}

// solveWithPrices plans the queue in the other modes than the one that respects preferences, and chooses: see pricing.
func (sv *solver) solveWithPrices(a attempt, respecting Plan) Plan {
	a.mode = preferencesIgnored
	ignoring := sv.retry(a, newPortfolio(sv, a).plan())
	if ignoring.Abandoned {
		return ignoring
	}
	spent := respecting.Stats.Steps + ignoring.Stats.Steps
	all := []*Plan{&respecting, &ignoring}
	if a.budget.LookaheadSteps == 0 || spent < a.budget.LookaheadSteps {
		a.mode = preferencesPriced
		weighing := sv.retry(a, newPortfolio(sv, a).plan())
		if weighing.Abandoned {
			return weighing
		}
		spent += weighing.Stats.Steps
		ignoring.Preferences = ignoredAfter(ignoring.Preferences, weighing.Preferences)
		if byPrice(&weighing).noWorse(byPrice(&respecting)) {
			all = []*Plan{&respecting, &weighing, &ignoring}
		}
	}
	best := all[0]
	for _, other := range all[1:] {
		if byObjective(other).better(byObjective(best)) {
			best = other
		}
	}
	best.Stats.Steps = spent
	if len(best.Rejected) == len(ignoring.Rejected) {
		best.LimitKeptCosts(max(0, best.Cost()-ignoring.Cost()))
	}
	return *best
}

// anyPrefers reports whether any pod prefers anything.
func anyPrefers(queue []*queuedPod) bool {
	for _, q := range queue {
		if c := q.class; c.Prefers() {
			return true
		}
	}
	return false
}
