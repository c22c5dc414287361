package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Problem is a snapshot compiled for simulations: what would the plan be if these nodes were gone? A simulation copies
// what it changes on the first change and restores it at the end, so it costs in proportion to the pods that it moves.
//
// The snapshot must not change while the Problem is in use. Simulations must not run concurrently.
type Problem struct {
	sv        *solver
	nodes     []*node // in the order of the snapshot
	pending   []*queuedPod
	boundPods map[*corev1.Pod]*queuedPod
	// domainNodes counts, for groups with domains that only existing nodes provide, the nodes in each of these domains.
	domainNodes map[*group]map[string]int
	removed     []*node
	// changedDomains are groups that lost domains with the removed nodes, as they were before.
	changedDomains []groupDomains
	// applied are the plans applied so far, addedPods the pods that they put on nodes; pendingPods finds pods that were
	// pending.
	applied     []appliedPlan
	addedPods   map[*node][]*queuedPod
	pendingPods map[*corev1.Pod]*queuedPod
	byName      map[nodeID]*node
	targetBuf   []*node // buffer of destinations
}

// groupDomains are the domains of a group before nodes were removed.
type groupDomains struct {
	g                *group
	universe, usable []string
}

// Compile prepares a snapshot for simulations.
func Compile(s *snapshot.Snapshot) *Problem {
	p := &Problem{
		sv:          newSolver(s),
		nodes:       make([]*node, len(s.Nodes)),
		boundPods:   map[*corev1.Pod]*queuedPod{},
		pendingPods: map[*corev1.Pod]*queuedPod{},
		domainNodes: map[*group]map[string]int{},
	}
	var bound []*corev1.Pod
	place := make(map[*snapshot.Node]int, len(s.Nodes))
	for i := range s.Nodes {
		bound = append(bound, s.Nodes[i].Pods...)
		place[&s.Nodes[i]] = i
	}
	for _, q := range p.sv.compile(bound) {
		if p.sv.pending[q.pod.UID] {
			p.pending = append(p.pending, q)
			p.pendingPods[q.pod] = q
		} else {
			p.boundPods[q.pod] = q
		}
	}
	for _, n := range p.sv.nodes {
		p.nodes[place[n.src]] = n
	}
	for _, g := range p.sv.groups {
		if g.key != corev1.LabelHostname {
			p.countDomainNodes(g)
		}
	}
	return p
}

// countDomainNodes counts the nodes without which the group would lack a domain.
func (p *Problem) countDomainNodes(g *group) {
	sold := p.sv.launchableDomains(g)
	for _, n := range p.nodes {
		if d, ok := p.sv.domainProvided(n, g); ok && !slices.Contains(sold, d) {
			if p.domainNodes[g] == nil {
				p.domainNodes[g] = map[string]int{}
			}
			p.domainNodes[g][d]++
		}
	}
}

// WhatIf is the plan for the snapshot without the nodes, given as indices into its Nodes, and with the given pods of
// theirs pending. Limits count the nodes as if they still existed, since they do until their replacements are ready.
func (p *Problem) WhatIf(gone []int, pods []*corev1.Pod, budget Budget) Plan {
	return p.Simulate(Simulation{Removed: gone, Pods: pods, Budget: budget})
}

// remove takes a node and its pods out of all counts.
func (p *Problem) remove(n *node) {
	if n.removed {
		return
	}
	n.removed = true
	p.removed = append(p.removed, n)
	p.count(n, -1)
	for g, anchors := range p.domainNodes {
		d, ok := p.sv.domainProvided(n, g)
		if !ok || anchors[d] == 0 {
			continue
		}
		if anchors[d]--; anchors[d] == 0 {
			p.changedDomains = append(p.changedDomains, groupDomains{g, g.universe, g.usable})
			without := func(s []string) []string {
				return slices.DeleteFunc(slices.Clone(s), func(x string) bool { return x == d })
			}
			g.universe, g.usable = without(g.universe), without(g.usable)
		}
	}
}

// count adds the pods on a node to the counts of their groups, times by.
func (p *Problem) count(n *node, by int) {
	add := func(g *group, pod *corev1.Pod) {
		if d, ok := n.domain(g.key); ok {
			if g.counts[d] += by; g.counts[d] == 0 {
				delete(g.counts, d)
			}
		}
	}
	for _, q := range p.addedPods[n] {
		for _, list := range [...][]*group{q.class.matches, q.class.declares} {
			for _, g := range list {
				if p.sv.counts(g, n) {
					add(g, q.pod)
				}
			}
		}
	}
	for _, pod := range n.src.Pods {
		q, ok := p.boundPods[pod]
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

// restoreRemoved brings removed nodes back.
func (p *Problem) restoreRemoved() {
	for _, r := range slices.Backward(p.changedDomains) {
		r.g.universe, r.g.usable = r.universe, r.usable
	}
	for _, n := range p.removed {
		n.removed = false
		p.count(n, 1)
		for g, anchors := range p.domainNodes {
			if d, ok := p.sv.domainProvided(n, g); ok {
				if _, counted := anchors[d]; counted {
					anchors[d]++
				}
			}
		}
	}
	p.removed, p.changedDomains = p.removed[:0], p.changedDomains[:0]
}

// nodeState is what scheduling pods changes about a node.
type nodeState struct {
	free     resources.Vec
	ports    []resources.HostPort
	attached map[attachment]bool
	inUse    map[string]int32
}

// touch saves the state of a node before the first change.
func (sv *solver) touch(n *node) {
	if n.touched {
		return
	}
	n.touched = true
	n.before = nodeState{n.free, slices.Clip(n.ports), n.attached, n.inUse}
	n.ports = n.before.ports
	sv.touchedNodes = append(sv.touchedNodes, n)
}

// touchVolumes gives a node its own copy of volume counts to change.
func (sv *solver) touchVolumes(n *node) {
	if !n.ownVolumes {
		n.ownVolumes = true
		n.attached, n.inUse = maps.Clone(n.attached), maps.Clone(n.inUse)
	}
}

// touchGroup gives a group its own copy of counts to change.
func (sv *solver) touchGroup(g *group) {
	if !g.touched {
		g.touched = true
		g.before = g.counts
		g.counts = maps.Clone(g.counts)
		sv.touchedGroups = append(sv.touchedGroups, g)
	}
}

// undoRun restores everything that a run has changed.
func (sv *solver) undoRun() {
	for _, n := range sv.touchedNodes {
		n.free, n.ports, n.attached, n.inUse = n.before.free, n.before.ports, n.before.attached, n.before.inUse
		n.placed, n.devices, n.touched, n.ownVolumes = nil, nil, false, false
	}
	for _, g := range sv.touchedGroups {
		g.counts, g.uncertain, g.countsByBin, g.undecided, g.touched = g.before, nil, g.countsByBin[:0], 0, false
	}
	for _, t := range sv.pools.All() {
		t.Undo()
	}
	sv.slots.Undo()
	sv.touchedNodes, sv.touchedGroups, sv.bins, sv.rejected = sv.touchedNodes[:0], sv.touchedGroups[:0], nil, nil
	sv.rooms.clear()
	sv.planned, sv.steps, sv.relaxedPreferences, sv.cost = sv.planned[:0], 0, 0, 0
	sv.stepsOfClass = nil
	sv.devices = nil
}
