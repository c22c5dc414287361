package schedule

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Problem is a snapshot compiled for simulations: what would the plan be if these nodes were gone? A simulation copies
// what it changes on the first change and restores it at the end, so it costs in proportion to the pods that it moves.
//
// The snapshot must not change while the Problem is in use. Simulations must not run concurrently.
type Problem struct {
	sv        *solver
	nodes     []*existing.Node // in the order of the snapshot
	pending   []*queuedPod
	boundPods map[*corev1.Pod]*queuedPod
	// removals are the domains that the removed nodes have taken with them.
	removals *topology.Removals
	removed  []*existing.Node
	// applied are the plans applied so far, addedPods the pods that they put on nodes; pendingPods finds pods that were
	// pending.
	applied     []appliedPlan
	addedPods   map[*existing.Node][]*queuedPod
	pendingPods map[*corev1.Pod]*queuedPod
	byName      map[nodeID]*existing.Node
	targetBuf   []*existing.Node // buffer of destinations
}

// Compile prepares a snapshot for simulations.
func Compile(s *snapshot.Snapshot) *Problem {
	p := &Problem{
		sv:          newSolver(s),
		nodes:       make([]*existing.Node, len(s.Nodes)),
		boundPods:   map[*corev1.Pod]*queuedPod{},
		pendingPods: map[*corev1.Pod]*queuedPod{},
	}
	p.sv.groups = snapshot.ReadGroups(s)
	p.sv.domains = fixedDomains(p.sv.groups)
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
	for _, n := range p.sv.nodes.All() {
		p.nodes[place[n.Source()]] = n
	}
	p.removals = p.sv.topology.Removals()
	return p
}

// WhatIf is the plan for the snapshot without the nodes, given as indices into its Nodes, and with the given pods of
// theirs pending. Limits count the nodes as if they still existed, since they do until their replacements are ready.
func (p *Problem) WhatIf(gone []int, pods []*corev1.Pod, budget Budget) Plan {
	return p.Simulate(Simulation{Removed: gone, Pods: pods, Budget: budget})
}

// remove takes a node and its pods out of all counts.
func (p *Problem) remove(n *existing.Node) {
	if !n.Exists() {
		return
	}
	n.Remove()
	p.removed = append(p.removed, n)
	p.count(n, -1)
	p.removals.Remove(n.Topology())
}

// count adds the pods on a node to the counts of their groups, times by.
func (p *Problem) count(n *existing.Node, by int) {
	p.sv.topology.AddComing(n.Topology(), by)
	for _, q := range p.addedPods[n] {
		for _, list := range [...][]*topology.Group{q.class.Matches(), q.class.Declares()} {
			for _, g := range list {
				if p.sv.topology.Counts(g, n.Topology()) {
					g.AddRunning(n.Topology(), by)
				}
			}
		}
	}
	for _, pod := range n.Source().Pods {
		q, ok := p.boundPods[pod]
		if !ok {
			continue
		}
		for _, g := range q.class.Matches() {
			if p.sv.topology.CountsRunning(g, n.Topology()) && p.sv.topology.CountsPod(g, n.Topology(), pod) {
				g.AddRunning(n.Topology(), by)
			}
		}
		for _, g := range q.class.Declares() {
			if p.sv.topology.CountsPod(g, n.Topology(), pod) {
				g.AddRunning(n.Topology(), by)
			}
		}
	}
}

// restoreRemoved brings removed nodes back.
func (p *Problem) restoreRemoved() {
	p.removals.RestoreDomains()
	for _, n := range p.removed {
		n.Return()
		p.count(n, 1)
		p.removals.Return(n.Topology())
	}
	p.removed = p.removed[:0]
}

// undo restores everything that the run has changed.
func (r *run) undo() {
	r.mergeZones()
	r.nodes.Undo()
	r.topology.Undo()
	for _, t := range r.pools.All() {
		t.Undo()
	}
	r.slots.Undo()
	r.bins.Clear()
	r.steps = 0
	r.devices.End()
}
