package propertytest

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// waitOnePass removes the acceptances of pods that only wait for the pods of this plan to be bound: whatever became of the launches, the
// next plan has a node for them, or for others in their place, and the scheduler follows it.
//
// A planner does not know in which order its nodes come up, nor what they become. A node for one pod may make a domain in which others,
// to be bound in the meantime, are too many, and a node with a type that is still open may bring a DaemonSet's pod to its domain. Once
// these pods are bound there is nothing to guess. The outcomes are what each replay has led to.
func (r *replays) waitOnePass(accepted map[acceptance]bool, outcomes []*Cluster) {
	waiting := maps.Clone(accepted)
	for _, c := range outcomes {
		if len(waiting) == 0 {
			return
		}
		still := r.acceptedNext(c)
		maps.DeleteFunc(waiting, func(a acceptance, _ bool) bool { return still == nil || still[a] })
	}
	maps.DeleteFunc(accepted, func(a acceptance, _ bool) bool { return waiting[a] })
}

// acceptedNext are the acceptances that there are after the next plan; nil if the scheduler does not follow that.
func (r *replays) acceptedNext(c *Cluster) map[acceptance]bool {
	s := r.nextSnapshot(c)
	next := *r
	next.s, next.plan, next.nodes = s, schedule.Solve(s, schedule.Budget{}), "next"
	after, why := next.carryOut(0)
	if why != "" || next.refusedGroup(after) != "" {
		return nil
	}
	return next.wronglyRejected(after)
}

// nextSnapshot is what the next plan sees: the cluster, with all that has been placed, and the pods that were rejected.
func (r *replays) nextSnapshot(c *Cluster) *snapshot.Snapshot {
	s := *r.s
	s.Nodes, s.Pods = nil, nil
	bound := map[types.UID]*corev1.Pod{}
	for _, n := range c.Nodes {
		if n.Gone {
			continue
		}
		s.Nodes = append(s.Nodes, n.asNode(r.s, bound))
	}
	for i := range r.plan.Rejected {
		s.Pods = append(s.Pods, successor(r.plan.Rejected[i].Pod))
	}
	s.Pools = slices.Clone(s.Pools)
	for i := range s.Pools {
		r.countLaunches(&s.Pools[i])
	}
	if c.Devices != nil {
		c.Devices.Next(c, &s)
	}
	s.PodGroups = slices.Clone(s.PodGroups)
	for i := range s.PodGroups {
		members := slices.Clone(s.PodGroups[i].Members)
		for k, m := range members {
			if p := bound[m.UID]; p != nil {
				members[k] = p
			}
		}
		s.PodGroups[i].Members = members
	}
	return &s
}

// countLaunches counts the launches of the plan against the limit of the pool.
func (r *replays) countLaunches(pool *snapshot.Pool) {
	pool.Used = pool.Used.DeepCopy()
	for k := range r.plan.Launches {
		if r.plan.Launches[k].Pool.Name == pool.NodePool.Name {
			if pool.Used == nil {
				pool.Used = corev1.ResourceList{}
			}
			n := pool.Used[karpv1.ResourceNodes]
			n.Add(*resource.NewQuantity(1, resource.DecimalSI))
			pool.Used[karpv1.ResourceNodes] = n
		}
	}
}

// asNode is the node as a Snapshot has it, with its pods bound; each is noted by its UID.
func (n *ClusterNode) asNode(s *snapshot.Snapshot, bound map[types.UID]*corev1.Pod) snapshot.Node {
	var out snapshot.Node
	if n.Existing != nil {
		if out = *n.Existing; n.joins() {
			out.Labels, out.Registered, out.Initialized, out.Nominated = n.Labels, true, true, nil
		}
	} else {
		out = Node(n.Name, n.Pool.NodePool.Name, func(x *snapshot.Node) {
			x.Labels, x.Taints, x.Allocatable, x.Capacity = n.Labels, n.Taints, n.Allocatable, n.Allocatable
			x.CSIDrivers, x.DeclaredFeatures = n.CSIDrivers(s), n.Pool.KubeletFeatures
			for driver, limit := range n.Type.VolumeLimits {
				if x.VolumeLimits == nil {
					x.VolumeLimits = map[string]int32{}
				}
				x.VolumeLimits[driver] = int32(limit)
			}
		})
	}
	out.Pods = nil
	for _, p := range n.Pods {
		if p.Spec.NodeName == "" && p.Status.NominatedNodeName == "" {
			on := *p
			p = Bound(&on, n.Name)
		}
		bound[p.UID] = p
		out.Pods = append(out.Pods, p)
	}
	return out
}

// CSIDrivers are the drivers on the node, sorted, of those that must be installed. A new node has those that pods there have installed, and
// those that no DaemonSet installs: its image has them.
func (n *ClusterNode) CSIDrivers(s *snapshot.Snapshot) []string {
	if n.Existing != nil {
		return n.Existing.CSIDrivers
	}
	var out []string
	for _, driver := range slices.Sorted(maps.Keys(s.Volumes.MustBeInstalled)) {
		if !slices.ContainsFunc(s.DaemonSets, func(d snapshot.DaemonSet) bool { return installs(d.Pod, driver) }) ||
			slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return installs(p, driver) }) {
			out = append(out, driver)
		}
	}
	return out
}

// installs reports whether the pod has the directory of the driver's socket.
func installs(p *corev1.Pod, driver string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && strings.HasSuffix(v.HostPath.Path, "/plugins/"+driver)
	})
}
