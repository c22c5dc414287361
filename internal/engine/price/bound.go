package price

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Bound is the lower bound on the cost of plans for the pods of a market.
type Bound struct {
	m     *Market
	slots *reservation.Slots
	free  []float64
	// freeValue is the value of all free room on existing nodes.
	freeValue float64
	// known holds what rules prove of the last plan. Strategies that schedule the same pods share it.
	known ruleBound
	// whole is the same for whole nodes.
	whole ruleBound
}

// ruleBound describes what the rules or the whole nodes of certain scheduled pods prove, in $/h.
type ruleBound struct {
	scheduled []int // pods by their index in the Problem
	value     float64
}

// NewBound bounds plans that may use the free room, which the market was made with, and the reservations.
func NewBound(m *Market, free []float64, slots *reservation.Slots) *Bound {
	return &Bound{m: m, slots: slots, free: free, freeValue: dot(free, m.roomDuals)}
}

// Plan describes what a bound has to know of a plan.
type Plan struct {
	// Value is the value of the scheduled pods, in $/h, as the market had it before any Resolve.
	Value float64
	// Dearest are the pods on new nodes with the highest value, by their index in the Problem; -1 if there are no new
	// nodes, or existing ones.
	Dearest int
}

// Of is less than or equal to the cost of any plan that schedules the same pods: their value, less that of all room that
// existing nodes and reservations had, and without these at least the price of the cheapest node for the most expensive pod.
func (b *Bound) Of(p Plan) float64 {
	single := 0.0
	if p.Dearest >= 0 && b.slots.Len() == 0 && b.m.numbers[p.Dearest] >= 0 {
		single = b.m.program.CheapestNode(b.m.numbers[p.Dearest])
	}
	return max(b.ofValue(p.Value), single, 0)
}

// ofValue is the value of scheduled pods, less that of room that is paid for.
func (b *Bound) ofValue(value float64) float64 {
	return value - b.freeValue - b.reservedValue(b.m.roomDuals, nil)
}

// reservedValue bounds the value of pods that all reservations together can hold: nodes in them cost next to nothing.
// After the axes of resources, duals may have those of host rules; each node has that much of them.
func (b *Bound) reservedValue(duals []float64, hostRoom []int64) float64 {
	byHostRules := 0.0
	for i, r := range hostRoom {
		byHostRules += duals[b.m.axes+i] * float64(r)
	}
	most := make([]float64, b.slots.Len())
	for _, t := range b.m.pools.All() {
		for i := range t.Types() {
			ti := &t.Types()[i]
			worth := byHostRules
			for axis, r := range ti.Room() {
				worth += duals[axis] * float64(max(0, r))
			}
			for n := range ti.Reservations {
				most[n-1] = max(most[n-1], worth)
			}
		}
	}
	total := 0.0
	for i, worth := range most {
		total += worth * float64(b.slots.Total(i+1))
	}
	return total
}

// RuledPlan describes what a bound with host rules and zone rules has to know of a plan.
type RuledPlan struct {
	Plan
	// Cost is the plan's, in $/h, Nodes the number of its new nodes.
	Cost  float64
	Nodes int
	// Scheduled are the pods with a node, in queue order.
	Scheduled []Scheduled
	// Existing are the nodes that took pods, as they were before.
	Existing []Node
	// Nominated is true if pods are nominated to existing nodes: rules count them, and the value of pods does not.
	Nominated bool
}

// Scheduled are pods of the Problem that a plan schedules, with the rules that they must keep.
type Scheduled struct {
	Pods  int // index in the Problem
	Count int
	// Requests are the requests of one pod, Value is its value in $/h, as the market had it before any Resolve.
	Requests resources.Vec
	Value    float64
	// Views are the required topology constraints, Matches the groups that count the pods.
	Views   []topology.View
	Matches []*topology.Group
}

// Node is an existing node with its free room.
type Node struct {
	*topology.Node
	Free resources.Vec
}

// WithRules raises a bound to what host rules and zone rules prove. The program of several rules runs only while the plan
// costs more than enough times the bound.
//
// Cost: per rule one pass over its pods, and over offerings for zone rules; a linear program where rules may bind.
func (b *Bound) WithRules(p *RuledPlan, bound, enough float64) float64 {
	if b.m.program == nil {
		return bound
	}
	if scheduled := b.countsOf(p); !slices.Equal(b.known.scheduled, scheduled) {
		b.known = ruleBound{scheduled, b.proven(p, bound, enough)}
	}
	return max(bound, b.known.value)
}

// countsOf counts the scheduled pods by their index in the Problem.
func (b *Bound) countsOf(p *RuledPlan) []int {
	out := make([]int, len(b.m.numbers))
	for _, s := range p.Scheduled {
		out[s.Pods] = s.Count
	}
	return out
}

// proven returns what the rules of the plan's pods prove.
func (b *Bound) proven(p *RuledPlan, bound, enough float64) float64 {
	zones := zoneRules(p.Scheduled)
	bound = max(bound, b.ofValue(p.Value)+b.premiums(p, zones, b.m.program, func(s *Scheduled) int { return b.m.numbers[s.Pods] }))
	rules := b.hostRules(p.Scheduled)
	for _, r := range rules {
		bound = max(bound, b.hostRuleBound(p, r, bound))
	}
	if p.Cost > bound*enough {
		bound = max(bound, b.ruleProgramBound(p, rules, zones))
	}
	return bound
}

// Rules reports whether the group is a host rule or a zone rule of its pods.
func Rules(g *topology.Group) bool { return g.KeepsApartOnHosts() || overZones(g) }
