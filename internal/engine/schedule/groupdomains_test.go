package schedule_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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
		{"a basic group", Gang("train", 0, GroupKey(Zone), basic), nil, map[string]int{"z1": 4}},
		{"members with a node decide", Gang("train", 5, GroupKey(Zone)), []snapshot.Node{in("z2", "n1", member("old"))}, map[string]int{"z2": 4}},
		{"also once it has enough", Gang("train", 1, GroupKey(Zone)), []snapshot.Node{in("z2", "n1", member("old"))}, map[string]int{"z2": 4}},
		{"nodes in flight decide", Gang("train", 4, GroupKey(Zone)), []snapshot.Node{Node("claim", "general", func(n *snapshot.Node) {
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

// TestAGroupIsWhereAnyOfItsAlternativesAllowsItsPods: terms of required node affinity are alternatives, whichever comes first.
func TestAGroupIsWhereAnyOfItsAlternativesAllowsItsPods(t *testing.T) {
	gpu := Expr(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "gpu")
	inZ2 := Expr(Zone, corev1.NodeSelectorOpIn, "z2")
	other := Expr("team", corev1.NodeSelectorOpIn, "other")
	pods := func(terms ...corev1.NodeSelectorRequirement) []*corev1.Pod {
		edit := []func(*corev1.Pod){InGroup("train"), Requests("cpu", "1500m")}
		for _, term := range terms {
			edit = append(edit, Needs(term))
		}
		return Pods(1, "train", edit...)
	}
	for _, c := range []struct {
		name string
		pods []*corev1.Pod
		want map[string]int
	}{
		{"on an existing node by the first", pods(Expr(Host, corev1.NodeSelectorOpIn, "n1"), other), map[string]int{"n1": 1}},
		{"on an existing node by the last", pods(other, Expr(Host, corev1.NodeSelectorOpIn, "n1")), map[string]int{"n1": 1}},
		{"on a new node by the first", pods(inZ2, other), map[string]int{"z2": 1}},
		{"on a new node by the last", pods(other, gpu), map[string]int{"z2": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", twoZoneTypes())}, c.pods...)
			s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) { n.Labels[Zone] = "z2" })}
			if c.want["n1"] == 0 {
				s.Nodes[0].Taints = []corev1.Taint{{Key: "full", Effect: corev1.TaintEffectNoSchedule}}
			}
			p := solveValid(t, WithGroups(s, Gang("train", 1, GroupKey(Zone))))
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
			"no zone has all that it needs", Zone,
			append(withDevice(Selects(Zone, "z1")), Pod("elsewhere", InGroup("train"), Requests("cpu", "1"), Selects(Zone, "z2"))),
			"in topology.kubernetes.io/zone z1, where the most of them fit, 4 of its 5 pods fit",
		},
		{"the label comes after the launch", "topology.k8s.aws/network-node-layer-1", withDevice(), "no node has the label"},
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

// manyTypes are instance types, of which the most expensive come first in the order of names, and the cheapest holds none of the pods.
func manyTypes(n int) []*catalog.InstanceType {
	types := []*catalog.InstanceType{Type("z-tiny", 0.01, "cpu", "500m", "memory", "1Gi")}
	for i := range n {
		types = append(types, Type(fmt.Sprintf("t%02d", i), float64(100-i), "cpu", "2", "memory", "8Gi"))
	}
	return types
}

func TestTheCheapestOfManyDomainsIsTriedFirst(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", manyTypes(30))}, gangPods(4, "train", 0)...)
	p := solveValid(t, WithGroups(s, Gang("train", 4, GroupKey(corev1.LabelInstanceTypeStable))))
	if len(p.Launches) != 4 || p.Launches[0].InstanceTypes[0].Name != "t29" {
		t.Errorf("launches %+v, rejected %v, want four of the cheapest type", p.Launches, p.Rejected)
	}
}

func TestTheDomainOfANodeWithRoomIsTriedFirst(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", manyTypes(30))}, gangPods(4, "train", 0)...)
	s.Nodes = []snapshot.Node{Node("n", "general", func(n *snapshot.Node) {
		n.Labels[corev1.LabelInstanceTypeStable] = "t03"
		n.Allocatable = Resources("cpu", "8", "memory", "32Gi", "pods", "110")
	})}
	p := solveValid(t, WithGroups(s, Gang("train", 4, GroupKey(corev1.LabelInstanceTypeStable))))
	if len(p.Launches) != 0 || len(p.Placements) != 1 {
		t.Errorf("launches %+v, rejected %v, want the pods on the node", p.Launches, p.Rejected)
	}
}

// manyGroups are groups of two pods each in namespaces, which must be on instances of one type.
func manyGroups(namespaces, each int) ([]*corev1.Pod, []*schedulingv1beta1.PodGroup) {
	var pods []*corev1.Pod
	var groups []*schedulingv1beta1.PodGroup
	for i := range namespaces * each {
		name, namespace := fmt.Sprintf("g%03d", i), fmt.Sprintf("ns%02d", i%namespaces)
		pods = append(pods, gangPods(2, name, 0, func(p *corev1.Pod) { p.Namespace = namespace })...)
		groups = append(groups, Gang(name, 2, GroupKey(corev1.LabelInstanceTypeStable), func(g *schedulingv1beta1.PodGroup) { g.Namespace = namespace }))
	}
	return pods, groups
}

func TestGroupsThatAreNotTriedInAPassAreToldSo(t *testing.T) {
	pods, groups := manyGroups(1, 40)
	s := World([]snapshot.Pool{Pool("general", manyTypes(4))}, pods...)
	p := solveValid(t, WithGroups(s, groups...))
	if len(p.Launches) == 0 || len(p.Rejected) == 0 {
		t.Fatalf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
	}
	for _, r := range p.Rejected {
		why := wording.Reason(r.Reasons[0])
		if r.Reasons[0].Code != schedule.BudgetSpent || !strings.Contains(why, "the group has its turn in one of the next passes") {
			t.Errorf("%s: %s %s", r.Pod.Name, r.Reasons[0].Code, why)
		}
	}
}

func TestTheGroupsOfANamespaceTakeNoTurnsFromThoseOfAnother(t *testing.T) {
	pods, groups := manyGroups(1, 60)
	other := gangPods(2, "other", 1, func(p *corev1.Pod) { p.Namespace = "other" })
	groups = append(groups, Gang("other", 2, GroupKey(corev1.LabelInstanceTypeStable), func(g *schedulingv1beta1.PodGroup) { g.Namespace = "other" }))
	s := WithGroups(World([]snapshot.Pool{Pool("general", manyTypes(4))}, slices.Concat(pods, other)...), groups...)
	for pass := range 20 {
		s.Now = Now().Add(time.Duration(pass) * time.Second)
		if p := solveValid(t, s); placedPods(p)["other"] != 2 {
			t.Errorf("pass %d: the only group of its namespace has no nodes", pass)
		}
	}
}

// Passes follow each other in any rhythm. Groups that never fit leave room in the end for one that does.
func TestEachGroupHasItsTurnWithEachDomain(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
	}{{"passes a second apart", time.Second}, {"passes a minute apart", time.Minute}, {"passes five minutes apart", 5 * time.Minute}} {
		t.Run(c.name, func(t *testing.T) {
			pods, groups := manyGroups(2, 20)
			// The last group fits on the most expensive type alone: all others exceed a limit.
			types, limits := manyTypes(8), Limit("cpu", "3")
			fits := Type("dear", 500, "cpu", "2", "memory", "8Gi")
			pools := []snapshot.Pool{Pool("limited", types, limits), Pool("unlimited", []*catalog.InstanceType{fits}, PoolTaint("dear", corev1.TaintEffectNoSchedule))}
			for _, pod := range pods[len(pods)-2:] {
				Tolerates("dear")(pod)
			}
			s := WithGroups(World(pools, pods...), groups...)
			for pass := range 400 {
				s.Now = Now().Add(time.Duration(pass) * c.every)
				if p := schedule.Solve(s, schedule.Budget{FirstFitOnly: true}); len(p.Launches) > 0 {
					return
				}
			}
			t.Error("the group that fits was not tried in its domain within 400 passes")
		})
	}
}
