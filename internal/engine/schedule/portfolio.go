package schedule

import (
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// outcome is the plan of a run.
type outcome struct {
	Plan
	merit
	how strategy
	// unplaceable counts the pods of Rejected that no plan can schedule, whatever happens to other pods.
	unplaceable int
	// divided is true if pods were divided over zones.
	divided bool
}

// unbeatable reports whether no other strategy has a better plan. Strategies differ only in new nodes: without launches there is nothing to
// improve. Nor is there with one launch, at the price that any plan of these pods has at least: most plans of few pods are of this kind.
func (o *outcome) unbeatable() bool {
	switch len(o.Launches) {
	case 0:
		return true
	case 1:
		return o.rejected == o.unplaceable && o.dropped == 0 && o.cost <= o.Stats.LowerBound*(1+nearlyEqual)
	}
	return false
}

// portfolio is the attempts to plan a queue in one order, and what has come of them.
type portfolio struct {
	sv *solver
	// current is the attempt in progress, and others are the strategies after it. It is due at first, and again if its run
	// has found out what it must not count on.
	current attempt
	due     bool
	others  []strategy
	apart   map[*topology.Group]bool // for apartFirst
	// first is the outcome of the first strategy, and all are the outcomes if there can be several.
	first *outcome
	all   []*outcome
	steps int
}

// newPortfolio is the attempts to plan a queue with each strategy, which the attempt leaves open. It forgets what plans of
// other queues have found out.
func newPortfolio(sv *solver, a attempt) *portfolio {
	sv.market, sv.abandoned = market{}, false
	sv.topology.ResetHostFloors()
	sv.topology.ResetForesight()
	sv.placeFirst()
	sv.keepEntangledHosts(a.queue)
	sv.findCrossRules(a.queue)
	a.how, a.ceiling = firstFit, math.Inf(1)
	if !a.budget.FirstFitOnly {
		a.how, a.whole = balanced, map[*topology.Group]bool{}
	}
	return &portfolio{sv: sv, current: a, due: true}
}

// plan runs all attempts and picks the best outcome.
//
// Invariant: firstFit is always among the strategies, so no chosen plan costs more than first fit decreasing; in small
// queues leastPods is, too. A run is given up as soon as it costs more than the best outcome so far allows.
func (p *portfolio) plan() Plan {
	for a, more := p.next(); more; a, more = p.next() {
		r := p.sv.begin(a)
		o, again := r.plan()
		p.steps += r.steps + r.shares.beside
		r.undo()
		p.add(r, o, again)
	}
	return p.best()
}

// next is the next attempt, until nothing is left to try.
func (p *portfolio) next() (a attempt, more bool) {
	switch {
	case p.sv.abandoned: // a run that was cut short shows nothing about its strategy
		return a, false
	case p.due:
		return p.current, true
	}
	for len(p.others) > 0 {
		how := p.others[0]
		if p.others = p.others[1:]; p.worthwhile(how) {
			p.sv.placeFirst() // no other strategy need bring pods to the same existing nodes
			p.current.how, p.current.ceiling, p.current.apart, p.current.countForeign = how, p.ceiling(), p.apart, false
			return p.current, true
		}
	}
	return a, false
}

// add takes the outcome of the current attempt, which is nil if the run was given up or is to be repeated. A run that
// leaves divided pods over is repeated without dividing them, at most twice, and one in which nodes for other pods
// intrude, or that makes domains beside which nominated pods are too many, once. One that counts on more pods on each host
// than new nodes have is repeated at most three times for each such spread, and one to which nodes bring too many pods of
// DaemonSets at most four times.
func (p *portfolio) add(r *run, o *outcome, again bool) {
	p.due = again
	// What a run has found out about zones goes to all attempts after it, which need not be repeated for it.
	p.current.whole, p.current.countForeign, p.current.later = r.whole, r.countForeign, true
	p.current.besideNominated = r.besideNominated
	if o == nil {
		return
	}
	if p.first == nil {
		p.first = o
		if p.current.how.plain() || o.unbeatable() {
			return
		}
		p.others, p.apart = p.sv.otherStrategies(p.current.queue, o)
	}
	p.all = append(p.all, o)
}

// worthwhile reports whether a strategy is to be tried after the first.
func (p *portfolio) worthwhile(how strategy) bool {
	budget := &p.current.budget
	return !(how.plain() && p.current.mode == preferencesPriced) && // the plans of the other modes have these
		(how.forAnyQueue() || p.placeable() <= maxPodsForAllStrategies) &&
		(budget.LookaheadSteps == 0 || p.steps < budget.LookaheadSteps)
}

// placeable is how many pods of the queue some plan may schedule.
func (p *portfolio) placeable() int { return len(p.current.queue) - p.first.unplaceable }

// ceiling is the price above which a later attempt is given up. A plan that schedules all pods can be improved only in
// price. With many pods, one preference that can be met is no reason for all other pods to cost more.
func (p *portfolio) ceiling() float64 {
	if p.first.rejected == p.first.unplaceable && (p.first.dropped == 0 || p.placeable() > maxPodsForAllStrategies) {
		return p.first.cost * similarCost
	}
	return math.Inf(1)
}

// otherStrategies are those to try after the first, and the host rules by which apartFirst keeps pods apart.
func (sv *solver) otherStrategies(queue []*queuedPod, best *outcome) (out []strategy, apart map[*topology.Group]bool) {
	out = []strategy{bySize, firstFit, leastPods}
	if best.divided {
		out = []strategy{bySize, undivided, firstFit, leastPods}
	}
	if best.how == apartFirst {
		if best.rejected > best.unplaceable {
			out = slices.Insert(out, 0, balanced) // limits may hold more pods on larger nodes
		}
		return out, nil
	}
	if apart = sv.decisiveHostRules(queue, best); len(apart) > 0 {
		out = slices.Insert(out, 0, apartFirst)
	}
	return out, apart
}

// best is the plan of the best outcome, with the steps of all attempts if there could be several.
func (p *portfolio) best() Plan {
	switch {
	case p.sv.abandoned:
		return Plan{Abandoned: true}
	case len(p.all) == 0:
		return p.first.Plan
	}
	best := choose(p.all)
	best.Stats.Steps = p.steps
	return best.Plan
}

// choose picks the outcome that schedules the most pods, then the one that drops the fewest preferences, then the
// cheapest. Of those within similarCost, it picks the one with the fewest nodes, unless that costs more than a plain one.
func choose(all []*outcome) *outcome {
	best := slices.MinFunc(all, func(a, b *outcome) int { return a.compare(b.merit) })
	cheapest := best
	// Fewer nodes are no reason to cost more than first fit decreasing: see plan.
	limit := cheapest.cost * similarCost
	for _, o := range all {
		if o.plain && o.placesLike(cheapest.merit) {
			limit = min(limit, o.cost)
		}
	}
	for _, o := range all {
		if o.placesLike(cheapest.merit) && o.cost <= limit*(1+nearlyEqual) && o.nodes < best.nodes {
			best = o
		}
	}
	return best
}
