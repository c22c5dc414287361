package schedule_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// twoZoneTypes are a small type, which is cheapest in z1, and a large one, which is cheapest in z2: pods that may be anywhere get both.
func twoZoneTypes() []*catalog.InstanceType {
	offers := func(it *catalog.InstanceType, prices map[string]float64) *catalog.InstanceType {
		var list []catalog.Offering
		for _, zone := range slices.Sorted(maps.Keys(prices)) {
			list = append(list, Offering(zone, karpv1.CapacityTypeOnDemand, prices[zone]))
		}
		return WithOfferings(it, list...)
	}
	return []*catalog.InstanceType{
		offers(Type("small", 1, "cpu", "2", "memory", "8Gi"), map[string]float64{"z1": 1, "z2": 2}),
		offers(Type("gpu", 9, "cpu", "2", "memory", "8Gi", "example.com/gpu", "1"), map[string]float64{"z1": 10, "z2": 8}),
	}
}

// withDevice are three small pods and one with a device.
func withDevice(edit ...func(*corev1.Pod)) []*corev1.Pod {
	edit = append(edit, InGroup("train"), Requests("cpu", "1500m"))
	return append(Pods(3, "train", edit...), Pod("device", append(edit, Requests("cpu", "1500m", "example.com/gpu", "1"))...))
}

// zonesOf counts the pods of the plan by zone.
func zonesOf(p schedule.Plan) map[string]int {
	out := map[string]int{}
	for i := range p.Launches {
		out[p.Launches[i].Offering.Zone] += len(p.Launches[i].Pods)
	}
	for i := range p.Placements {
		out[p.Placements[i].Node] += len(p.Placements[i].Pods)
	}
	return out
}

func TestAGroupWithATopologyIsInOneDomain(t *testing.T) {
	in := func(zone, name string, pods ...*corev1.Pod) snapshot.Node {
		return Node(name, "general", func(n *snapshot.Node) {
			n.Labels[Zone] = zone
			n.Allocatable = Resources("cpu", "2", "memory", "8Gi", "pods", "110")
			for _, p := range pods {
				n.Pods = append(n.Pods, Bound(p, name))
			}
		})
	}
	basic := func(g *schedulingv1beta1.PodGroup) {
		g.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	}
	member := func(name string) *corev1.Pod { return Pod(name, InGroup("train"), Requests("cpu", "1500m")) }
	for _, c := range []struct {
		name  string
		group *schedulingv1beta1.PodGroup
		nodes []snapshot.Node
		want  map[string]int
	}{
		{"the cheapest zone for all of them", Gang("train", 4, GroupKey(Zone)), nil, map[string]int{"z1": 4}},
		{"without a topology each in its own", Gang("train", 4), nil, map[string]int{"z1": 3, "z2": 1}},
		{"E25: a basic group", Gang("train", 0, GroupKey(Zone), basic), nil, map[string]int{"z1": 4}},
		{"members with a node decide", Gang("train", 5, GroupKey(Zone)), []snapshot.Node{in("z2", "n1", member("old"))}, map[string]int{"z2": 4}},
		{"E22: also once it has enough", Gang("train", 1, GroupKey(Zone)), []snapshot.Node{in("z2", "n1", member("old"))}, map[string]int{"z2": 4}},
		{"E23: nodes in flight decide", Gang("train", 4, GroupKey(Zone)), []snapshot.Node{Node("claim", "general", func(n *snapshot.Node) {
			n.Labels, n.Registered, n.Initialized, n.Launched = map[string]string{Zone: "z2"}, false, false, true
			n.Allocatable, n.Nominated = Resources("cpu", "2", "memory", "8Gi", "pods", "110"), []types.UID{"uid-train-000"}
		})}, map[string]int{"claim": 1, "z2": 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", twoZoneTypes())}, withDevice()...)
			s.Nodes = c.nodes
			p := solveValid(t, WithGroups(s, c.group))
			if got := zonesOf(p); !maps.Equal(got, c.want) || len(p.Rejected) > 0 {
				t.Errorf("pods by zone %v, want %v; rejected %v", got, c.want, p.Rejected)
			}
		})
	}
}

func TestAGroupThatFitsInNoDomainGetsNoNodes(t *testing.T) {
	for _, c := range []struct {
		name string
		key  string
		pods []*corev1.Pod
		want string
	}{
		{
			"E70: no zone has all that it needs", Zone,
			append(withDevice(Selects(Zone, "z1")), Pod("elsewhere", InGroup("train"), Requests("cpu", "1"), Selects(Zone, "z2"))),
			"in topology.kubernetes.io/zone z1, where the most of them fit, 4 of its 5 pods fit",
		},
		{"E21: the label comes after the launch", "topology.k8s.aws/network-node-layer-1", withDevice(), "no node has the label"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", twoZoneTypes())}, c.pods...)
			p := solveValid(t, WithGroups(s, Gang("train", int32(len(c.pods)), GroupKey(c.key))))
			if len(p.Launches) > 0 || len(p.Rejected) != len(c.pods) {
				t.Errorf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
			}
			for _, r := range p.Rejected {
				if r.Reasons[0].Code != schedule.PodGroup || !strings.Contains(wording.Reason(r.Reasons[0]), c.want) {
					t.Errorf("%s: %+v", r.Pod.Name, r.Reasons)
				}
			}
		})
	}
}

func TestTwoGroupsWithATopologyEachHaveTheirOwnDomain(t *testing.T) {
	only := func(zone string) func(*corev1.Pod) { return Selects(Zone, zone) }
	pods := slices.Concat(gangPods(2, "a", 1, only("z1")), gangPods(2, "b", 2, only("z2")), gangPods(1, "web", 3))
	s := World([]snapshot.Pool{Pool("general", twoZoneTypes())}, pods...)
	p := solveValid(t, WithGroups(s, Gang("a", 2, GroupKey(Zone)), Gang("b", 2, GroupKey(Zone)), Gang("web", 1)))
	if got, want := zonesOf(p), map[string]int{"z1": 3, "z2": 2}; !maps.Equal(got, want) || p.Stats.Pods != 5 {
		t.Errorf("pods by zone %v, want %v; %d pods", got, want, p.Stats.Pods)
	}
}
