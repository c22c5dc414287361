package price

import (
	"cmp"
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
	*Scheduled
	// price is that of the cheapest node that holds a pod, in $/h.
	price float64
}

// hostRules are the host rules of the scheduled pods, in the order of their first class.
func (b *Bound) hostRules(scheduled []Scheduled) []*hostRule {
	rules := map[*topology.Group]*hostRule{}
	var out []*hostRule
	for i := range scheduled {
		s := &scheduled[i]
		number := b.m.numbers[s.Pods]
		if number < 0 {
			continue // no offering holds them
		}
		for k := range s.Views {
			v := &s.Views[k]
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
			case r.classes[len(r.classes)-1].Scheduled == s:
				continue // the pods declare the rule twice
			}
			r.classes = append(r.classes, hostClass{s, b.m.program.CheapestNode(number)})
			r.pods += s.Count
		}
	}
	return out
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
func (b *Bound) hostRuleBound(p *RuledPlan, r *hostRule, known float64) float64 {
	slices.SortStableFunc(r.classes, func(a, b hostClass) int { return cmp.Compare(b.price, a.price) })
	if r.cost(0) <= known {
		return 0
	}
	paid := r.onExisting(p.Existing)
	for n := 1; n <= b.slots.Len(); n++ {
		paid += min(b.slots.Total(n), r.pods) * r.most
	}
	return r.cost(min(paid, r.pods))
}

// cost is the least cost of new nodes for the rule's pods, without the skipped ones, which have the highest prices.
func (r *hostRule) cost(skipped int) float64 {
	total, open := 0.0, 0
	for _, h := range r.classes {
		n := max(0, h.Count-skipped)
		skipped -= h.Count - n
		more := max(0, n-open)
		nodes := (more + r.most - 1) / r.most
		total += float64(nodes) * h.price
		open += nodes*r.most - n
	}
	return total
}

// onExisting bounds how many of the rule's pods existing nodes can hold.
//
// Cost: nodes times axes.
func (r *hostRule) onExisting(nodes []Node) int {
	least := slices.Clone(r.classes[0].Requests)
	for _, h := range r.classes[1:] {
		for i, x := range h.Requests {
			least[i] = min(least[i], x)
		}
	}
	out := 0
	for _, n := range nodes {
		if !least.Fits(n.Free) {
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
