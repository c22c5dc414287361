package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// twoArchitectures is a type of each architecture, of one size: amd in z3, arm in z1 and z2, which is cheaper.
func twoArchitectures() []*catalog.InstanceType {
	amd := WithLabel(Type("amd", 0.3, "cpu", "4", "memory", "16Gi", "pods", "110"), Arch, "amd64")
	arm := WithLabel(Type("arm", 0.2, "cpu", "4", "memory", "16Gi", "pods", "110"), Arch, "arm64")
	return []*catalog.InstanceType{
		WithOfferings(amd, Offering("z3", "on-demand", 0.3)),
		WithOfferings(arm, Offering("z1", "on-demand", 0.2), Offering("z2", "on-demand", 0.25)),
	}
}

// occupied is a node in a zone without room, with pods.
func occupied(name, zone string, pods ...*corev1.Pod) snapshot.Node {
	return Node(name, "general", inZone(zone), func(n *snapshot.Node) {
		n.Allocatable, n.Capacity = Resources("cpu", "0", "pods", "110"), Resources("cpu", "0", "pods", "110")
		for _, p := range pods {
			n.Pods = append(n.Pods, Bound(p, name))
		}
	})
}

// onAllNodes has a spread count the nodes that the pod does not select, too.
func onAllNodes(c *corev1.TopologySpreadConstraint) {
	ignore := corev1.NodeInclusionPolicyIgnore
	c.NodeAffinityPolicy = &ignore
}

// TestPodsDoNotCountOnDaemonsThatOthersKeepOff: the anti-affinity of a running pod keeps a DaemonSet's pod off new nodes in its zone. So no
// pod follows that, and no spread counts it for certain.
func TestPodsDoNotCountOnDaemonsThatOthersKeepOff(t *testing.T) {
	agent := Pod("agent", Labeled("app", "web"))
	keeper := func(zone string) snapshot.Node { return occupied("old", zone, Pod("keeper", Apart(Zone, "web"))) }
	leaving := occupied("leaving", "z1", Pod("keeper", Apart(Zone, "web")))
	leaving.Deleting = true
	checkPlans(t, []planCase{
		{
			"a pod that follows the DaemonSet's goes to another zone",
			daemons(withNodes(world(Pod("f", Requests("cpu", "1"), Near(Host, "web"), Selects(Zone, "z2"))), keeper("z1")), agent),
			[]string{"general m.small z2: f"},
		},
		{
			"there is none in its zone",
			daemons(withNodes(world(Pod("f", Requests("cpu", "1"), Near(Host, "web"), Selects(Zone, "z1"))), keeper("z1")), agent),
			[]string{"unschedulable (Topology): f"},
		},
		{
			"a spread does not count it in the zone of another new node",
			daemons(withNodes(world(
				Pod("x", Requests("cpu", "900m"), Selects(Zone, "z2")),
				Pod("w", Requests("cpu", "3"), Labeled("app", "web"), Spread(Zone, 1, "web"))), keeper("z2")), agent),
			[]string{"general m.small z2: x", "unschedulable (Topology): w"},
		},
		{
			"a spread counts none where it surely does not come",
			daemons(withNodes(world(Pod("w", Requests("cpu", "3"), Selects(Zone, "z1"), Spread(Zone, 1, "web", onAllNodes))),
				occupied("old", "z1", Pod("keeper", Labeled("app", "web"), Apart(Zone, "web"))), occupied("other", "z2")), agent),
			[]string{"general m.large z1: w"},
		},
		{
			"nor does it come to a node in flight",
			daemons(withNodes(world(Pod("w", Requests("cpu", "1"), Selects(Zone, "z1"), Spread(Zone, 1, "web", onAllNodes))),
				occupied("old", "z1", Pod("keeper", Labeled("app", "web"), Apart(Zone, "web"))), occupied("other", "z2"),
				Node("flying", "general", inZone("z1"), func(n *snapshot.Node) { n.Initialized = false })), agent),
			[]string{"on flying: w"},
		},
		{
			"a spread counts it where one on a node that is being deleted keeps it off",
			daemons(withNodes(world(Pod("w", Requests("cpu", "3"), Selects(Zone, "z1"), Spread(Zone, 1, "web", onAllNodes))),
				leaving,
				occupied("old", "z1", Pod("web", Labeled("app", "web"))), occupied("other", "z2")), agent),
			[]string{"unschedulable (Topology): w"},
		},
		{
			"a spread counts it where one that is about to be gone keeps it off",
			daemons(withNodes(world(Pod("w", Requests("cpu", "3"), Selects(Zone, "z1"), Spread(Zone, 1, "web", onAllNodes))),
				occupied("old", "z1", Pod("keeper", Apart(Zone, "web"), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: Now()} }),
					Pod("web", Labeled("app", "web"))), occupied("other", "z2")), agent),
			[]string{"unschedulable (Topology): w"},
		},
	})
}

// TestPodsKeepAwayFromADaemonSetOnlyWhereItRuns: the node for x may be of either architecture, and brings a DaemonSet's pod if it is amd64.
// Pods that keep away from that can run on arm64, and on the very node, which is of that architecture then.
func TestPodsKeepAwayFromADaemonSetOnlyWhereItRuns(t *testing.T) {
	agent := Pod("agent", Labeled("app", "agent"), Selects(Arch, "amd64"))
	plan := func(pods ...*corev1.Pod) *snapshot.Snapshot {
		amd := WithLabel(Type("amd", 0.2, "cpu", "4", "memory", "16Gi", "pods", "110"), Arch, "amd64")
		arm := WithLabel(Type("arm", 0.2, "cpu", "4", "memory", "16Gi", "pods", "110"), Arch, "arm64")
		pods = append(pods, Pod("x", Requests("cpu", "3")))
		return daemons(World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{amd, arm})}, pods...), agent)
	}
	apart := func(cpu, arch string) *corev1.Pod {
		return Pod("a", Requests("cpu", cpu), Apart(Arch, "agent"), Selects(Arch, arch))
	}
	checkPlans(t, []planCase{
		{"on another node", plan(apart("2", "arm64")), []string{"general amd: x", "general arm: a"}},
		{"on that node", plan(apart("500m", "arm64")), []string{"general arm: a, x"}},
		{"not where it runs", plan(apart("2", "amd64")), []string{"general amd: x", "unschedulable (Topology): a"}},
	})
}

// TestSpreadsCountNoDaemonsThatRunningPodsKeepOff: a new node in the domain of a running pod that keeps a DaemonSet's pod out has none,
// whatever it becomes. So a spread that counts these has room there for another pod.
func TestSpreadsCountNoDaemonsThatRunningPodsKeepOff(t *testing.T) {
	agent := Pod("agent", Labeled("app", "web"))
	web := Pod("web", Labeled("app", "web"))
	pod := Pod("x", Requests("cpu", "900m"), Selects(Zone, "z1"), Spread(Zone, 1, "web", onAllNodes))
	full := func(n *snapshot.Node) {
		n.Registered, n.Initialized, n.Name = false, false, n.Claim
		n.Allocatable, n.Capacity = Resources("cpu", "100m", "pods", "9"), Resources("cpu", "100m", "pods", "9")
	}
	in := func(nodes ...snapshot.Node) *snapshot.Snapshot {
		return daemons(withNodes(world(pod), append(nodes, occupied("empty", "z2"))...), agent)
	}
	checkPlans(t, []planCase{
		{"no keeper", in(occupied("old", "z1", web)), []string{"unschedulable (Topology): x"}},
		{"in the zone of the keeper", in(occupied("old", "z1", web, Pod("keeper", Apart(Zone, "web")))), []string{"general m.small z1: x"}},
		{
			"on demand, as the keeper", in(occupied("old", "z1", web, Pod("keeper", Apart(Capacity, "web")))),
			[]string{"general m.small z1: x"},
		},
		{
			"in flight, too", in(occupied("old", "z1", web, Pod("keeper", Apart(Zone, "web"))), Node("n", "general", inZone("z1"), full)),
			[]string{"general m.small z1: x"},
		},
	})
}

// TestPodsKeepAwayFromNoDaemonThatNeverComes: of two DaemonSets with one host port, a running pod keeps one off new nodes on demand, so that
// the other has the port there. A pod that keeps away from the first gets such a node.
func TestPodsKeepAwayFromNoDaemonThatNeverComes(t *testing.T) {
	port := HostPort("", 80, corev1.ProtocolTCP)
	agent, other := Pod("agent", Labeled("app", "web"), port), Pod("other", port)
	pods := func(n int) []*corev1.Pod {
		return Pods(n, "x", Requests("cpu", "900m"), Selects(Zone, "z2"), Apart(Capacity, "web"))
	}
	keeper := occupied("old", "z1", Pod("keeper", Apart(Capacity, "web")))
	checkPlans(t, []planCase{
		{"no keeper", daemons(withNodes(world(pods(1)...), occupied("old", "z1")), agent, other), []string{"unschedulable (Topology): x"}},
		{"on demand, as the keeper", daemons(withNodes(world(pods(2)...), keeper), agent, other), []string{"general m.medium z2: x x2"}},
		{"the first would come once the keeper is gone", daemons(withNodes(world(pods(1)...), keeper), agent), []string{"unschedulable (Topology): x"}},
		{
			"the other may not come either", daemons(withNodes(world(pods(1)...), keeper), agent, Pod("other", port, Selects(Arch, "arm64"))),
			[]string{"unschedulable (Topology): x"},
		},
	})
}

// TestZonesThatDoNotExistHoldNoPodBackWhereDaemonsBegin: with a DaemonSet's pod on each new node, the first pod of a spread is the second in
// its zone. A zone without any node does not count.
func TestZonesThatDoNotExistHoldNoPodBackWhereDaemonsBegin(t *testing.T) {
	s := World([]snapshot.Pool{
		Pool("general", Types()), Pool("special", Types(), PoolTaint("dedicated", corev1.TaintEffectNoSchedule)),
	}, Pods(2, "w", Requests("cpu", "3"), Labeled("app", "web"), Spread(Zone, 1, "web"))...)
	checkPlans(t, []planCase{{
		"a node in each of two zones", daemons(s, Pod("agent", Labeled("app", "web"))), []string{"general m.large z1: w", "general m.large z2: w"},
	}})
}

// TestSpreadsOverHostsTakeTypesWithFewerDaemons: each new node brings a pod that counts, and some types bring two.
func TestSpreadsOverHostsTakeTypesWithFewerDaemons(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", twoArchitectures())}, Pod("w", Requests("cpu", "1"), Spread(Host, 1, "web")))
	checkPlans(t, []planCase{{
		"the type with one", daemons(s, Pod("agent", Labeled("app", "web")), Pod("arm-agent", Labeled("app", "web"), Selects(Arch, "arm64"))),
		[]string{"general amd: w"},
	}})
}

// TestNodesAreNotKeptOutOfTheValueThatTheirPoolGives: a rack that is a label of the pool's template cannot be avoided.
func TestNodesAreNotKeptOutOfTheValueThatTheirPoolGives(t *testing.T) {
	s := World([]snapshot.Pool{
		Pool("one", Types(), TemplateLabel("rack", "r1")),
		Pool("two", Types(), TemplateLabel("rack", "r2"), PoolTaint("dedicated", corev1.TaintEffectNoSchedule), Weight(1)),
	}, append(Pods(2, "a", Requests("cpu", "1"), Labeled("app", "a"), Spread("rack", 1, "a", onAllNodes)), Pod("w", Requests("cpu", "7"), Tolerates("dedicated")))...)
	checkPlans(t, []planCase{{
		"all on nodes of the other pool", s, []string{"one m.small: a", "one m.xlarge: a, w"},
	}})
}

// TestANodeThatMayComeUpInAZoneThatASpreadDoesNotKnowCountsInNoOther: x may come up in z2, which the pods of the spread exclude. So z1 does not
// surely get a second pod, and z3 may have no more than one pod more than z1 has now.
func TestANodeThatMayComeUpInAZoneThatASpreadDoesNotKnowCountsInNoOther(t *testing.T) {
	small := Type("small", 0.1, "cpu", "1", "memory", "4Gi", "pods", "110")
	large := Type("large", 0.4, "cpu", "8", "memory", "32Gi", "pods", "110")
	web := Labeled("app", "web")
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{
		WithOfferings(small, Offering("z1", "on-demand", 0.1), Offering("z2", "on-demand", 0.1)), WithOfferings(large, Offering("z3", "on-demand", 0.4)),
	})}, append(Pods(3, "w", web, Requests("cpu", "2"), Needs(Expr(Zone, notIn, "z2")), Spread(Zone, 1, "web")),
		Pod("x", web, Requests("cpu", "900m"), Needs(Expr(Zone, notIn, "z3"))))...)
	checkPlans(t, []planCase{{
		"two in z3", withNodes(s, occupied("old", "z1", Pod("old", web))), []string{
			"general large z3: w x2", "general small: x", "unschedulable (Resources): w",
		},
	}})
}
