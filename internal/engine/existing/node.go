package existing

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Node is an existing or in-flight node of the snapshot with what a run has put on it.
type Node struct {
	labels topology.Node // as far as they are known
	src    *snapshot.Node
	open   bool
	state
	placed  []*corev1.Pod
	devices []plan.DeviceUse // of placed
	// removed nodes do not exist in the current simulation.
	removed bool
	// before is the state at the start of a run, once the run has touched the node.
	before              state
	touched, ownVolumes bool
	site                snapshot.DeviceNode // made on first use
}

// state describes what scheduling pods changes about a node.
type state struct {
	free    resources.Vec
	ports   []resources.HostPort
	volumes volume.Attached
}

// Source is the node as the snapshot has it.
func (n *Node) Source() *snapshot.Node { return n.src }

// Topology is the node as topology counts it, with its labels as far as they are known.
func (n *Node) Topology() *topology.Node { return &n.labels }

// TakesPods reports whether the node is open: pods may join it while it is not removed.
func (n *Node) TakesPods() bool { return n.open }

// Exists reports whether the node is not removed.
func (n *Node) Exists() bool { return !n.removed }

// Remove takes the node out of the current simulation; Return brings it back.
func (n *Node) Remove() { n.removed, n.labels.Removed = true, true }

// Return is the reverse of Remove.
func (n *Node) Return() { n.removed, n.labels.Removed = false, false }

// Free is the room that is left. It is nil for closed nodes.
func (n *Node) Free() resources.Vec { return n.free }

// FreeBefore is the room at the start of the run.
func (n *Node) FreeBefore() resources.Vec {
	if n.touched {
		return n.before.free
	}
	return n.free
}

// Placement returns what the run has put on the node; without pods if nothing.
func (n *Node) Placement() plan.Placement {
	return plan.Placement{Node: n.src.Name, Claim: n.src.Claim, Pods: n.placed, Devices: n.devices}
}

// order puts nodes that pods can run on now before in-flight ones, then goes by name.
func order(a, b *snapshot.Node) int {
	if usable := a.Usable(); usable != b.Usable() {
		if usable {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Claim, b.Claim))
}

// node models a node of the snapshot.
func (s *Set) node(src *snapshot.Node) *Node {
	labels := s.c.Snapshot.Labels
	n := &Node{
		src: src, open: !src.Deleting && !src.AwaitsRepair() && (src.Launched || src.Claim == ""),
		labels: topology.Node{
			Name: src.Name, Labels: s.labels(src), Taints: src.Taints, Pods: src.Pods,
			Unlaunched: src.Claim != "" && !src.Launched, Deleting: src.Deleting,
		},
	}
	defer s.addComing(n)
	if !n.open {
		if reqs, err := labels.FromAPI(src.Requirements); err == nil && !src.Launched {
			n.labels.Labels = n.labels.Labels.Intersect(reqs)
		}
		return n
	}
	n.free = s.c.Axes.Vec(src.Allocatable)
	n.volumes = volume.NewAttached(s.c.Volumes.OfNode(src))
	missing := s.missingDaemons(n, s.takeRunning(n))
	s.c.Volumes.LimitNode(n.free, s.c.Axes, &n.volumes)
	s.c.Volumes.StoreOnNode(n.free, s.c.Axes, src)
	for i, reserved := range missing {
		n.free[i] = quantity.Sub(n.free[i], max(0, reserved))
		// kube-scheduler compares only what a pod requests: a node that is overdrawn on an axis is full for pods that request some of it, and
		// open to others. All pods count as one of resource "pods".
		n.free[i] = max(0, n.free[i])
	}
	return n
}

// labels returns those of a node, as far as they are known, with its name. A node that is not initialized will get more of them.
func (s *Set) labels(src *snapshot.Node) requirement.Set {
	out := s.c.Snapshot.Labels.FromNode(src.Labels)
	var more []requirement.Requirement
	if !out.Defines(corev1.LabelHostname) && !src.Initialized { // kubelet sets it; without it, kube-scheduler sees no host
		more = append(more, requirement.In(corev1.LabelHostname, src.Name))
	}
	if src.Named() {
		more = append(more, requirement.In(requirement.FieldName, src.Name))
	}
	out = out.With(more...)
	if !src.Initialized {
		out = s.newNode.Join(out)
	}
	return out
}

// takeRunning subtracts what the node's running pods take: resources, host ports and attached volumes. It returns the
// requests of its daemon pods.
func (s *Set) takeRunning(n *Node) (daemons resources.Vec) {
	daemons = make(resources.Vec, s.c.Axes.Len())
	for _, pod := range n.src.Pods {
		if snapshot.Terminal(pod) || s.c.Pending[pod.UID] {
			continue
		}
		v := s.requests.Of(pod)
		n.free = n.free.Minus(v)
		if snapshot.DaemonOwned(pod) {
			daemons = daemons.Plus(v)
		}
		n.ports = append(n.ports, resources.HostPorts(pod)...)
		n.volumes.Attach(volume.AttachmentsOf(s.c.Snapshot, pod))
	}
	return daemons
}

// missingDaemons returns what daemons that belong on the node will still request there, beyond what its daemon pods do. It
// reserves the host ports and the volumes of daemons with pods that do not run there yet: a pod that takes them would keep
// the daemon off.
func (s *Set) missingDaemons(n *Node, running resources.Vec) resources.Vec {
	expected := make(resources.Vec, s.c.Axes.Len())
	for i, d := range s.c.Daemons {
		if !s.runs(d, n) {
			continue
		}
		rivals := make(resources.Vec, len(expected)) // one of all runs
		for _, rival := range d.Rivals.Members() {
			if rival < i && s.runs(s.c.Daemons[rival], n) {
				rivals = rivals.Max(s.c.Daemons[rival].Amounts)
			}
		}
		expected = expected.Plus(d.Amounts.Max(rivals).Minus(rivals))
		if len(d.Ports)+len(d.attached) > 0 && !d.isOn(n.src.Pods) {
			n.ports = append(n.ports, d.Ports...)
			n.volumes.Attach(d.attached)
		}
	}
	return expected.Minus(running)
}

// runs reports whether the daemon's pods run on the node, or may once it is initialized.
func (s *Set) runs(d *Daemon, n *Node) bool {
	return s.onceInitialized(d, n).runsOn(n.labels.Labels, n.src.Taints)
}

// onceInitialized is the daemon with what it requires of a node beyond the labels that the node will still get.
func (s *Set) onceInitialized(d *Daemon, n *Node) *Daemon {
	if n.src.Initialized {
		return d
	}
	joining := *d
	joining.Alternatives = make([]requirement.Set, len(d.Alternatives))
	for i, alt := range d.Alternatives {
		joining.Alternatives[i] = s.newNode.Possible(alt, n.labels.Labels)
	}
	return &joining
}

// addComing notes which DaemonSets' pods are still to come to a node that is not initialized.
func (s *Set) addComing(n *Node) {
	if n.src.Initialized || n.src.Claim == "" || n.src.Deleting {
		return
	}
	var undefined map[string]bool
	if n.labels.Unlaunched {
		undefined = s.c.Snapshot.Labels.WellKnown
	}
	for i, d := range s.c.Daemons {
		joining := s.onceInitialized(d, n)
		if joining.mayRunOn(n.labels.Labels, n.src.Taints, undefined) && !d.isOn(n.src.Pods) {
			surely := !n.labels.Unlaunched || joining.runsOn(n.labels.Labels, n.src.Taints)
			n.labels.Coming = append(n.labels.Coming, topology.ComingDaemon{Number: i, Surely: surely})
		}
	}
	for k := range n.labels.Coming {
		c := &n.labels.Coming[k]
		for _, rival := range s.c.Daemons[c.Number].Rivals.Members() {
			if slices.ContainsFunc(n.labels.Coming, func(o topology.ComingDaemon) bool { return o.Number == rival }) {
				c.Rivals.Add(rival)
			}
			c.Surely = c.Surely && !s.c.Daemons[rival].isOn(n.src.Pods)
		}
	}
}

// touch saves the state of a node before the first change.
func (s *Set) touch(n *Node) {
	if n.touched {
		return
	}
	n.touched = true
	n.before = state{n.free, slices.Clip(n.ports), n.volumes}
	n.ports = n.before.ports
	s.touched = append(s.touched, n)
}

// settle stops the run for a node: its state is that of the next run.
func (n *Node) settle() {
	n.placed, n.devices, n.touched, n.ownVolumes = nil, nil, false, false
}
