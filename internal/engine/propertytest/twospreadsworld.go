package propertytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TwoSpreadsWorld is a SchedulerWorld with pods that spread over two labels. Many nodes and pools lack one of these: kube-scheduler counts
// no pods there, and such nodes make no domain.
func TwoSpreadsWorld(next func() byte) *snapshot.Snapshot { return random{next}.twoSpreadsWorld() }

func (d random) twoSpreadsWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	for i := range s.Pools {
		if labels := s.Pools[i].NodePool.Spec.Template.Labels; labels["rack"] == "" && d.maybe(50) {
			TemplateLabel("rack", pick(d, "r1", "r2"))(s.Pools[i].NodePool)
		}
	}
	edits := []edit{
		Labeled("app", "x"), Labeled("rev", pick(d, "1", "2")), Requests("cpu", fmt.Sprintf("%dm", 250*d.from(1, 4))),
		Spread(pick(d, Zone, Zone, Arch, Capacity), int32(d.from(1, 2)), "x", d.spreadEdits()),
		Spread("rack", int32(d.from(1, 4)), "x", d.spreadEdits()),
	}
	if d.maybe(70) {
		edits = append(edits, Tolerates("dedicated"))
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at := &ClusterNode{Name: n.Name, Labels: n.Labels, Taints: n.Taints, Allocatable: n.Allocatable, Pods: n.Pods}
		c := Cluster{Nodes: []*ClusterNode{at}}
		for k := range d.n(4) {
			// Pods without a spread are counted, too, and run on any node.
			p := Pod(fmt.Sprintf("x-%s-%d", n.Name, k), edits...)
			p.Spec.TopologySpreadConstraints = nil
			if c.nodeAffinity(p, at) == "" && c.taints(p, at) == "" && c.resources(p, at) == "" {
				at.Pods = append(at.Pods, Bound(p, n.Name))
			}
		}
		n.Pods = at.Pods
	}
	s.Pods = append(s.Pods, Pods(d.from(1, 5), "x", edits...)...)
	return s
}

// LacksKey reports whether a node lacks a label over which a pending pod spreads, besides one that it has.
func LacksKey(s *snapshot.Snapshot, n *snapshot.Node) bool {
	for _, p := range s.Pods {
		has, lacks := false, false
		for _, c := range p.Spec.TopologySpreadConstraints {
			_, ok := n.Labels[c.TopologyKey]
			hard := c.WhenUnsatisfiable == corev1.DoNotSchedule
			has, lacks = has || hard && ok, lacks || hard && !ok
		}
		if has && lacks {
			return true
		}
	}
	return false
}
