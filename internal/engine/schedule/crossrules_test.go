package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestNodesHaveADomainWhereRulesCross: a pod without a rule over architectures may get a node that leaves its architecture open, and those
// that spread over architectures come first. They cannot where it has to follow them.
func TestNodesHaveADomainWhereRulesCross(t *testing.T) {
	amd := WithOfferings(WithLabel(Type("amd", 0.2, "cpu", "4", "memory", "16Gi", "pods", "110"), Arch, "amd64"),
		Offering("z2", "on-demand", 0.2), Offering("z3", "spot", 0.2))
	inPool := func(pods ...*corev1.Pod) *snapshot.Snapshot {
		arm := occupied("old", "z1", Pod("old"))
		arm.Labels[Arch] = "arm64"
		return withNodes(World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{amd})}, pods...), arm)
	}
	web, onArchitectures := Labeled("app", "web"), Spread(Arch, 1, "web")
	checkPlans(t, []planCase{
		{"a pod that follows them onto its host", inPool(
			Pod("first", web, Requests("cpu", "3"), Near(Host, "web"), Selects(Zone, "z3")),
			Pod("spread", web, Requests("cpu", "2"), onArchitectures),
		), []string{"general amd z3: first", "unschedulable (Topology): spread"}},
	})
}

// TestTheFirstPodOfASetWaitsForThoseOnExistingNodes: kube-scheduler binds these at once, and the first pod of a set that must be together
// then has to follow them.
func TestTheFirstPodOfASetWaitsForThoseOnExistingNodes(t *testing.T) {
	small := Node("n1", "general", func(n *snapshot.Node) { n.Allocatable = Resources("cpu", "1", "memory", "4Gi", "pods", "110") })
	web := Labeled("app", "web")
	large := Pod("large", web, Requests("cpu", "3"), Near(Host, "web"))
	checkPlans(t, []planCase{
		{"none", withNodes(world(large), small), []string{"general m.large: large"}},
		{"one", withNodes(world(large, Pod("a", web, Requests("cpu", "500m"))), small), []string{"on n1: a", "unschedulable (Topology): large"}},
		{
			"one on a node that is in no domain", withNodes(World(pool(TemplateLabel("rack", "r1")),
				Pod("large", web, Requests("cpu", "3"), Near("rack", "web")), Pod("a", web, Requests("cpu", "500m"))), small),
			[]string{"general m.large: large", "on n1: a"},
		},
	})
}

// TestPodsFollowTheFirstOfTheirSetToNodesThatBringDaemons: a node for one of a set brings a DaemonSet's pod of the set. That may not come up
// where the others are not, since the first of them has to follow it if the node is up before.
func TestPodsFollowTheFirstOfTheirSetToNodesThatBringDaemons(t *testing.T) {
	arm := WithOfferings(WithLabel(Type("arm", 0.1, "cpu", "2", "memory", "32Gi", "pods", "110"), Arch, "arm64"),
		Offering("z3", "on-demand", 0.11), Offering("z3", "spot", 0.1))
	amd := WithOfferings(Type("amd", 0.4, "cpu", "8", "memory", "32Gi", "pods", "110"),
		Offering("z1", "on-demand", 0.41), Offering("z2", "on-demand", 0.4), Offering("z2", "spot", 0.41))
	web := Labeled("app", "web")
	spot := WithOfferings(Type("spot", 0.4, "cpu", "8", "memory", "32Gi", "pods", "110"), Offering("z3", "spot", 0.41))
	s := World([]snapshot.Pool{
		Pool("light", []*catalog.InstanceType{arm}), Pool("heavy", []*catalog.InstanceType{amd, spot}, Weight(2)),
	}, append(Pods(3, "web", web, Near(Capacity, "web"), Spread(Zone, 1, "web")), Pod("other"))...)
	s.DaemonSets = []snapshot.DaemonSet{{Namespace: "default", Name: "agent", Pod: Pod("agent", web, Selects(Arch, "arm64"))}}
	plan := schedule.Solve(s, schedule.Budget{})
	if got := describe(plan); got != "heavy amd z1: web\nheavy amd z2: other, web\nlight arm z3: web" {
		t.Fatal(got)
	}
	for _, l := range plan.Launches {
		if l.Offering.CapacityType != "on-demand" {
			t.Errorf("%s is launched as %s", l.InstanceTypes[0].Name, l.Offering.CapacityType)
		}
	}
}

// TestNoNodeForPodsThatOthersLeaveTooManyBeside: a pod spreads over zones with others and is not counted itself. These come to an existing
// node in the zone, where kube-scheduler binds them before the pod's new node is up.
func TestNoNodeForPodsThatOthersLeaveTooManyBeside(t *testing.T) {
	small := Node("n1", "general", inZone("z1"), func(n *snapshot.Node) { n.Allocatable = Resources("cpu", "1", "memory", "4Gi", "pods", "110") })
	plan := func(zone string, others int) *snapshot.Snapshot {
		pods := append(Pods(others, "a", Labeled("app", "a"), Requests("cpu", "100m")), Pod("large", Requests("cpu", "3"), Spread(Zone, 1, "a")))
		return withNodes(World(pool(Require(Zone, in, zone)), pods...), small, occupied("old", "z2", Pod("old")))
	}
	// The large pod counts itself.
	own := func(others int) *snapshot.Snapshot {
		s := plan("z1", others)
		s.Pods[others].Labels = map[string]string{"app": "a"}
		return s
	}
	checkPlans(t, []planCase{
		{"one in its zone", plan("z1", 1), []string{"on n1: a", "general m.large z1: large"}},
		{"two in its zone", plan("z1", 2), []string{"on n1: a x2", "unschedulable (Topology): large"}},
		{"of its own set, none in its zone", own(0), []string{"general m.large z1: large"}},
		{"of its own set, one in its zone", own(1), []string{"on n1: a", "unschedulable (Topology): large"}},
		{"two in another zone", plan("z2", 2), []string{"on n1: a x2", "general m.large z2: large"}},
		{
			"pods that are divided over zones", withNodes(World(pool(), append(Pods(3, "a", Labeled("app", "a"), Requests("cpu", "100m")),
				Pods(3, "large", Labeled("app", "web"), Requests("cpu", "3"), Spread(Zone, 1, "web"), Spread(Zone, 1, "a"))...)...),
				small, occupied("old", "z2", Pod("old"))),
			[]string{"general m.large z2: large", "general m.large z3: large", "on n1: a x3", "unschedulable (Topology): large"},
		},
	})
}

// TestNoNewDomainBesideWhichPodsThatDoNotCountAreTooMany: pods spread with others, which do not count them. The first get a node where there
// are most of those, since no other fits them; with them there, another domain would do for the next. Its node would keep the first out.
func TestNoNewDomainBesideWhichPodsThatDoNotCountAreTooMany(t *testing.T) {
	amd := WithOfferings(Type("amd", 0.2, "cpu", "4", "memory", "16Gi"), Offering("z1", "spot", 0.2))
	arm := WithOfferings(WithLabel(Type("arm", 0.2, "cpu", "4", "memory", "16Gi"), Arch, "arm64"), Offering("z1", "on-demand", 0.2))
	web := Labeled("app", "web")
	node := func(name, arch, cpu string, pods ...*corev1.Pod) snapshot.Node {
		return Node(name, "general", inZone("z1"), func(n *snapshot.Node) {
			n.Labels[Arch], n.Labels[Capacity], n.Allocatable = arch, "spot", Resources("cpu", cpu, "memory", "16Gi", "pods", "110")
			for _, pod := range pods {
				n.Pods = append(n.Pods, Bound(pod, name))
			}
		})
	}
	plan := func(counted int, room string, edit ...func(*corev1.Pod)) *snapshot.Snapshot {
		old := node("old", "arm64", "1", append(Pods(counted, "a", Labeled("app", "a")), Pods(2, "web-old", web)...)...)
		rules := append([]func(*corev1.Pod){web, Requests("cpu", "1200m"), Spread(Arch, 1, "web"), Spread(Capacity, 1, "a")}, edit...)
		s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{amd, arm})}, Pods(4, "web", rules...)...)
		return withNodes(s, old, node("new", "amd64", room))
	}
	checkPlans(t, []planCase{
		{"too many", plan(3, "1"), []string{"general amd: web x3", "unschedulable (Topology): web"}},
		{"few enough", plan(1, "1"), []string{"general amd: web x3", "general arm: web"}},
		{"those on existing nodes wait for no node", plan(3, "4"), []string{"on new: web x3", "general arm: web"}},
		{
			"also beside a DaemonSet's pod that comes with the node",
			daemons(plan(3, "4"), Pod("agent", Labeled("app", "a"))),
			[]string{"on new: web x3", "general arm: web"},
		},
		{
			"those of a gang do", WithGroups(plan(3, "4", InGroup("train")), Gang("train", 4)),
			[]string{"unschedulable (PodGroup): web x4"},
		},
	})
}
