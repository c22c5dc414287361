package schedule

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// node is an existing or in-flight node of the snapshot with what this Solve has put on it.
type node struct {
	topology.Node // its labels, as far as they are known
	index         int
	src           *snapshot.Node
	// open nodes take pods. Nodes that are terminating or await repair and claims of unknown size do not.
	open    bool
	free    resources.Vec
	ports   []resources.HostPort
	volumes volume.Attached
	placed  []*corev1.Pod
	devices []DeviceUse // of placed
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
		Node: topology.Node{
			Labels: sv.s.Labels.FromNode(src.Labels), Taints: src.Taints, Pods: src.Pods,
			Unlaunched: src.Claim != "" && !src.Launched, Deleting: src.Deleting,
		},
	}
	if !n.Labels.Defines(corev1.LabelHostname) {
		n.Labels = n.Labels.With(requirement.In(corev1.LabelHostname, src.Name))
	}
	if !n.open {
		if reqs, err := sv.s.Labels.FromAPI(src.Requirements); err == nil && !src.Launched {
			n.Labels = n.Labels.Intersect(reqs)
		}
		return n
	}
	n.free = sv.axes.Vec(src.Allocatable)
	n.volumes = volume.NewAttached(sv.volumes.OfNode(src))
	missing := sv.missingDaemons(n, sv.takeRunning(n))
	sv.volumes.LimitNode(n.free, sv.axes, &n.volumes)
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
		n.volumes.Attach(volume.Attachments(volume.Of(sv.s, pod)))
	}
	return daemons
}

// missingDaemons is what daemons that belong on the node will still request there, beyond what its daemon pods do. It
// reserves the host ports and the volumes of daemons whose pods do not run there yet: a pod that takes them would keep
// the daemon off.
func (sv *solver) missingDaemons(n *node, running resources.Vec) resources.Vec {
	expected := make(resources.Vec, sv.axes.Len())
	for _, d := range sv.daemons {
		if !d.runsOn(n.Labels, n.src.Taints) {
			continue
		}
		expected = expected.Plus(d.Amounts)
		if len(d.Ports)+len(d.attached) > 0 && !d.isOn(n.src.Pods) {
			n.ports = append(n.ports, d.Ports...)
			n.volumes.Attach(d.attached)
		}
	}
	return expected.Minus(running)
}

// canJoin reports whether the pod fits on the node, and if not, whether that is final in this Solve.
func (sv *solver) canJoin(n *node, c *class, level *podclass.Level) (ok, never bool) {
	sv.steps++
	if !n.open || n.removed {
		return false, true
	}
	if _, blocked := snapshot.Untolerated(level.Tolerations(), n.src.Taints); blocked {
		return false, true
	}
	if !c.Requests().Fits(n.free) || c.Ports().Clash(n.ports) || !n.volumes.CanAttach(c.Attached()) {
		return false, true
	}
	if !n.Labels.Compatible(level.Full(), nil) {
		return false, true
	}
	if !slices.ContainsFunc(c.Volumes(), func(alt requirement.Interned) bool { return n.Labels.Compatible(alt.Set, nil) }) {
		return false, true
	}
	views := c.Views(level)
	sv.steps += len(views) + level.LabelSteps()
	for i := range views {
		v := &views[i]
		domain, has := n.Domain(v.Key())
		if !has && v.KeepsApart() && (n.src.Initialized || v.Group().Empty()) {
			continue // no domain means no neighbors, and no pods of the group mean none in any domain
		}
		if !has || !v.Allows(domain) {
			return false, v.Permanent()
		}
	}
	return sv.hasDevices(n, c)
}

// join puts the pod on the node and counts it there.
func (sv *solver) join(n *node, c *class, pod *corev1.Pod) {
	sv.touch(n)
	sv.allocateNodeDevices(n, c, pod)
	if n.free != nil {
		n.free = n.free.Minus(c.Requests())
	}
	c.onExisting++
	n.ports = append(n.ports, c.Ports().All()...)
	if len(c.Attached()) > 0 {
		sv.touchVolumes(n)
		n.volumes.Attach(c.Attached())
	}
	n.placed = append(n.placed, pod)
	for _, list := range [][]*topology.Group{c.Matches(), c.Declares()} {
		for _, g := range list {
			sv.topology.CountOn(g, &n.Node)
		}
	}
}
