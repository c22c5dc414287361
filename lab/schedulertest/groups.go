package schedulertest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/gangscheduling"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/topologyaware"

	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// groupPlugins are the plugins with rules about PodGroups.
var groupPlugins = []string{names.GangScheduling, topologyaware.Name}

// groups are the rules of GangScheduling and TopologyPlacementGenerator, for groups of which a scheduler filters the pods. The feature gate
// GenericWorkload must be on.
type groups struct {
	s        *Scheduler
	gang     framework.PlacementFeasiblePlugin
	topology *topologyaware.TopologyPlacement
}

// Groups are the scheduler's rules about PodGroups. The error is that of a plugin.
func (s *Scheduler) Groups() (propertytest.GroupRules, error) {
	gang, err := gangscheduling.New(s.ctx, nil, s.framework, feature.Features{})
	if err != nil {
		return nil, err
	}
	topology, err := topologyaware.New(s.ctx, nil, s.framework, feature.Features{EnableTopologyAwareWorkloadScheduling: true})
	if err != nil {
		return nil, err
	}
	return &groups{s, gang.(framework.PlacementFeasiblePlugin), topology}, nil
}

// show has the plugins see the cluster with the group.
func (g *groups) show(c *propertytest.Cluster, group *schedulingv1beta1.PodGroup) {
	g.s.state = state{} // the filters must see their own cluster again
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for _, n := range c.Nodes {
		nodes = append(nodes, nodeObject(n, n.Name, n.Allocatable))
		for _, p := range n.Pods {
			bound := *p
			bound.Spec.NodeName = n.Name
			pods = append(pods, &bound)
		}
	}
	g.s.snapshot.nodes = nil
	g.s.snapshot.Snapshot = cache.NewTestSnapshotWithPodGroups(pods, nodes, []*schedulingv1beta1.PodGroup{group})
}

// scheduled is how many pods of the group are on nodes.
func scheduled(c *propertytest.Cluster, group *snapshot.PodGroup) (n int) {
	for _, node := range c.Nodes {
		for _, p := range node.Pods {
			if slices.ContainsFunc(group.Members, func(m *corev1.Pod) bool { return m.UID == p.UID }) && !snapshot.Terminal(p) {
				n++
			}
		}
	}
	return n
}

// placements are those of TopologyPlacementGenerator on the first nodes of the cluster, by name.
func (g *groups) placements(c *propertytest.Cluster, nodes int, group *snapshot.PodGroup) (map[string][]*propertytest.ClusterNode, error) {
	g.show(c, group.Object)
	whole := &fwk.Placement{Name: "cluster"}
	for _, n := range c.Nodes[:nodes] {
		info, err := g.s.snapshot.NodeInfos().Get(n.Name)
		if err != nil {
			return nil, err
		}
		whole.Nodes = append(whole.Nodes, info)
	}
	result, status := g.topology.GeneratePlacements(g.s.ctx, framework.NewCycleState(), info(group, nil), whole)
	if !status.IsSuccess() {
		return nil, fmt.Errorf("%s: %s", status.Plugin(), status.Message())
	}
	out := map[string][]*propertytest.ClusterNode{}
	for _, p := range result.Placements {
		for _, n := range c.Nodes[:nodes] {
			if slices.ContainsFunc(p.Nodes, func(i fwk.NodeInfo) bool { return i.Node().Name == n.Name }) {
				out[p.Name] = append(out[p.Name], n)
			}
		}
	}
	return out, nil
}

func info(group *snapshot.PodGroup, waiting []*corev1.Pod) *framework.PodGroupInfo {
	return &framework.PodGroupInfo{
		Namespace: group.Namespace, Name: group.Name, Type: fwk.PodGroupKeyType, PodGroup: group.Object, UnscheduledPods: waiting,
	}
}

// Refusal implements propertytest.GroupRules.
func (g *groups) Refusal(c *propertytest.Cluster, group *snapshot.PodGroup) string {
	progress := framework.PlacementProgress{Scheduled: scheduled(c, group)}
	status := g.gang.PlacementFeasible(g.s.ctx, framework.NewCycleState(), info(group, nil), progress)
	if !status.IsSuccess() {
		return status.Message()
	}
	if _, err := g.placements(c, len(c.Nodes), group); err != nil {
		return err.Error()
	}
	return ""
}

// Fits implements propertytest.GroupRules: it is the cycle of a group, over each placement, with the pods in their order.
func (g *groups) Fits(c *propertytest.Cluster, nodes int, group *snapshot.PodGroup, waiting []*corev1.Pod) string {
	if len(group.Members) < int(group.Object.Spec.SchedulingPolicy.Gang.MinCount) {
		return "" // PreEnqueue
	}
	placements, err := g.placements(c, nodes, group)
	if err != nil {
		return ""
	}
	for name, in := range placements {
		after := c.Copy()
		after.EmptyHost = c.EmptyHost
		progress := framework.PlacementProgress{Scheduled: scheduled(c, group), Remaining: len(waiting)}
		fit := 0
		for _, pod := range waiting {
			progress.Remaining--
			for _, n := range in {
				at := after.Nodes[slices.Index(c.Nodes, n)]
				if g.s.OfWorld(after, pod, at) == "" {
					at.Pods = append(at.Pods, pod)
					progress.Scheduled++
					fit++
					break
				}
			}
		}
		if fit > 0 && g.gang.PlacementFeasible(g.s.ctx, framework.NewCycleState(), info(group, waiting), progress).IsSuccess() {
			return name
		}
	}
	return ""
}
