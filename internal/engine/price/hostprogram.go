package price

import (
	"cmp"
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

// hostProgram is the linear program of a plan's pods with one more axis per host rule: a node has as much of it as the
// rule allows pods, and each pod of the rule takes one.
//
// Its bound is weak duality as without host rules. That rests on one fact alone: on every axis, the pods of a node
// request no more than the node has. For the axis of a host rule this is the invariant of hostRule. So at dual prices
// under which no node's room costs more than the node, the pods of a node are worth no more than its price. Existing
// nodes have what the rule still allows there, and nodes in reservations what it allows.
type hostProgram struct {
	b       *Bound
	plan    *RuledPlan
	rules   []*hostRule
	demands []hostDemand // the demand classes of the program
	pods    []lp.Pods
	index   map[*Scheduled]int // of pods; -1 for those left out
}

// hostDemand is a demand class of the program: pods under the same host rules that can use the same offerings. Where
// there are too many, the last one may use whatever any of its pods may, which makes the bound lower, but no less valid.
type hostDemand struct {
	offerings lp.ClassSet // those of these demand classes of the relaxation
	rules     uint
}

// hostProgramBound is a lower bound on the cost of any plan that schedules the same pods, from a hostProgram; zero if no
// rule is likely to bind. Zone rules add to it what they add to any program.
//
// Cost: one more linear program, for rules that need at least bindingShare of the plan's nodes.
func (b *Bound) hostProgramBound(p *RuledPlan, rules []*hostRule, zones []*zoneRule) float64 {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r *hostRule) bool {
		return float64(r.pods) < bindingShare*float64(p.Nodes*r.most)
	})
	if len(rules) == 0 {
		return 0
	}
	slices.SortStableFunc(rules, func(a, b *hostRule) int { return cmp.Compare(b.pods*a.most, a.pods*b.most) })
	h := &hostProgram{b: b, plan: p, rules: rules[:min(len(rules), maxHostAxes)]}
	return h.bound(zones)
}

// bound solves the program and sums the values of all pods, less that of room that is paid for, and their premiums.
func (h *hostProgram) bound(zones []*zoneRule) float64 {
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
	return total + h.b.premiums(h.plan, zones, program, func(s *Scheduled) int { return h.index[s] })
}

// addPods lists the scheduled pods by class, with what they take of the axes of rules.
func (h *hostProgram) addPods() {
	under := map[*Scheduled]uint{}
	for i, r := range h.rules {
		for _, hc := range r.classes {
			under[hc.Scheduled] |= 1 << i
		}
	}
	index := map[hostDemand]int{}
	h.index = map[*Scheduled]int{}
	for k := range h.plan.Scheduled {
		s := &h.plan.Scheduled[k]
		number := h.b.m.numbers[s.Pods]
		if h.index[s] = -1; number < 0 {
			continue
		}
		h.index[s] = len(h.pods)
		requests := slices.Clone(s.Requests)
		for i := range h.rules {
			requests = append(requests, int64(under[s]>>i&1))
		}
		d := hostDemand{rules: under[s]}
		d.offerings.Add(h.b.m.pods[number].Class)
		h.pods = append(h.pods, lp.Pods{Class: h.demandOf(d, index), Requests: requests, Count: s.Count})
	}
}

// demandOf is the number of the demand class in the program.
func (h *hostProgram) demandOf(d hostDemand, index map[hostDemand]int) int {
	k, known := index[d]
	switch {
	case known:
	case len(h.demands) < lp.MaxClasses:
		k = len(h.demands)
		h.demands = append(h.demands, d)
	default:
		k = lp.MaxClasses - 1
		h.demands[k].offerings |= d.offerings
	}
	index[d] = k
	return k
}

// offerings are those of the relaxation, with room on the axes of rules.
func (h *hostProgram) offerings() []lp.Offering {
	out := h.b.m.offerings()
	rooms := map[*int64][]int64{} // by the room without them, which all offerings of a type share
	for i := range out {
		o := &out[i]
		var classes lp.ClassSet
		for k, d := range h.demands {
			if d.offerings&o.Classes != 0 {
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
