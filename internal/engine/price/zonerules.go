package price

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// zoneRule is a required topology spread over zones with the pods under it. Each of them declares the rule and is
// counted by it, and no other scheduled pod is, nor a DaemonSet's.
//
// Let zones have e(z) running pods of the rule, and let f(z) be the pods at the end of any plan, m the least f(z) of the
// zones that skew is measured against. When the last pod came to zone z, the rule allowed it: f(z) was at most maxSkew
// above the least count then, which only grows. So f(z) <= max(e(z), m + maxSkew). All f(z) together are the running and
// the scheduled pods, which gives a least m. At least m - e(z) of the rule's pods are in each such zone. With minDomains
// the rule allows less, not more.
type zoneRule struct {
	g       *topology.Group
	classes []*Scheduled
	pods    int // scheduled, of all classes
}

// zonePremiums describes what zone rules add to a bound from dual prices.
//
// Let y be dual-feasible prices of offerings: the pods of a node cost no more than the node. The bound takes for each
// pod the least that it costs on any offering. A pod in zone z costs at least what it costs on an offering of the zone:
// the difference is its premium there. So each pod that must be on a new node in the zone adds its premium to the bound.
// Of the pods under a rule, some number must be in the zone; existing nodes and reservations may take some of these; it
// counts those with the least premiums. A class under several rules has its premium in the first one only.
type zonePremiums struct {
	b       *Bound
	plan    *RuledPlan
	program *lp.Program
	pods    func(*Scheduled) int // their index in the program
	counted map[*Scheduled]bool  // the classes of earlier rules
}

// zonePremium is a pod's premium in a zone, in $/h, with the number of such pods.
type zonePremium struct {
	premium float64
	pods    int
}

// zoneRules are the zone rules of the scheduled pods, in the order of their first class.
//
// Cost: the groups of each class.
func zoneRules(scheduled []Scheduled) []*zoneRule {
	rules, others := map[*topology.Group]*zoneRule{}, map[*topology.Group]bool{}
	var out []*zoneRule
	for i := range scheduled {
		s := &scheduled[i]
		var own []*topology.Group
		for k := range s.Views {
			v := &s.Views[k]
			if !overZones(v.Group()) || !v.Self() || slices.Contains(own, v.Group()) {
				continue
			}
			own = append(own, v.Group())
			r := rules[v.Group()]
			if r == nil {
				r = &zoneRule{g: v.Group()}
				rules[v.Group()] = r
				out = append(out, r)
			}
			r.classes = append(r.classes, s)
			r.pods += s.Count
		}
		for _, g := range s.Matches {
			others[g] = others[g] || overZones(g) && !slices.Contains(own, g)
		}
	}
	return slices.DeleteFunc(out, func(r *zoneRule) bool { return others[r.g] || r.g.CountsDaemons() })
}

// overZones reports whether the group is a spread over zones.
func overZones(g *topology.Group) bool { return g.Spreads(corev1.LabelTopologyZone) }

// floors returns how many of the rule's pods must be in each zone, at least.
//
// Cost: pods times zones.
func (r *zoneRule) floors() map[string]int {
	if len(r.g.Usable()) == 0 {
		return nil
	}
	total, least := r.pods, math.MaxInt
	for _, zone := range r.g.Universe() {
		total += r.g.CountBefore(zone)
	}
	for _, zone := range r.g.Usable() {
		least = min(least, r.g.CountBefore(zone))
	}
	for ; ; least++ {
		most := -r.g.MaxSkew() // one of the zones has no more than the least
		for _, zone := range r.g.Universe() {
			most += max(r.g.CountBefore(zone), least+r.g.MaxSkew())
		}
		if most >= total {
			break
		}
	}
	out := map[string]int{}
	for _, zone := range r.g.Usable() {
		if n := least - r.g.CountBefore(zone); n > 0 {
			out[zone] = n
		}
	}
	return out
}

// onNewNodes returns how many of the rule's pods must be on new nodes in each zone, at least. There are none where pods are
// nominated, since groups count them and the bound does not.
func (b *Bound) onNewNodes(p *RuledPlan, r *zoneRule) map[string]int {
	if p.Nominated {
		return nil
	}
	needs := r.floors()
	for zone, n := range needs {
		if n -= b.paid(p, r, zone); n > 0 {
			needs[zone] = n
		} else {
			delete(needs, zone)
		}
	}
	return needs
}

// premiums returns what zone rules add to the bound of a program, in $/h.
func (b *Bound) premiums(p *RuledPlan, rules []*zoneRule, program *lp.Program, index func(*Scheduled) int) float64 {
	z := &zonePremiums{b: b, plan: p, program: program, pods: index, counted: map[*Scheduled]bool{}}
	return z.total(rules)
}

// total returns what the rules together add to the bound, in $/h.
//
// Cost: per class under a rule one pass over all offerings, and one over existing nodes.
func (z *zonePremiums) total(rules []*zoneRule) float64 {
	total := 0.0
	for _, r := range rules {
		needs := z.b.onNewNodes(z.plan, r)
		if len(needs) == 0 {
			continue
		}
		inZones := make([]map[string]float64, len(r.classes)) // by class and zone
		for i, s := range r.classes {
			inZones[i] = z.premiums(s)
			z.counted[s] = true
		}
		for _, zone := range r.g.Usable() { // sorted, so that sums are the same on each run
			total += z.least(r, inZones, zone, needs[zone])
		}
	}
	return total
}

// least is the sum of the least premiums of so many of the rule's pods in a zone.
func (z *zonePremiums) least(r *zoneRule, inZones []map[string]float64, zone string, need int) float64 {
	list := make([]zonePremium, 0, len(r.classes))
	for i, s := range r.classes {
		list = append(list, zonePremium{inZones[i][zone], s.Count})
	}
	slices.SortFunc(list, func(a, b zonePremium) int { return cmp.Compare(a.premium, b.premium) })
	total := 0.0
	for _, p := range list {
		n := min(need, p.pods)
		total, need = total+float64(n)*p.premium, need-n
	}
	return total
}

// premiums returns what a pod of the class costs in each zone above its value in the bound. They are zero where the zone has
// no offering for it, and for classes that have been counted.
func (z *zonePremiums) premiums(s *Scheduled) map[string]float64 {
	m, pods, out := z.b.m, z.pods(s), map[string]float64{}
	if z.counted[s] || pods < 0 {
		return out
	}
	least, class := math.Inf(1), m.classes[m.pods[m.numbers[s.Pods]].Class]
	for _, t := range m.pools.All() {
		for i := range t.Types() {
			ti := &t.Types()[i]
			if !s.Requests.Within(ti.Room()) {
				continue
			}
			for k := range ti.Offerings {
				o, offering := ti.FirstOffering()+k, &ti.Offerings[k]
				if !class.offerings.Has(o) {
					continue
				}
				cost := z.program.FirstCost(pods, o, m.pools.NodePrice(offering.Price))
				if known, ok := out[offering.Zone]; !ok || cost < known {
					out[offering.Zone] = cost
				}
				least = min(least, cost)
			}
		}
	}
	for zone := range out {
		out[zone] -= least
	}
	return out
}

// paid bounds how many of the rule's pods existing nodes of the zone and reservations can hold: as many pods with the
// least requests of all on each axis.
func (b *Bound) paid(p *RuledPlan, r *zoneRule, zone string) int {
	if b.slots.Len() > 0 {
		return r.pods
	}
	least := slices.Clone(r.classes[0].Requests)
	for _, s := range r.classes[1:] {
		for i, x := range s.Requests {
			least[i] = min(least[i], x)
		}
	}
	out := 0
	for _, n := range p.Existing {
		if domain, ok := n.Domain(corev1.LabelTopologyZone); ok && domain != zone {
			continue
		}
		out += timesWithin(least, n.Free, r.pods)
	}
	return min(out, r.pods)
}

// timesWithin returns how often the amounts fit into a room, up to most.
func timesWithin(amounts, room resources.Vec, most int) int {
	n := int64(most)
	for i, x := range amounts {
		switch {
		case x > room[i]:
			return 0
		case x > 0:
			n = min(n, room[i]/x)
		}
	}
	return int(n)
}
