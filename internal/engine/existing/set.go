package existing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/support"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Config describes what existing nodes depend on. All fields are required.
type Config struct {
	Snapshot *snapshot.Snapshot
	Axes     resources.Axes
	Topology *topology.Registry
	Volumes  *volume.Limits
	Devices  *devices.State
	Daemons  []*Daemon
	// Pending are the pods that are planned, wherever they are in the snapshot.
	Pending map[types.UID]bool
	// Steps counts checks of a node for a pod, and of topology rules there.
	Steps *int
}

// Set is the nodes of a snapshot, in the order in which they are filled.
type Set struct {
	c       Config
	newNode requirement.NewNode
	support *support.Index
	all     []*Node
	touched []*Node
	// requests of running pods, which callers do not change.
	requests *snapshot.RequestCache[resources.Vec]
}

// NewSet models the snapshot's nodes, initialized ones first, then by name. Topology counts their pods.
func NewSet(c Config) *Set {
	s := &Set{
		c: c, support: support.NewIndex(c.Snapshot), newNode: c.Snapshot.Labels.OfNewNode(c.Snapshot.JoinValues()),
		requests: snapshot.NewRequestCache(func(pod *corev1.Pod) resources.Vec { return c.Axes.Vec(snapshot.Requests(pod)) }),
	}
	sources := make([]*snapshot.Node, len(c.Snapshot.Nodes))
	for i := range c.Snapshot.Nodes {
		sources[i] = &c.Snapshot.Nodes[i]
	}
	slices.SortFunc(sources, order)
	for _, src := range sources {
		n := s.node(src)
		s.all = append(s.all, n)
		c.Topology.AddNode(&n.labels)
	}
	return s
}

// All are the nodes. The caller must not modify the list.
func (s *Set) All() []*Node { return s.all }

// Limit leaves only some nodes, in their order, until the returned function is called.
func (s *Set) Limit(nodes []*Node) (end func()) {
	all := s.all
	s.all = nodes
	return func() { s.all = all }
}

// AnyOpen reports whether any node takes pods.
func (s *Set) AnyOpen() bool {
	return slices.ContainsFunc(s.all, func(n *Node) bool { return n.open && !n.removed })
}

// AnyNominated reports whether any node was launched for pods of the snapshot.
func (s *Set) AnyNominated() bool {
	return slices.ContainsFunc(s.all, func(n *Node) bool { return len(n.src.Nominated) > 0 && !n.removed })
}

// Holds reports whether any node that takes pods has room for the requests.
func (s *Set) Holds(requests resources.Vec) bool {
	return slices.ContainsFunc(s.all, func(n *Node) bool { return n.open && requests.Fits(n.free) })
}

// List is the nodes that may still take a pod of one class at one relaxation level, in order. Its zero value has all nodes
// still to check. It is valid for one run.
//
// Invariant: a node that is checked and not kept can never again take a pod of the class.
type List struct {
	// kept holds those of the first nodes of the Set that may still take a pod; checked is how many these are. Of large clusters, few are
	// kept: a list of all nodes for each class would be most of the memory of a plan.
	kept    []*Node
	checked int
}

// Put puts the pod on the first node that takes it, and reports whether there is one. The list is that of its class and
// level.
func (s *Set) Put(c *podclass.Class, level *podclass.Level, pod *corev1.Pod, l *List) bool {
	kept := l.kept[:0]
	for k, n := range l.kept {
		ok, never := s.CanJoin(n, c, level)
		if ok {
			s.Join(n, c, pod)
			l.kept = append(kept, l.kept[k:]...)
			return true
		}
		if !never {
			kept = append(kept, n)
		}
	}
	l.kept = kept
	for ; l.checked < len(s.all); l.checked++ {
		n := s.all[l.checked]
		ok, never := s.CanJoin(n, c, level)
		if ok {
			s.Join(n, c, pod)
			return true
		}
		if !never {
			l.kept = append(l.kept, n)
		}
	}
	return false
}

// CanJoin reports whether the pod fits on the node, and if not, whether that is final in this run.
//
// Cost: room is checked first, then labels, then the views. No allocation, but for devices.
func (s *Set) CanJoin(n *Node, c *podclass.Class, level *podclass.Level) (ok, never bool) {
	*s.c.Steps++
	if !n.open || n.removed {
		return false, true
	}
	if _, blocked := snapshot.Untolerated(level.Tolerations(), n.src.Taints); blocked {
		return false, true
	}
	if !c.Requests().Fits(n.free) || c.Ports().Clash(n.ports) || !n.volumes.CanAttach(c.Attached()) {
		return false, true
	}
	// Nearly no pod needs anything, and this runs for each node and class: the call alone would take a third of a simulation.
	if c.NeedsSupport() && s.support.OnNode(n.src, c.Needs()) != "" {
		return false, true
	}
	if !n.labels.Labels.Compatible(level.Full(), nil) {
		return false, true
	}
	if !slices.ContainsFunc(c.Volumes(), func(alt requirement.Interned) bool { return n.labels.Labels.Compatible(alt.Set, nil) }) {
		return false, true
	}
	views := c.Views(level)
	*s.c.Steps += c.ViewSteps(level) + level.LabelSteps()
	for i := range views {
		v := &views[i]
		domain, has := v.Group().Domain(&n.labels)
		if !has && v.KeepsApart() && (n.src.Initialized || v.Group().Empty()) {
			continue // no domain means no neighbors, and no pods of the group mean none in any domain
		}
		if !has || !v.Allows(domain) {
			return false, v.Permanent()
		}
	}
	return s.hasDevices(n, c)
}

// Join puts the pod on the node and counts it there.
func (s *Set) Join(n *Node, c *podclass.Class, pod *corev1.Pod) {
	s.touch(n)
	s.allocateDevices(n, c, pod)
	if n.free != nil {
		n.free = n.free.Minus(c.Requests())
	}
	n.ports = append(n.ports, c.Ports().All()...)
	if len(c.Attached()) > 0 {
		if !n.ownVolumes {
			n.ownVolumes = true
			n.volumes = n.volumes.Clone()
		}
		n.volumes.Attach(c.Attached())
	}
	n.placed = append(n.placed, pod)
	for _, list := range [][]*topology.Group{c.Matches(), c.Declares()} {
		for _, g := range list {
			s.c.Topology.CountOn(g, &n.labels)
		}
	}
	if len(c.Beside()) == 0 {
		return
	}
	if _, in := snapshot.PodGroupOf(pod); in { // it may wait for others of its group, and these for new nodes
		for _, g := range c.Beside() {
			s.c.Topology.Beside(g, n.labels.Labels, 1)
		}
	}
}

// deviceSite is the node from the perspective of devices.
func (s *Set) deviceSite(n *Node) snapshot.DeviceNode {
	if n.site.Node == "" {
		n.site = s.c.Devices.Node(n.src, n.labels.Labels)
	}
	return n.site
}

// hasDevices reports whether a node has devices for the pods of the class, and if not, whether that is final in this
// run.
func (s *Set) hasDevices(n *Node, c *podclass.Class) (ok, never bool) {
	if len(c.Devices()) == 0 {
		return true, false
	}
	_, err := s.c.Devices.Find(c.Devices(), s.deviceSite(n))
	return err == nil, !devices.Shared(c.Devices())
}

// allocateDevices allocates devices for a pod on the node. A pod that keeps its node in any case may get none.
func (s *Set) allocateDevices(n *Node, c *podclass.Class, pod *corev1.Pod) {
	if len(c.Devices()) == 0 {
		return
	}
	if g, err := s.c.Devices.Find(c.Devices(), s.deviceSite(n)); err == nil {
		s.c.Devices.Take(c.Devices(), g)
		n.devices = append(n.devices, plan.DeviceUse{Pod: pod, Claims: c.Devices(), Grants: []snapshot.DeviceAllocation{g}})
	}
}

// Undo takes back what the run has changed about nodes.
func (s *Set) Undo() {
	for _, n := range s.touched {
		n.state = n.before
		n.settle()
	}
	s.touched = s.touched[:0]
}

// Kept describes what a Keep has changed, as it was before.
type Kept map[*Node]state

// Keep makes the changes of a run permanent, until Restore.
func (s *Set) Keep() Kept {
	out := make(Kept, len(s.touched))
	for _, n := range s.touched {
		out[n] = n.before
		n.settle()
	}
	s.touched = s.touched[:0]
	return out
}

// Restore takes back what Keep has made permanent, the last Keep first.
func (s *Set) Restore(k Kept) {
	for n, before := range k {
		n.state = before
	}
}
