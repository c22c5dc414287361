package propertytest

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// InFlightWorld is a SchedulerWorld with nodes in flight: a plan has launched them for some of the pending pods, the others have come
// since. A node is launched, or registered and not initialized. Pods that the plan had for existing nodes run there by now, unless they
// wait for the nodes in flight: what these hold may rest on that, and nominated pods stay with their claims.
func InFlightWorld(next func() byte) *snapshot.Snapshot { return random{next}.inFlightWorld() }

func (d random) inFlightWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	before := *s
	before.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(*corev1.Pod) bool { return d.maybe(40) })
	r := replays{s: &before, plan: schedule.Solve(&before, schedule.Budget{}), random: d}
	r.bindOnExisting(s)
	for i := range r.plan.Launches {
		l := &r.plan.Launches[i]
		node := r.launchedNode(i, 2)
		s.Nodes = append(s.Nodes, Node(fmt.Sprintf("flying-%d", i), l.Pool.Name, func(n *snapshot.Node) {
			n.Labels, n.Allocatable, n.Capacity, n.Taints = node.Labels, node.Allocatable, node.Allocatable, node.Taints
			for _, pod := range l.Pods {
				n.Nominated = append(n.Nominated, pod.UID)
			}
			n.Initialized = false
			delete(n.Labels, karpv1.LabelInitialized)
			n.Labels[Host] = n.Name
			if d.maybe(60) {
				n.Registered, n.Name = false, n.Claim
				delete(n.Labels, Host)
				delete(n.Labels, karpv1.LabelRegistered)
			}
		}))
	}
	s.Pools = slices.Clone(s.Pools)
	for i := range s.Pools {
		r.countLaunches(&s.Pools[i])
	}
	return s
}

// bindOnExisting has the pods run that the plan has for nodes of the snapshot and that need not wait for new ones.
func (r *replays) bindOnExisting(s *snapshot.Snapshot) {
	c := &Cluster{World: s}
	var todo []binding
	for i := range s.Nodes {
		c.Nodes = append(c.Nodes, comesUp(&s.Nodes[i], s.Nodes[i].Pods))
		for _, p := range r.plan.Placements {
			if p.Node == s.Nodes[i].Name {
				todo = appendBindings(todo, p.Pods, c.Nodes[i])
			}
		}
	}
	c.bind(todo, true)
	for i, n := range c.Nodes {
		for _, pod := range n.Pods[len(s.Nodes[i].Pods):] {
			s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p *corev1.Pod) bool { return p == pod })
			s.Nodes[i].Pods = append(slices.Clip(s.Nodes[i].Pods), Bound(pod, n.Name))
		}
	}
}

// comesUp is the existing node as it is when the pods of a plan come: one that is in flight has joined by then.
func comesUp(n *snapshot.Node, pods []*corev1.Pod) *ClusterNode {
	out := &ClusterNode{Name: n.Name, Labels: n.Labels, Taints: n.Taints, Allocatable: n.Allocatable, Pods: slices.Clone(pods), Existing: n}
	if !out.joins() {
		return out
	}
	out.Labels = maps.Clone(n.Labels)
	maps.Copy(out.Labels, map[string]string{karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true"})
	if _, has := out.Labels[Host]; !has {
		out.Labels[Host] = n.Name
	}
	return out
}

// joins reports whether the node is launched, or was in flight before the plan.
func (n *ClusterNode) joins() bool {
	return n.Existing == nil || n.Existing.Claim != "" && !n.Existing.Initialized
}

// joining are the nodes that join after the plan.
func (c *Cluster) joining() (out []*ClusterNode) {
	for _, n := range c.Nodes {
		if n.joins() {
			out = append(out, n)
		}
	}
	return out
}

// inTurn has the nodes that join come up one after the other, in any order, each with its DaemonSets' pods. It binds what it can before and
// in between, and returns the pods that are left.
func (c *Cluster) inTurn(queue []binding, d random) []binding {
	var up []*ClusterNode
	later := c.joining()
	for _, n := range c.Nodes {
		if !n.joins() {
			up = append(up, n)
		}
	}
	for {
		queue = (&Cluster{Nodes: slices.Clone(up), World: c.World, Filter: c.Filter, Devices: c.Devices}).bindThose(queue, true)
		if len(later) < 2 {
			return queue
		}
		k := d.n(len(later))
		up, later = append(up, later[k]), slices.Delete(later, k, k+1)
	}
}

// DeletingWorld is a SchedulerWorld with nodes that are being deleted. The pods of some move: they are planned as those that replace them.
func DeletingWorld(next func() byte) *snapshot.Snapshot { return random{next}.deletingWorld() }

func (d random) deletingWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !d.maybe(45) {
			continue
		}
		n.Deleting = true
		n.Taints = append(slices.Clone(n.Taints), karpv1.TaintDisrupted())
		if d.maybe(35) {
			continue // its pods are not evicted yet, and are planned once they are
		}
		for _, pod := range n.Pods {
			if snapshot.Reschedulable(pod) && pod.DeletionTimestamp == nil {
				s.Pods = append(s.Pods, pod)
			}
		}
	}
	return s
}

// leave is the cluster without the nodes that the plan empties. The pods that move are gone from them.
func (c *Cluster) leave(s *snapshot.Snapshot) {
	moves := map[types.UID]bool{}
	for _, pod := range s.Pods {
		moves[pod.UID] = pod.Spec.NodeName != ""
	}
	for _, n := range c.Nodes {
		if n.Existing == nil || !n.Existing.Deleting {
			continue
		}
		before := len(n.Pods)
		n.Pods = slices.DeleteFunc(n.Pods, func(p *corev1.Pod) bool { return moves[p.UID] })
		n.Gone = len(n.Pods) < before
	}
}

// successor is the pod that is made again for one that leaves its node.
func successor(pod *corev1.Pod) *corev1.Pod {
	if pod.Spec.NodeName == "" {
		return pod
	}
	out := pod.DeepCopy()
	out.Spec.NodeName, out.Status = "", corev1.PodStatus{}
	return out
}
