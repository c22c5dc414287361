package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Simulation describes a what-if: some nodes are removed, and their pods must be scheduled elsewhere.
type Simulation struct {
	// Removed are indices into the snapshot's Nodes.
	Removed []int
	// Pods of those nodes that must be scheduled, besides those that are pending.
	Pods []*corev1.Pod
	// Targets are indices of the nodes that may take pods, in the order in which they are filled; nil means all nodes.
	Targets []int
	// Alone leaves the pending pods of the snapshot out: nobody else waits for room.
	Alone bool
	// ExistingNodesOnly allows existing nodes only, whatever preferences that drops.
	ExistingNodesOnly bool
	Budget            Budget
}

// Simulate plans the what-if. Limits count the removed nodes, since they exist until their replacements are ready.
func (p *Problem) Simulate(q Simulation) Plan {
	defer p.restoreRemoved()
	queue := p.queue(q)
	if q.Targets != nil {
		defer p.sv.nodes.Limit(p.destinations(q.Targets, queue))()
	}
	if q.ExistingNodesOnly {
		defer p.sv.pools.Hide()()
	}
	return p.sv.solveQueue(queue, q.Budget)
}

// queue removes the nodes and lists the pods that must be scheduled.
func (p *Problem) queue(q Simulation) []*queuedPod {
	var queue []*queuedPod
	if !q.Alone {
		queue = slices.Clone(p.pending)
	}
	for _, i := range q.Removed {
		n := p.nodes[i]
		queue = append(queue, p.addedPods[n]...)
		p.remove(n)
	}
	for _, pod := range q.Pods {
		if queued, ok := p.boundPods[pod]; ok {
			queue = append(queue, queued)
		}
	}
	slices.SortFunc(queue, queueOrder)
	return queue
}

// destinations are the nodes with room for the least that any pod of the queue requests; in a large, well-used cluster
// these are few. Nodes with nominated pods are always among them.
func (p *Problem) destinations(into []int, queue []*queuedPod) []*existing.Node {
	var least resources.Vec
	for _, queued := range queue {
		if len(queued.class.Invalid()) > 0 {
			continue
		}
		if least == nil {
			least = slices.Clone(queued.class.Requests())
			continue
		}
		for axis, r := range queued.class.Requests() {
			least[axis] = min(least[axis], r)
		}
	}
	out := p.targetBuf[:0]
	for _, i := range into {
		if n := p.nodes[i]; len(n.Source().Nominated) > 0 || n.TakesPods() && least.Fits(n.Free()) {
			out = append(out, n)
		}
	}
	p.targetBuf = out
	return out
}

// appliedPlan is what an applied plan has changed, as it was before.
type appliedPlan struct {
	removed   []*existing.Node
	pending   []*queuedPod
	nodes     existing.Kept
	addedPods map[*existing.Node][]*queuedPod
	counts    topology.KeptCounts
	limitLeft []resources.Vec
	slots     reservation.State
	launched  int
	lost      []topology.LostDomain
}

// Apply applies a plan of Simulate: later simulations see the cluster after it. Its nodes are removed, its pods are on their
// new nodes, and its launches have taken their share of limits and reservations. Pods on launches count in domains that
// are known; no other pod can join them.
//
// Pending pods that the plan mentions, even as rejected, are not planned again unless their new node is removed.
func (p *Problem) Apply(q Simulation, plan *Plan) {
	sv := p.sv
	h := appliedPlan{
		pending: p.pending, addedPods: map[*existing.Node][]*queuedPod{},
		slots: sv.slots.Marked(), launched: sv.topology.Launched(),
	}
	for _, t := range sv.pools.All() {
		h.limitLeft = append(h.limitLeft, t.Marked())
	}
	for _, i := range q.Removed {
		p.remove(p.nodes[i])
	}
	h.removed, h.lost = slices.Clone(p.removed), p.removals.Keep()
	p.removed = p.removed[:0]
	if p.addedPods == nil {
		p.addedPods = map[*existing.Node][]*queuedPod{}
	}
	planned := plan.Pods()
	p.pending = slices.DeleteFunc(slices.Clone(p.pending), func(queued *queuedPod) bool { return planned[queued.pod] })
	for _, i := range q.Removed {
		n := p.nodes[i]
		for _, queued := range p.addedPods[n] {
			if !planned[queued.pod] {
				p.pending = append(p.pending, queued)
			}
		}
		h.addedPods[n] = p.addedPods[n]
		delete(p.addedPods, n)
	}
	for _, pl := range plan.Placements {
		n := p.placementNode(pl)
		if n == nil {
			continue
		}
		guests := slices.Clone(p.addedPods[n])
		h.addedPods[n] = p.addedPods[n]
		for _, pod := range pl.Pods {
			if queued := p.find(pod); queued != nil {
				sv.join(n, queued.class, pod)
				for _, list := range [...][]*topology.Group{queued.class.Matches(), queued.class.Declares()} {
					for _, g := range list {
						sv.topology.NoteMoved(g, n.Topology(), pod)
					}
				}
				guests = append(guests, queued)
			}
		}
		p.addedPods[n] = guests
	}
	for i := range plan.Launches {
		p.applyLaunch(&plan.Launches[i])
	}
	h.nodes, h.counts = sv.nodes.Keep(), sv.topology.Keep()
	for _, t := range sv.pools.All() {
		t.Mark()
	}
	sv.slots.Mark()
	p.applied = append(p.applied, h)
}

// applyLaunch counts a launch's pods in the domains that are known, and subtracts what it takes of limits and
// reservations.
func (p *Problem) applyLaunch(l *Launch) {
	sv := p.sv
	at := slices.IndexFunc(sv.pools.All(), func(t *nodepool.Template) bool { return t.Pool() == l.Pool })
	if at < 0 {
		return
	}
	t := sv.pools.All()[at]
	t.TakeLargest(l.InstanceTypes)
	sv.topology.AddLaunched(l.Requirements, t.ForTopology())
	sv.slots.TakeNamed(l.Reservations(sv.s.Labels.ReservationID))
	for _, coming := range t.Candidates(l.Requirements).Coming(sv.topology.CountedDaemons(), nil) {
		sv.topology.CountLaunchedDaemon(coming, l.Requirements, t.ForTopology())
	}
	for _, pod := range l.Pods {
		queued := p.find(pod)
		if queued == nil {
			continue
		}
		for _, list := range [...][]*topology.Group{queued.class.Matches(), queued.class.Declares()} {
			for _, g := range list {
				sv.topology.CountLaunched(g, l.Requirements, t.ForTopology())
			}
		}
	}
}

// Revert reverts all applied plans.
func (p *Problem) Revert() { p.RevertTo(0) }

// AppliedPlans is the number of applied plans.
func (p *Problem) AppliedPlans() int { return len(p.applied) }

// RevertTo reverts the applied plans after the first n.
func (p *Problem) RevertTo(n int) {
	sv := p.sv
	for _, h := range slices.Backward(p.applied[n:]) {
		sv.topology.Restore(h.counts)
		sv.nodes.Restore(h.nodes)
		p.pending = h.pending
		for n, guests := range h.addedPods {
			if len(guests) == 0 {
				delete(p.addedPods, n)
			} else {
				p.addedPods[n] = guests
			}
		}
		for i, t := range sv.pools.All() {
			t.Restore(h.limitLeft[i])
		}
		sv.slots.Restore(h.slots)
		sv.topology.TruncateLaunched(h.launched)
		p.removed = append(p.removed, h.removed...)
		p.removals.Reopen(h.lost)
		p.restoreRemoved()
	}
	p.applied = p.applied[:n]
}

// TopologyNeutral reports whether no topology constraint concerns any of the pods: then moving them does not change where
// other pods can go.
func (p *Problem) TopologyNeutral(pods []*corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		queued := p.find(pod)
		if queued == nil {
			return false
		}
		k := queued.class.Constraints
		return len(k.Matches())+len(k.Declares())+len(k.BlockedBy()) > 0 ||
			slices.ContainsFunc(k.Levels(), func(level *podclass.Level) bool { return len(level.Groups()) > 0 })
	})
}

// placementNode finds the node of a placement.
func (p *Problem) placementNode(pl Placement) *existing.Node {
	if p.byName == nil {
		p.byName = make(map[nodeID]*existing.Node, len(p.nodes))
		for _, n := range p.nodes {
			p.byName[nodeID{n.Source().Name, n.Source().Claim}] = n
		}
	}
	return p.byName[nodeID{pl.Node, pl.Claim}]
}

// nodeID identifies a node as placements do.
type nodeID struct{ node, claim string }

// find returns the compiled pod; nil if the Problem does not have it.
func (p *Problem) find(pod *corev1.Pod) *queuedPod {
	if queued, ok := p.boundPods[pod]; ok {
		return queued
	}
	return p.pendingPods[pod]
}

// PodValues is the value of pods and free room at dual prices, in $/h: the least cost of new nodes for all movable pods,
// divided among them.
type PodValues struct {
	p       *Problem
	program *lp.Program
	// Total is the value of all pods. No plan that launches nodes for all of them costs less, reservations aside.
	Total float64
}

// DualValues computes the value of the pods, which are bound to nodes of the snapshot. It is valid until the next
// simulation.
func (p *Problem) DualValues(pods []*corev1.Pod) *PodValues {
	queue := make([]*queuedPod, 0, len(pods))
	for _, pod := range pods {
		if queued := p.find(pod); queued != nil {
			queue = append(queue, queued)
		}
	}
	slices.SortFunc(queue, queueOrder)
	r := p.sv.begin(attempt{queue: queue, how: balanced})
	r.start()
	r.sumFreeRoom()
	r.priceQueue()
	w := &PodValues{p: p, program: r.prices.market.Program(), Total: r.prices.market.Total()}
	r.undo()
	return w
}

// Pod is the value of the pod.
func (w *PodValues) Pod(pod *corev1.Pod) float64 {
	queued := w.p.find(pod)
	if queued == nil || queued.class.run != w.p.sv.running.number {
		return 0
	}
	return queued.class.boundValue
}

// Room is the most value of pods that the free room of a node can hold besides what is there.
func (w *PodValues) Room(i int) float64 {
	if n := w.p.nodes[i]; n.TakesPods() && w.program != nil {
		return w.program.RoomValue(n.Free())
	}
	return 0
}
