package price

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
)

const (
	// maxHostAxes bounds the axes that host rules add to a program: each makes every pricing subproblem larger.
	maxHostAxes = 4
	// bindingShare is the share of the plan's nodes that a rule's pods need, below which the rule is left out of the
	// program: the plan has enough nodes for them anyway. At 0.5, the bound of diverse workloads on EC2 prices is the
	// same (1 % above that without host rules), and that of replica workloads would be 0.08 % higher.
	bindingShare = 0.9
)

// ruleProgram is the linear program of a plan's pods with what host rules and zone rules prove of them.
//
// A host rule is one more axis: a node has as much of it as the rule allows pods, and each pod of the rule takes one.
// Its bound is weak duality as without host rules. That rests on one fact alone: on every axis, the pods of a node
// request no more than the node has. For the axis of a host rule this is the invariant of hostRule. So at dual prices
// under which no node's room costs more than the node, the pods of a node are worth no more than its price. Existing
// nodes have what the rule still allows there, and nodes in reservations what it allows.
//
// A zone rule of one class divides its pods: as many as must be on new nodes in a zone, at least, are a demand of their
// own, which only offerings of the zone meet. The pods are equal, so it does not matter which of them they are. Where
// several classes share a rule, it does, and the rule adds premiums as to any program.
type ruleProgram struct {
	b       *Bound
	plan    *RuledPlan
	rules   []*hostRule
	demands []ruleDemand // the demand classes of the program
	pods    []lp.Pods
	index   map[*Scheduled]int // of pods; -1 for those left out or divided
	// divided are the pods that must be in a zone, by class and zone.
	divided map[*Scheduled]map[string]int
}

// ruleDemand is a demand class of the program: pods under the same host rules that can use the same offerings. Where
// there are too many, the last one may use whatever any of its pods may, which makes the bound lower, but no less valid.
type ruleDemand struct {
	offerings lp.ClassSet // those of these demand classes of the relaxation
	rules     uint
	zone      string // that the pods must be in; empty for any
}

// ruleProgramBound is a lower bound on the cost of any plan that schedules the same pods, from a ruleProgram; zero if no
// host rule is likely to bind, and no zone rule divides pods.
//
// Cost: one more linear program.
func (b *Bound) ruleProgramBound(p *RuledPlan, rules []*hostRule, zones []*zoneRule) float64 {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r *hostRule) bool {
		return float64(r.pods) < bindingShare*float64(p.Nodes*r.most)
	})
	slices.SortStableFunc(rules, func(a, b *hostRule) int { return cmp.Compare(b.pods*a.most, a.pods*b.most) })
	h := &ruleProgram{b: b, plan: p, rules: rules[:min(len(rules), maxHostAxes)]}
	h.divide(zones)
	if len(h.rules) == 0 && len(h.divided) == 0 {
		return 0
	}
	return h.bound(zones)
}

// divide finds which pods must be on new nodes in a zone. A class under several rules is divided by the first one only,
// since the pods that one rule needs in a zone may be those that another one needs there.
func (h *ruleProgram) divide(zones []*zoneRule) {
	h.divided = map[*Scheduled]map[string]int{}
	for _, r := range zones {
		class := r.classes[0]
		if len(r.classes) > 1 || h.divided[class] != nil || h.b.m.numbers[class.Pods] < 0 {
			continue
		}
		if needs := h.b.onNewNodes(h.plan, r); len(needs) > 0 {
			h.divided[class] = needs
		}
	}
}

// bound solves the program and sums the values of all pods, less that of room that is paid for, and their premiums.
func (h *ruleProgram) bound(zones []*zoneRule) float64 {
	h.addPods()
	program := lp.New(lp.Input{
		Axes: h.b.m.axes + len(h.rules), Classes: len(h.demands), Offerings: h.offerings(), Pods: h.pods, Partial: true,
	})
	free := slices.Clone(h.b.free)
	most := make([]int64, 0, len(h.rules))
	for _, r := range h.rules {
		free = append(free, float64(r.onExisting(h.plan.Existing)))
		most = append(most, int64(r.most))
	}
	duals := program.ExistingRoomDuals(free)
	total := -dot(duals, free) - h.b.reservedValue(duals, most)
	for i := range h.pods {
		total += program.Value(i) * float64(h.pods[i].Count)
	}
	// Divided pods have no premium besides: they have no index, and others are under other rules.
	return total + h.b.premiums(h.plan, zones, program, func(s *Scheduled) int { return h.index[s] })
}

// addPods lists the scheduled pods by class, with what they take of the axes of rules.
func (h *ruleProgram) addPods() {
	under := map[*Scheduled]uint{}
	for i, r := range h.rules {
		for _, hc := range r.classes {
			under[hc.Scheduled] |= 1 << i
		}
	}
	index := map[ruleDemand]int{}
	h.index = map[*Scheduled]int{}
	for k := range h.plan.Scheduled {
		s := &h.plan.Scheduled[k]
		number := h.b.m.numbers[s.Pods]
		if h.index[s] = -1; number < 0 {
			continue
		}
		requests := slices.Clone(s.Requests)
		for i := range h.rules {
			requests = append(requests, int64(under[s]>>i&1))
		}
		d := ruleDemand{rules: under[s]}
		d.offerings.Add(h.b.m.pods[number].Class)
		needs := h.divided[s]
		if needs == nil {
			h.index[s] = len(h.pods)
		}
		anywhere := s.Count
		for _, zone := range slices.Sorted(maps.Keys(needs)) {
			d.zone = zone
			h.pods = append(h.pods, lp.Pods{Class: h.demandOf(d, index), Requests: requests, Count: needs[zone]})
			anywhere -= needs[zone]
		}
		if d.zone = ""; anywhere > 0 {
			h.pods = append(h.pods, lp.Pods{Class: h.demandOf(d, index), Requests: requests, Count: anywhere})
		}
	}
}

// demandOf is the number of the demand class in the program.
func (h *ruleProgram) demandOf(d ruleDemand, index map[ruleDemand]int) int {
	k, known := index[d]
	switch {
	case known:
	case len(h.demands) < lp.MaxClasses:
		k = len(h.demands)
		h.demands = append(h.demands, d)
	default:
		k = lp.MaxClasses - 1
		last := &h.demands[k]
		last.offerings |= d.offerings
		if last.zone != d.zone {
			last.zone = ""
		}
	}
	index[d] = k
	return k
}

// offerings returns those of the relaxation, with room on the axes of rules.
func (h *ruleProgram) offerings() []lp.Offering {
	out := h.b.m.offerings()
	zones := h.zonesOfOfferings()
	rooms := map[*int64][]int64{} // by the room without them, which all offerings of a type share
	for i := range out {
		o := &out[i]
		var classes lp.ClassSet
		for k, d := range h.demands {
			if d.offerings&o.Classes != 0 && (d.zone == "" || d.zone == zones[i]) {
				classes.Add(k)
			}
		}
		if o.Classes = classes; classes == 0 {
			continue
		}
		room, known := rooms[&o.Room[0]]
		if !known {
			room = slices.Clone(o.Room)
			for _, r := range h.rules {
				room = append(room, int64(r.most))
			}
			rooms[&o.Room[0]] = room
		}
		o.Room = room
	}
	return out
}

// zonesOfOfferings are the zones of all offerings, by number.
func (h *ruleProgram) zonesOfOfferings() []string {
	out := make([]string, h.b.m.pools.OfferingCount())
	for _, t := range h.b.m.pools.All() {
		for i := range t.Types() {
			ti := &t.Types()[i]
			for k := range ti.Offerings {
				out[ti.FirstOffering()+k] = ti.Offerings[k].Zone
			}
		}
	}
	return out
}
