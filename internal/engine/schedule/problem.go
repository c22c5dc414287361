package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Problem is a snapshot brought into the form that placement works on, of which many questions can be asked: what would be
// planned if these nodes were gone? The snapshot is compiled once. A question copies what it changes when it first
// changes it, and puts the original back in the end, so it costs in proportion to the pods that it moves.
//
// The snapshot must not change while the Problem is in use, nor may two questions be asked at once.
type Problem struct {
	sv      *solver
	nodes   []*node // as in the snapshot
	pending []*queued
	bound   map[*corev1.Pod]*queued
	// anchors tell, for groups of which some domain exists only by its nodes, how many nodes are in each such domain.
	anchors map[*group]map[string]int
	gone    []*node
	// reshaped are groups whose domains have changed with the nodes that are gone, as they were.
	reshaped []reshaped
	// held are plans that are taken to be carried out, guests the pods that they put on nodes; waiting finds those that were pending.
	held    []held
	guests  map[*node][]*queued
	waiting map[*corev1.Pod]*queued
	byName  map[placeName]*node
	reach   []*node // memory of destinations
}

type reshaped struct {
	g                *group
	universe, usable []string
}

// Compile prepares a snapshot for questions.
func Compile(s *snapshot.Snapshot) *Problem {
	p := &Problem{sv: newSolver(s), nodes: make([]*node, len(s.Nodes)), bound: map[*corev1.Pod]*queued{}, waiting: map[*corev1.Pod]*queued{}, anchors: map[*group]map[string]int{}}
	var bound []*corev1.Pod
	place := make(map[*snapshot.Node]int, len(s.Nodes))
	for i := range s.Nodes {
		bound = append(bound, s.Nodes[i].Pods...)
		place[&s.Nodes[i]] = i
	}
	for _, q := range p.sv.compile(bound) {
		if p.sv.simulated[q.pod.UID] {
			p.pending = append(p.pending, q)
			p.waiting[q.pod] = q
		} else {
			p.bound[q.pod] = q
		}
	}
	for _, n := range p.sv.nodes {
		p.nodes[place[n.src]] = n
	}
	for _, g := range p.sv.groups {
		if g.key != corev1.LabelHostname {
			p.anchor(g)
		}
	}
	return p
}

// anchor counts the nodes without which the group would lack a domain.
func (p *Problem) anchor(g *group) {
	sold := p.sv.forSale(g)
	for _, n := range p.nodes {
		if d, ok := p.sv.lends(n, g); ok && !slices.Contains(sold, d) {
			if p.anchors[g] == nil {
				p.anchors[g] = map[string]int{}
			}
			p.anchors[g][d]++
		}
	}
}

// WhatIf is the plan for the snapshot without the nodes, which are indices into its Nodes, and with those of their pods
// pending that are given. Limits count the nodes as if they were still there, as they are until others have taken over.
func (p *Problem) WhatIf(gone []int, pods []*corev1.Pod, budget Budget) Plan {
	return p.Ask(Question{Gone: gone, Pods: pods, Budget: budget})
}

// remove takes a node and its pods out of all that counts them.
func (p *Problem) remove(n *node) {
	if n.gone {
		return
	}
	n.gone = true
	p.gone = append(p.gone, n)
	p.count(n, -1)
	for g, anchors := range p.anchors {
		d, ok := p.sv.lends(n, g)
		if !ok || anchors[d] == 0 {
			continue
		}
		if anchors[d]--; anchors[d] == 0 {
			p.reshaped = append(p.reshaped, reshaped{g, g.universe, g.usable})
			without := func(s []string) []string {
				return slices.DeleteFunc(slices.Clone(s), func(x string) bool { return x == d })
			}
			g.universe, g.usable = without(g.universe), without(g.usable)
		}
	}
}

// count adds what the pods on a node count for in their groups, by times as much.
func (p *Problem) count(n *node, by int) {
	add := func(g *group, pod *corev1.Pod) {
		if d, ok := n.domain(g.key); ok {
			if g.counts[d] += by; g.counts[d] == 0 {
				delete(g.counts, d)
			}
		}
	}
	for _, q := range p.guests[n] {
		for _, list := range [...][]*group{q.class.matches, q.class.declares} {
			for _, g := range list {
				if p.sv.counts(g, n) {
					add(g, q.pod)
				}
			}
		}
	}
	for _, pod := range n.src.Pods {
		q, ok := p.bound[pod]
		if !ok {
			continue
		}
		if snapshot.Active(pod) {
			for _, g := range q.class.matches {
				if g.filter.admits(n.labels, n.src.Taints, nil) {
					add(g, pod)
				}
			}
		}
		if !snapshot.Terminal(pod) {
			for _, g := range q.class.declares {
				add(g, pod)
			}
		}
	}
}

// restore brings back what is gone.
func (p *Problem) restore() {
	for _, r := range slices.Backward(p.reshaped) {
		r.g.universe, r.g.usable = r.universe, r.usable
	}
	for _, n := range p.gone {
		n.gone = false
		p.count(n, 1)
		for g, anchors := range p.anchors {
			if d, ok := p.sv.lends(n, g); ok {
				if _, counted := anchors[d]; counted {
					anchors[d]++
				}
			}
		}
	}
	p.gone, p.reshaped = p.gone[:0], p.reshaped[:0]
}

// nodeState is what placing pods changes about a node.
type nodeState struct {
	free     vec
	ports    []hostPort
	attached map[attachment]bool
	inUse    map[string]int32
}

// touch keeps what a node is like before the first change.
func (sv *solver) touch(n *node) {
	if n.touched {
		return
	}
	n.touched = true
	n.before = nodeState{n.free, slices.Clip(n.ports), n.attached, n.inUse}
	n.ports = n.before.ports
	sv.touchedNodes = append(sv.touchedNodes, n)
}

// touchVolumes gives a node volumes of its own to change.
func (sv *solver) touchVolumes(n *node) {
	if !n.ownVolumes {
		n.ownVolumes = true
		n.attached, n.inUse = maps.Clone(n.attached), maps.Clone(n.inUse)
	}
}

// touchGroup gives a group counts of its own to change.
func (sv *solver) touchGroup(g *group) {
	if !g.touched {
		g.touched = true
		g.before = g.counts
		g.counts = maps.Clone(g.counts)
		sv.touchedGroups = append(sv.touchedGroups, g)
	}
}

// rewind puts back all that a run has changed.
func (sv *solver) rewind() {
	for _, n := range sv.touchedNodes {
		n.free, n.ports, n.attached, n.inUse = n.before.free, n.before.ports, n.before.attached, n.before.inUse
		n.placed, n.devices, n.touched, n.ownVolumes = nil, nil, false, false
	}
	for _, g := range sv.touchedGroups {
		g.counts, g.unsure, g.inBins, g.floating, g.touched = g.before, nil, g.inBins[:0], 0, false
	}
	for i, t := range sv.templates {
		t.left = sv.start.left[i]
	}
	copy(sv.seats.left, sv.start.seats)
	sv.touchedNodes, sv.touchedGroups, sv.bins, sv.rejected = sv.touchedNodes[:0], sv.touchedGroups[:0], nil, nil
	sv.planned, sv.steps, sv.conceded, sv.spent = sv.planned[:0], 0, 0, 0
	sv.taken = nil
	sv.devices = nil
	sv.explainer = nil // it remembers answers
}
