package schedule

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/orders"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Retries in other orders: see package orders. No plan places fewer pods than without retries, and a plan without rejected
// pods costs no step more.

// retry improves a plan of an attempt's queue that leaves pods which another domain, or another order of the queue, may
// place.
func (sv *solver) retry(a attempt, plan Plan) Plan {
	if plan.Abandoned || a.budget.FirstFitOnly || len(plan.Rejected) == 0 {
		return plan
	}
	plan = sv.solvePinned(a, plan)
	if plan.Abandoned || len(plan.Rejected) == 0 || a.budget.MaxSteps > 0 && plan.Stats.Steps >= a.budget.MaxSteps {
		return plan
	}
	o := newOrderSearch(sv, a, &plan)
	if o == nil {
		return plan
	}
	found := orders.Search(o.problem(), plan.Stats.Steps)
	o.steps += found.Steps
	for _, item := range found.Best {
		o.best = append(o.best, o.pods[item])
	}
	o.left = found.Left
	if sv.abandoned {
		return Plan{Abandoned: true}
	}
	taken := o.steps + plan.Stats.Steps
	if o.best != nil {
		for _, again := range o.plans(taken) {
			taken += again.Stats.Steps
			if again.Abandoned {
				return again
			}
			if byPrice(&again).fewer(byPrice(&plan)) {
				plan = again
			}
		}
	}
	plan.Stats.Steps = taken
	return plan
}

// orderSearch looks for an order of the queue in which first fit leaves fewer pods.
type orderSearch struct {
	sv *solver
	// attempt is what the plan was made by.
	attempt attempt
	// pods are those of the queue that some order may place, in queue order; hopeless are the others.
	pods, hopeless []*queuedPod
	// rejected are those of the pods that have no node in the plan.
	rejected map[*queuedPod]bool
	// best is the best order, nil if none is better than the plan's; left is how many of the pods it leaves.
	best []*queuedPod
	left int
	// steps are those that the search has taken.
	steps int
}

// newOrderSearch is nil if no order can place any of the rejected pods.
func newOrderSearch(sv *solver, a attempt, plan *Plan) *orderSearch {
	waiting := make(map[*corev1.Pod]bool, len(plan.Rejected))
	for i := range plan.Rejected {
		waiting[plan.Rejected[i].Pod] = true
	}
	o := &orderSearch{sv: sv, attempt: a, rejected: map[*queuedPod]bool{}}
	alone := map[*class]bool{}
	for _, q := range a.queue {
		if !waiting[q.pod] {
			o.pods = append(o.pods, q)
			continue
		}
		possible, known := alone[q.class]
		if !known {
			possible = o.possible(q)
			alone[q.class] = possible
		}
		if !possible {
			o.hopeless = append(o.hopeless, q)
			continue
		}
		o.pods = append(o.pods, q)
		o.rejected[q] = true
	}
	if len(o.rejected) == 0 {
		return nil
	}
	return o
}

// possible reports whether some order may place the pod: it fits alone, or depends on other pods. Pods with very many terms
// have taken their share of the steps: they are not tried in other orders.
func (o *orderSearch) possible(q *queuedPod) bool {
	c := q.class
	if len(c.Invalid()) > 0 || c.unplaceable() || c.ManyTerms() && o.attempt.budget.MaxSteps > 0 {
		return false
	}
	last := c.Levels()[len(c.Levels())-1]
	return slices.ContainsFunc(last.Groups(), func(g *topology.Group) bool { return g.NeedsDomain() }) ||
		len(o.try([]*queuedPod{q}, math.MaxInt)) == 0
}

// problem is the search for another order.
func (o *orderSearch) problem() orders.Problem {
	p := orders.Problem{
		Classes: make([]int, len(o.pods)), Left: make([]bool, len(o.pods)),
		Choices:  func(item int) int { return len(o.sv.candidateLists(o.pods[item].class.Constraints)) },
		Required: func(item int) bool { return o.pods[item].class.isRequired() },
		Stopped:  func() bool { return o.sv.abandoned },
	}
	classes, place := map[*class]int{}, make(map[*queuedPod]int, len(o.pods))
	for i, q := range o.pods {
		number, known := classes[q.class]
		if !known {
			number = len(classes)
			classes[q.class] = number
		}
		p.Classes[i], p.Left[i], place[q] = number, o.rejected[q], i
	}
	order := make([]*queuedPod, len(o.pods))
	p.Try = func(items []int, most int) (left []int, steps int) {
		for i, item := range items {
			order[i] = o.pods[item]
		}
		before := o.steps
		for _, q := range o.try(order, most) {
			left = append(left, place[q])
		}
		steps, o.steps = o.steps-before, before
		return left, steps
	}
	return p
}

// try plans the pods in an order by first fit, within so many steps, and returns those that are left.
func (o *orderSearch) try(order []*queuedPod, most int) (left []*queuedPod) {
	a := attempt{
		queue: order, mode: o.attempt.mode, how: firstFit, ceiling: math.Inf(1), later: true,
		budget: Budget{MaxSteps: most, Stop: o.attempt.budget.Stop, FirstFitOnly: true},
	}
	for {
		r := o.sv.begin(a)
		left, repeat := r.leave()
		o.steps += r.steps
		r.undo()
		if !repeat {
			return left
		}
		a.countForeign = true
	}
}

// leave places the pods and returns those that are left, without the reasons. If nodes for other pods intrude, it is to be
// repeated.
func (r *run) leave() (left []*queuedPod, repeat bool) {
	for _, q := range r.queue {
		q.placed = false
	}
	rest, _ := r.splitUnplaceable(r.applyNominations(r.start()))
	r.placeAll(rest)
	repeat = r.intrusions()
	for _, q := range r.queue {
		if !q.placed {
			left = append(left, q)
		}
	}
	return left, repeat
}

// isRequired reports whether other pods follow the pods of the class: they have affinity to them.
func (c *class) isRequired() bool {
	return slices.ContainsFunc(c.Matches(), func(g *topology.Group) bool { return g.Type() == topology.Affinity })
}

// plans are plans of the whole queue in the best order: by all strategies, and by first fit where that leaves fewer, or
// where the lookahead budget is spent.
func (o *orderSearch) plans(spent int) (out []Plan) {
	a := o.attempt
	a.queue = slices.Concat(o.best, o.hopeless)
	if a.budget.LookaheadSteps == 0 || spent < a.budget.LookaheadSteps {
		plan := newPortfolio(o.sv, a).plan()
		if out = append(out, plan); plan.Abandoned || len(plan.Rejected) <= o.left+len(o.hopeless) {
			return out
		}
	}
	// The lower bound needs the values of the pods that are in the queue in this order: who uses a claim for one pod
	// depends on it.
	o.sv.market = market{}
	a.how, a.ceiling, a.later = firstFit, math.Inf(1), true
	p := portfolio{sv: o.sv, current: a, due: true}
	return append(out, p.plan())
}
