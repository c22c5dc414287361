package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
)

// market is what all pods of a queue are worth before anything is placed: see package price. Its zero value is not
// priced yet.
type market struct {
	whole *price.Market
	bound *price.Bound
}

// prices are what the pods of a run are worth.
type prices struct {
	// market is that of the queue, or that of its pods divided over zones.
	market *price.Market
	// lastValue is the value of the pods left at the last solve, valueLeft that of those left now, by the market of the queue.
	lastValue, valueLeft float64
	left                 []lp.Left // buffer of resolve
}

// priceQueue computes the value of each pod, while all pods are still to be placed.
//
// Cost: that of price.NewMarket.
func (r *run) priceQueue() {
	p := &r.prices
	p.market = r.newMarket(price.Problem{Free: r.before.free})
	r.market, p.lastValue = market{p.market, price.NewBound(p.market, r.before.free, &r.slots)}, p.market.Total()
	for i, c := range r.classes {
		c.boundValue, c.boundPods, c.boundIndex, c.deferred = c.Value(), c.InMarket(), i, false
	}
	if p.market.Program() != nil && len(r.pools.All()) > 1 {
		for _, c := range r.classes {
			c.deferred = p.market.DearerInHeaviestPool(c.InMarket())
		}
	}
}

// newMarket prices the classes of the run, and gives them their values. The problem has the room that there is.
func (r *run) newMarket(p price.Problem) *price.Market {
	usable := map[*podclass.Constraints]int{}
	p.Pools, p.Axes, p.Pods = r.pools, r.axes.Len(), make([]price.Pods, len(r.classes))
	for i, c := range r.classes {
		if c.unplaceable() || c.Left() == 0 {
			continue
		}
		at, known := usable[c.Constraints]
		if !known {
			at = len(p.Usable)
			usable[c.Constraints], p.Usable = at, append(p.Usable, r.candidateLists(c.Constraints))
		}
		p.Pods[i] = price.Pods{Requests: c.Requests(), Count: c.Left(), Usable: at}
	}
	m := price.NewMarket(p)
	r.sizer.Reprice(m)
	for i, c := range r.classes {
		c.Enter(m.Number(i))
		c.Appraise(m.Value(c.InMarket()))
	}
	return m
}

// resolveForStrategy prices a queue that has been priced before, at the start of another strategy.
func (r *run) resolveForStrategy() {
	all := make([]*sizing.Pods, len(r.classes))
	for i, c := range r.classes {
		all[i] = &c.Pods
	}
	r.resolve(all)
	r.prices.lastValue = r.prices.market.Total()
}

// resolveForRest prices the pods that are left, once their value is a good deal less than at the last solve: other
// resources may be scarce then. The lower bound is not changed.
func (r *run) resolveForRest() {
	p := &r.prices
	if program := p.market.Program(); program == nil || p.valueLeft > p.lastValue*program.ResolveBelow() {
		return
	}
	p.lastValue = p.valueLeft
	r.resolve(r.sizer.Waiting())
}

// resolve solves the program for the pods that are left of the classes, and gives these their new values.
func (r *run) resolve(classes []*sizing.Pods) {
	p := &r.prices
	if p.market.Program() == nil {
		return
	}
	p.left = p.left[:0]
	for _, c := range classes {
		if c.InMarket() >= 0 {
			p.left = append(p.left, lp.Left{Pods: c.InMarket(), Count: c.Left()})
		}
	}
	p.market.Program().Resolve(p.left)
	r.sizer.Reprice(p.market)
	for i, c := range classes {
		if i > 0 && c.Packing() == classes[i-1].Packing() && classes[i-1].InMarket() >= 0 {
			c.Appraise(classes[i-1].Value())
		} else {
			c.Appraise(p.market.Value(c.InMarket()))
		}
	}
}

// candidateLists lists, per template, the candidates that any relaxation level and volume alternative of the class
// leaves.
func (sv *solver) candidateLists(k *podclass.Constraints) []*nodepool.Candidates {
	var out []*nodepool.Candidates
	for _, t := range sv.pools.All() {
		for _, level := range k.Levels() {
			if level.Blocked().Has(t.Index()) {
				continue
			}
			for _, alt := range k.Volumes() {
				if l := sv.pools.Admit(t, level.InternedStrict(), alt); l != nil && !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// lowerBound is less than or equal to the cost of any plan that schedules the same pods as this one. Where the plan costs more than the
// bound of prices, whole nodes raise it. Where it then still costs more than similarCost above it, rules of topology do. Otherwise it is
// good enough.
func (r *run) lowerBound(p *Plan) float64 {
	if r.market.bound == nil {
		return 0
	}
	plan := r.valuedPlan()
	bound, cost := r.market.bound.Of(plan), p.Stats.HourlyCost+p.Stats.NodeCost
	rules := slices.ContainsFunc(r.topology.Groups(), price.Rules)
	if cost <= bound*(1+nearlyEqual) || len(p.Launches) > price.WholeNodes && (!rules || cost <= bound*similarCost) {
		return bound
	}
	ruled := &price.RuledPlan{
		Plan: plan, Cost: cost, Nodes: len(p.Launches), Scheduled: r.scheduledPods(), Existing: r.existingNodes(),
		Nominated: r.nodes.AnyNominated(),
	}
	bound = r.market.bound.Integer(ruled, bound)
	if !rules || cost <= bound*similarCost {
		return bound
	}
	return r.market.bound.WithRules(ruled, bound, similarCost)
}

// valuedPlan is the plan of the run as the bound sees it.
func (r *run) valuedPlan() price.Plan {
	out := price.Plan{Dearest: -1}
	var dearest *class
	for _, c := range r.classes {
		out.Value += c.boundValue * float64(c.onExisting)
	}
	for _, b := range r.bins.All() {
		for of, n := range b.Contents() {
			c := r.classOf(of)
			out.Value += c.boundValue * float64(n)
			if dearest == nil || c.boundValue > dearest.boundValue {
				dearest = c
			}
		}
	}
	if dearest != nil && r.before.nodes == 0 {
		out.Dearest = dearest.boundIndex
	}
	return out
}

// scheduledPods are the pods of this run on existing nodes and in bins, by class. Classes that are divided over zones
// count as a whole, as in the bound.
func (r *run) scheduledPods() []price.Scheduled {
	counts := make(map[*class]int, len(r.classes))
	for _, c := range r.classes {
		counts[c.undivided()] += c.onExisting
	}
	for _, b := range r.bins.All() {
		for of, n := range b.Contents() {
			counts[r.classOf(of).undivided()] += n
		}
	}
	out := make([]price.Scheduled, 0, len(r.classes))
	for _, c := range r.classes {
		if n := counts[c]; n > 0 && c.whole == nil {
			out = append(out, price.Scheduled{
				Pods: c.boundIndex, Count: n, Requests: c.Requests(), Value: c.boundValue,
				Views: c.Views(c.Levels()[len(c.Levels())-1]), Matches: c.Matches(),
			})
		}
	}
	return out
}

// undivided is the class that the class is a part of, or itself.
func (c *class) undivided() *class {
	if c.whole != nil {
		return c.whole
	}
	return c
}

// existingNodes are the nodes that took pods in this run, as they were before.
func (r *run) existingNodes() []price.Node {
	var out []price.Node
	for _, n := range r.nodes.All() {
		if n.TakesPods() && n.Exists() {
			out = append(out, price.Node{Node: n.Topology(), Free: n.FreeBefore()})
		}
	}
	return out
}
