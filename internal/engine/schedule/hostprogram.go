package schedule

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
	sv        *solver
	rules     []*hostRule
	scheduled map[*class]int
	demands   []hostDemand // the demand classes of the program
	pods      []lp.Pods
}

// hostDemand is a demand class of the program: pods under the same host rules that can use the same offerings. Where
// there are too many, the last one may use whatever any of its pods may, which makes the bound lower, but no less valid.
type hostDemand struct {
	offerings lp.ClassSet // those of these demand classes of the relaxation
	rules     uint
}

// hostProgramBound is a lower bound on the cost of any plan that schedules the same pods, from a hostProgram; zero if no
// rule is likely to bind. The plan has so many new nodes.
//
// Cost: one more linear program, for rules that need at least bindingShare of the plan's nodes.
func (sv *solver) hostProgramBound(rules []*hostRule, nodes int) float64 {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r *hostRule) bool {
		return float64(r.pods) < bindingShare*float64(nodes*r.most)
	})
	if len(rules) == 0 {
		return 0
	}
	slices.SortStableFunc(rules, func(a, b *hostRule) int { return cmp.Compare(b.pods*a.most, a.pods*b.most) })
	h := &hostProgram{sv: sv, rules: rules[:min(len(rules), maxHostAxes)], scheduled: sv.bound.hostBound.scheduled}
	return h.bound()
}

// bound solves the program and sums the values of all pods, less that of room that is paid for.
func (h *hostProgram) bound() float64 {
	sv, axes := h.sv, h.sv.axes.Len()
	h.addPods()
	program := lp.New(lp.Input{Axes: axes + len(h.rules), Classes: len(h.demands), Offerings: h.offerings(), Pods: h.pods})
	free := slices.Clone(sv.start.free)
	most := make([]int64, 0, len(h.rules))
	for _, r := range h.rules {
		free = append(free, float64(sv.podsOnExisting(r)))
		most = append(most, int64(r.most))
	}
	duals := vec64(program.ExistingRoomDuals(free))
	total := -duals.dot(free) - sv.reservedValue(duals, most)
	for i := range h.pods {
		total += program.Value(i) * float64(h.pods[i].Count)
	}
	return total
}

// addPods lists the scheduled pods by class, with what they take of the axes of rules.
func (h *hostProgram) addPods() {
	under := map[*class]uint{}
	for i, r := range h.rules {
		for _, hc := range r.classes {
			under[hc.c] |= 1 << i
		}
	}
	index := map[hostDemand]int{}
	for _, c := range h.sv.classes {
		if h.scheduled[c] == 0 || c.boundPods < 0 {
			continue
		}
		requests := slices.Clone(c.requests)
		for i := range h.rules {
			requests = append(requests, int64(under[c]>>i&1))
		}
		d := hostDemand{rules: under[c]}
		d.offerings.Add(c.boundDemand.index)
		h.pods = append(h.pods, lp.Pods{Class: h.demandOf(d, index), Requests: requests, Count: h.scheduled[c]})
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
	out := h.sv.lpOfferings(h.sv.bound)
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
