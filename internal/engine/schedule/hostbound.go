package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// hostRule is a required rule over hostnames with the pods that it keeps apart from each other: topology spread with
// DoNotSchedule, or anti-affinity. Its pods declare the rule and are counted by it.
//
// Invariant: no node of any plan holds more than most of these pods. When the last of them came to its node, its own
// rule counted all others there. The rule leaves out no node that they can run on: a filter of a spread excludes only
// nodes that its pods do not select or do not tolerate.
type hostRule struct {
	g       *group
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
	rules := map[*group]*hostRule{}
	var out []*hostRule
	for _, c := range sv.classes {
		if scheduled[c] == 0 || c.boundPods < 0 {
			continue // none on new nodes, or no offering holds them
		}
		for _, v := range c.views(c.levels[len(c.levels)-1]) {
			most := v.mostOnHost()
			if most == 0 {
				continue
			}
			r := rules[v.g]
			switch {
			case r == nil:
				r = &hostRule{g: v.g, most: most}
				rules[v.g] = r
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

// mostOnHost is how many pods one node may hold of those that declare the rule and are counted by it; zero if the view
// is of no such rule.
func (v *view) mostOnHost() int {
	if v.g.key != corev1.LabelHostname || !v.self || v.g.claim != "" {
		return 0
	}
	switch v.g.typ {
	case spread:
		return v.g.maxSkew
	case antiAffinity:
		return 1
	}
	return 0
}

// hostBound is what the host rules of certain scheduled pods prove, in $/h.
type hostBound struct {
	scheduled map[*class]int
	value     float64
}

// addHostRules raises the plan's lower bound to what host rules prove, where the plan costs more than similarCost above
// it. Otherwise the bound is good enough. Strategies that schedule the same pods share the result.
func (sv *solver) addHostRules(p *Plan) {
	bound, cost := &p.Stats.LowerBound, p.Stats.HourlyCost+p.Stats.NodeCost
	if cost <= *bound*similarCost || sv.bound == nil || sv.bound.program == nil || !slices.ContainsFunc(sv.groups, (*group).overHosts) {
		return
	}
	known, scheduled := &sv.bound.hostBound, sv.scheduledPods()
	if !maps.Equal(known.scheduled, scheduled) {
		known.scheduled, known.value = scheduled, 0
		rules := sv.hostRules(scheduled)
		for _, r := range rules {
			known.value = max(known.value, sv.hostRuleBound(r, max(*bound, known.value)))
		}
		if cost > max(*bound, known.value)*similarCost {
			known.value = max(known.value, sv.hostProgramBound(rules, len(p.Launches)))
		}
	}
	*bound = max(*bound, known.value)
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

// overHosts reports whether the group keeps pods apart from each other on hosts.
func (g *group) overHosts() bool {
	return g.key == corev1.LabelHostname && (g.typ == spread || g.typ == antiAffinity) && g.claim == ""
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
	counts := r.g.counts
	if r.g.touched {
		counts = r.g.before
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
		domain, ok := n.domain(corev1.LabelHostname)
		if !ok {
			return r.pods // such a node is no domain, and takes any number
		}
		out += max(0, r.most-counts[domain])
	}
	return min(out, r.pods)
}
