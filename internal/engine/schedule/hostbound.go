package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// hostRule is a required rule over hostnames with the pods that it keeps apart from each other: topology spread with
// DoNotSchedule, or anti-affinity. Its pods declare the rule and are counted by it.
//
// Invariant: no node of any plan holds more than most of these pods. When the last of them came to its node, its own
// rule counted all others there. The rule leaves out no node that they can run on: a filter of a spread excludes only
// nodes that its pods do not select or do not tolerate.
type hostRule struct {
	g       *topology.Group
	most    int // of the pods on one node
	classes []hostClass
	pods    int // scheduled, of all classes
}

// hostClass is a class under a hostRule.
type hostClass struct {
	c    *class
	pods int // scheduled
	// price is that of the cheapest node that holds a pod, in $/h.
	price float64
}

// hostRules are the host rules of the scheduled pods, in the order of their first class.
func (sv *solver) hostRules(scheduled map[*class]int) []*hostRule {
	rules := map[*topology.Group]*hostRule{}
	var out []*hostRule
	for _, c := range sv.classes {
		if scheduled[c] == 0 || c.boundPods < 0 {
			continue // none on new nodes, or no offering holds them
		}
		for _, v := range c.views(c.levels[len(c.levels)-1]) {
			most := v.MostOnHost()
			if most == 0 {
				continue
			}
			r := rules[v.Group()]
			switch {
			case r == nil:
				r = &hostRule{g: v.Group(), most: most}
				rules[v.Group()] = r
				out = append(out, r)
			case r.classes[len(r.classes)-1].c == c:
				continue // the pods declare the rule twice
			}
			r.classes = append(r.classes, hostClass{c, scheduled[c], sv.bound.program.CheapestNode(c.boundPods)})
			r.pods += scheduled[c]
		}
	}
	return out
}

// scheduledPods counts the pods of this run on existing nodes and in bins, by class. Classes that are divided over zones
// count as a whole, as in the bound.
func (sv *solver) scheduledPods() map[*class]int {
	out := make(map[*class]int, len(sv.classes))
	for _, c := range sv.classes {
		if c.onExisting > 0 {
			out[c.undivided()] += c.onExisting
		}
	}
	for _, b := range sv.bins {
		for _, h := range b.contents {
			out[h.class.undivided()] += h.n
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

// ruleBound is what the host rules and zone rules of certain scheduled pods prove, in $/h.
type ruleBound struct {
	scheduled map[*class]int
	value     float64
}

// addRules raises the plan's lower bound to what host rules and zone rules prove, where the plan costs more than
// similarCost above it. Otherwise the bound is good enough. Strategies that schedule the same pods share the result.
func (sv *solver) addRules(p *Plan) {
	bound, cost := &p.Stats.LowerBound, p.Stats.HourlyCost+p.Stats.NodeCost
	groups := sv.topology.Groups()
	overHosts, overZones := slices.ContainsFunc(groups, (*topology.Group).KeepsApartOnHosts), slices.ContainsFunc(groups, overZones)
	if cost <= *bound*similarCost || sv.bound == nil || sv.bound.program == nil || !overHosts && !overZones {
		return
	}
	known, scheduled := &sv.bound.ruleBound, sv.scheduledPods()
	if !maps.Equal(known.scheduled, scheduled) {
		known.scheduled, known.value = scheduled, *bound
		var zones []*zoneRule
		if overZones {
			zones = sv.zoneRules(scheduled)
			known.value = max(known.value, sv.valueBound()+sv.premiums(zones, sv.bound.program, (*class).boundIndex))
		}
		if overHosts {
			sv.addHostRules(cost, len(p.Launches), zones)
		}
	}
	*bound = max(*bound, known.value)
}

// boundIndex is the number of the class's pods in the program of the lower bound.
func (c *class) boundIndex() int { return c.boundPods }

// addHostRules raises the bound from rules to what host rules prove, for a plan of so many nodes.
func (sv *solver) addHostRules(cost float64, nodes int, zones []*zoneRule) {
	known := &sv.bound.ruleBound
	rules := sv.hostRules(known.scheduled)
	for _, r := range rules {
		known.value = max(known.value, sv.hostRuleBound(r, known.value))
	}
	if cost > known.value*similarCost {
		known.value = max(known.value, sv.hostProgramBound(rules, nodes, zones))
	}
}

// hostRuleBound is a lower bound on the cost of any plan that schedules the same pods, from one host rule alone; zero if
// it is not above the known bound.
//
// Let a rule have n pods, of which one node holds at most k. Existing nodes and capacity reservations take at most as
// many of them as their free room and the rule allow, in the best case those with the most expensive nodes. Each other
// node costs at least as much as the cheapest node for any of its pods. The sum of these prices is least where pods
// with equal prices share nodes: with the pods sorted by price, the first of each k.
//
// Cost: the rule's classes, and existing nodes if the rule may prove more than the known bound.
func (sv *solver) hostRuleBound(r *hostRule, known float64) float64 {
	slices.SortStableFunc(r.classes, func(a, b hostClass) int { return cmp.Compare(b.price, a.price) })
	if r.cost(0) <= known {
		return 0
	}
	paid := sv.podsOnExisting(r)
	for n := 1; n <= sv.slots.Len(); n++ {
		paid += min(sv.slots.Total(n), r.pods) * r.most
	}
	return r.cost(min(paid, r.pods))
}

// cost is the least cost of new nodes for the rule's pods, without the skipped ones, which have the highest prices.
func (r *hostRule) cost(skipped int) float64 {
	total, open := 0.0, 0
	for _, h := range r.classes {
		n := max(0, h.pods-skipped)
		skipped -= h.pods - n
		more := max(0, n-open)
		nodes := (more + r.most - 1) / r.most
		total += float64(nodes) * h.price
		open += nodes*r.most - n
	}
	return total
}

// podsOnExisting bounds how many of the rule's pods existing nodes can hold.
//
// Cost: nodes times axes.
func (sv *solver) podsOnExisting(r *hostRule) int {
	least := slices.Clone(r.classes[0].c.requests)
	for _, h := range r.classes[1:] {
		for i, x := range h.c.requests {
			least[i] = min(least[i], x)
		}
	}
	out := 0
	for _, n := range sv.nodes {
		if !n.open || n.removed {
			continue
		}
		free := n.free
		if n.touched {
			free = n.before.free
		}
		if !least.Fits(free) {
			continue
		}
		domain, ok := n.Domain(corev1.LabelHostname)
		if !ok {
			return r.pods // such a node is no domain, and takes any number
		}
		out += max(0, r.most-r.g.CountBefore(domain))
	}
	return min(out, r.pods)
}
