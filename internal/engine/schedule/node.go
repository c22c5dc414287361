package schedule

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// node is an existing or in-flight node of the snapshot with what this Solve has put on it.
type node struct {
	index  int
	src    *snapshot.Node
	labels requirement.Set
	// open nodes take pods. Nodes that are terminating or await repair and claims of unknown size do not.
	open  bool
	free  resources.Vec
	ports []resources.HostPort
	// attached and inUse count distinct volumes per driver with a limit here.
	attached map[attachment]bool
	inUse    map[string]int32
	limits   map[string]int32 // attach limits by driver
	placed   []*corev1.Pod
	devices  []DeviceUse // of placed
	// removed nodes do not exist in the current simulation.
	removed bool
	// before is the state at the start of a run, once the run has touched the node.
	before              nodeState
	touched, ownVolumes bool
	site                snapshot.DeviceNode // made on first use
}

// nodeOrder puts initialized nodes before in-flight ones, then goes by name.
func nodeOrder(a, b *snapshot.Node) int {
	if a.Initialized != b.Initialized {
		if a.Initialized {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Claim, b.Claim))
}

func (sv *solver) node(src *snapshot.Node, index int) *node {
	n := &node{
		index: index, src: src, open: !src.Deleting && !src.AwaitsRepair() && (src.Launched || src.Claim == ""),
		labels: sv.s.Labels.FromNode(src.Labels), attached: map[attachment]bool{}, inUse: map[string]int32{},
	}
	if !n.labels.Defines(corev1.LabelHostname) {
		n.labels = n.labels.With(requirement.In(corev1.LabelHostname, src.Name))
	}
	if !n.open {
		if reqs, err := sv.s.Labels.FromAPI(src.Requirements); err == nil && !src.Launched {
			n.labels = n.labels.Intersect(reqs)
		}
		return n
	}
	n.free = sv.axes.Vec(src.Allocatable)
	n.limits = sv.volumeLimits(src)
	missing := sv.missingDaemons(n, sv.takeRunning(n))
	for driver, name := range sv.drivers {
		n.free[sv.axes.IndexOf(name)] = unlimited
		if limit, known := n.limits[driver]; known {
			n.free[sv.axes.IndexOf(name)] = int64(max(0, limit-n.inUse[driver]))
		}
	}
	for i, reserved := range missing {
		n.free[i] = quantity.Sub(n.free[i], max(0, reserved))
		// Only overcommitment of CPU, memory or pods closes a node to all pods. Of other resources it concerns pods
		// that request them: else the first pod to name a resource would close nodes to all others.
		if name := sv.axes.Name(i); name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods {
			n.free[i] = max(0, n.free[i])
		}
	}
	return n
}

// takeRunning subtracts what the node's running pods take: resources, host ports and attached volumes. It returns the
// requests of its daemon pods.
func (sv *solver) takeRunning(n *node) (daemons resources.Vec) {
	daemons = make(resources.Vec, sv.axes.Len())
	for _, pod := range n.src.Pods {
		if snapshot.Terminal(pod) || sv.pending[pod.UID] {
			continue
		}
		v := sv.axes.Vec(snapshot.Requests(pod))
		n.free = n.free.Minus(v)
		if snapshot.DaemonOwned(pod) {
			daemons = daemons.Plus(v)
		}
		n.ports = append(n.ports, resources.HostPorts(pod)...)
		n.attach(attachments(podVolumes(sv.s, pod)))
	}
	return daemons
}

// missingDaemons is what daemons that belong on the node will still request there, beyond what its daemon pods do. It
// reserves the host ports and the volumes of daemons whose pods do not run there yet: a pod that takes them would keep
// the daemon off.
func (sv *solver) missingDaemons(n *node, running resources.Vec) resources.Vec {
	expected := make(resources.Vec, sv.axes.Len())
	for _, d := range sv.daemons {
		if !d.runsOn(n.labels, n.src.Taints) {
			continue
		}
		expected = expected.Plus(d.Amounts)
		if len(d.Ports)+len(d.attached) > 0 && !d.isOn(n.src.Pods) {
			n.ports = append(n.ports, d.Ports...)
			n.attach(d.attached)
		}
	}
	return expected.Minus(running)
}

func (n *node) domain(key string) (string, bool) {
	return n.labels.Get(key).Single()
}

func (n *node) attach(list []attachment) {
	for _, a := range list {
		if !n.attached[a] {
			n.attached[a] = true
			n.inUse[a.driver]++
		}
	}
}

// attachable reports whether the node can attach the volumes.
func (n *node) attachable(list []attachment) bool {
	if len(n.limits) == 0 {
		return true
	}
	if len(list) == 0 {
		return true
	}
	extra := map[attachment]bool{}
	more := map[string]int32{}
	for _, a := range list {
		if !n.attached[a] && !extra[a] {
			extra[a] = true
			more[a.driver]++
		}
	}
	for driver, k := range more {
		if limit, ok := n.limits[driver]; ok && n.inUse[driver]+k > limit {
			return false
		}
	}
	return true
}

// canJoin reports whether the pod fits on the node, and if not, whether that is final in this Solve.
func (sv *solver) canJoin(n *node, c *class, level *relaxationLevel) (ok, never bool) {
	sv.steps++
	if !n.open || n.removed {
		return false, true
	}
	if _, blocked := snapshot.Untolerated(level.tolerations, n.src.Taints); blocked {
		return false, true
	}
	if !c.requests.Fits(n.free) || c.ports.Clash(n.ports) || !n.attachable(c.attached) {
		return false, true
	}
	if !n.labels.Compatible(level.full, nil) {
		return false, true
	}
	if !slices.ContainsFunc(c.volumes, func(alt requirement.Interned) bool { return n.labels.Compatible(alt.Set, nil) }) {
		return false, true
	}
	views := c.views(level)
	sv.steps += len(views) + level.labelSteps()
	for _, v := range views {
		domain, has := n.domain(v.g.key)
		if !has && v.keepsApart() && (n.src.Initialized || v.g.typ == inverse && v.g.empty()) {
			continue // no domain means no neighbors; nor does an unscheduled pod's anti-affinity count
		}
		if !has || !v.allows(domain) {
			return false, v.permanent()
		}
	}
	return sv.hasDevices(n, c)
}

// join puts the pod on the node and counts it there.
func (sv *solver) join(n *node, c *class, pod *corev1.Pod) {
	sv.touch(n)
	sv.allocateNodeDevices(n, c, pod)
	if n.free != nil {
		n.free = n.free.Minus(c.requests)
	}
	c.onExisting++
	n.ports = append(n.ports, c.ports.All()...)
	if len(c.attached) > 0 {
		sv.touchVolumes(n)
		n.attach(c.attached)
	}
	n.placed = append(n.placed, pod)
	for _, list := range [][]*group{c.matches, c.declares} {
		for _, g := range list {
			if sv.counts(g, n) {
				sv.touchGroup(g)
				sv.countOn(n, g)
			}
		}
	}
}

// countOn adds a pod on the node to a group. A claim that is not launched may come up in one of several domains: pods
// that keep apart avoid all of them.
func (sv *solver) countOn(n *node, g *group) {
	domain, ok := n.domain(g.key)
	switch {
	case ok:
		g.add(domain, 1, n.src.Launched || n.src.Claim == "" || g.filter.certain(n.labels, nil, sv.s.Labels.WellKnown))
	case n.src.Launched || n.src.Claim == "": // the node has no such label
	case g.typ == spread || g.typ == affinity:
		g.undecided += btoi(len(sv.domainsOf(g, n.labels)) > 0)
	default:
		for _, d := range sv.domainsOf(g, n.labels) {
			g.counts[d]++
		}
	}
}
