package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestSpreadsCountDaemonsOnNewNodes: a DaemonSet's pod is on a new node before the pods that spread there.
func TestSpreadsCountDaemonsOnNewNodes(t *testing.T) {
	large := Requests("cpu", "3")
	web := func(n int, edit ...func(*corev1.Pod)) []*corev1.Pod {
		return Pods(n, "w", append([]func(*corev1.Pod){Labeled("app", "web"), large}, edit...)...)
	}
	agent := func(edit ...func(*corev1.Pod)) *corev1.Pod {
		return Pod("agent", append([]func(*corev1.Pod){Labeled("app", "web")}, edit...)...)
	}
	full := func(name, zone string, pods ...*corev1.Pod) snapshot.Node {
		return Node(name, "general", inZone(zone), func(n *snapshot.Node) {
			n.Allocatable, n.Capacity = Resources("cpu", "0", "pods", "110"), Resources("cpu", "0", "pods", "110")
			n.Pods = pods
		})
	}
	running := func(node string) *corev1.Pod { return daemonOf("agent", node, Labeled("app", "web")) }
	inFlight := Node("n", "general", func(n *snapshot.Node) { n.Registered, n.Initialized, n.Name = false, false, n.Claim })
	onHosts, onZones := Spread(Host, 1, "web"), Spread(Zone, 1, "web")
	checkPlans(t, []planCase{
		{"hosts that all have one", daemons(withNodes(world(web(2, onHosts)...), full("a", "z1", running("a")), full("b", "z2", running("b"))),
			agent()), []string{"general m.large: w", "general m.large: w"}},
		{"new hosts only", daemons(world(web(2, onHosts)...), agent()), []string{"general m.large: w", "general m.large: w"}},
		{
			"a host without one", daemons(withNodes(world(web(1, onHosts)...), full("a", "z1"), full("b", "z2")), agent()),
			[]string{"unschedulable (Topology): w"},
		},
		{"a host without one, of another namespace", daemons(withNodes(world(web(1, onHosts)...), full("a", "z1"), full("b", "z2")),
			agent(func(p *corev1.Pod) { p.Namespace = "other" })), []string{"general m.large: w"}},
		{"a host without one, and types that get none", daemons(withNodes(world(web(1, onHosts)...), full("a", "z1"), full("b", "z2")),
			agent(Selects(corev1.LabelInstanceTypeStable, "m.large"))), []string{"general m.xlarge: w"}},
		{
			"new zones only", daemons(world(web(3, onZones)...), agent()),
			[]string{"general m.large z1: w", "general m.large z2: w", "general m.large z3: w"},
		},
		{
			"a zone without one", daemons(withNodes(world(web(1, onZones)...), full("a", "z1"), full("b", "z2"), full("c", "z3")), agent()),
			[]string{"unschedulable (Topology): w"},
		},
		{"a zone without one that gets it", daemons(withNodes(world(web(1, onZones)...), full("a", "z1", running("a")), full("b", "z2"),
			full("c", "z3", running("c"))), agent()), []string{"general m.large z2: w"}},
		{
			"a zone with one in flight", daemons(withNodes(world(web(1, onZones, Requests("cpu", "900m"))...), inFlight, full("b", "z2")), agent()),
			[]string{"general m.small z2: w"},
		},
		{"another pod's node", daemons(world(append(web(1, Spread(Zone, 1, "web"), Selects(Zone, "z1")),
			Pod("x", Requests("cpu", "900m"), Selects(Zone, "z1")))...), agent()), []string{"general m.large z1: w, x"}},
	})
}

// TestDaemonsThatWantOneHostPort: of two DaemonSets with one host port, the pod of either comes to a new node. Pods can count on it where
// both would do, and where only one of them runs.
func TestDaemonsThatWantOneHostPort(t *testing.T) {
	port := HostPort("", 80, corev1.ProtocolTCP)
	web := Pod("agent", Labeled("app", "web"), port)
	other := func(edit ...func(*corev1.Pod)) *corev1.Pod {
		return Pod("other", append([]func(*corev1.Pod){port}, edit...)...)
	}
	spread := func() []*corev1.Pod {
		return Pods(3, "w", Labeled("app", "web"), Requests("cpu", "3"), Spread(Zone, 1, "web"))
	}
	follower := Pod("f", Near(Host, "web"))
	checkPlans(t, []planCase{
		{"a spread that counts both", daemons(world(spread()...), web, other(Labeled("app", "web"))), []string{
			"general m.large z1: w", "general m.large z2: w", "general m.large z3: w",
		}},
		{
			"room for one of them", daemons(world(Pod("x", Requests("cpu", "700m"))), Pod("agent", Requests("cpu", "200m"), port),
				other(Requests("cpu", "100m"))), []string{"general m.small: x"},
		},
		{"a follower of both", daemons(world(follower), web, other(Labeled("app", "web"))), []string{"general m.small: f"}},
		{"a follower of one", daemons(world(follower), web, other()), []string{"unschedulable (Topology): f"}},
		{
			"a follower of one, and the other runs elsewhere",
			daemons(world(follower), web, other(Selects(corev1.LabelInstanceTypeStable, "m.large"))),
			[]string{"general m.small: f"},
		},
		{
			"a follower of one, and a running pod keeps the other off",
			daemons(withNodes(world(follower), occupied("old", "z2", Pod("keeper", Apart(Zone, "other")))), web, other(Labeled("app", "other"))),
			[]string{"general m.small z2: f"},
		},
		{
			"a follower of one, and a running pod keeps the other off in another zone",
			daemons(withNodes(world(Pod("f", Near(Host, "web"), Selects(Zone, "z2"))), occupied("old", "z1", Pod("keeper", Apart(Zone, "other")))),
				web, other(Labeled("app", "other"))),
			[]string{"unschedulable (Topology): f"},
		},
	})
}

// TestTheFirstPodOfASetWaitsForNodesThatMayBringOne: a new node for another pod may bring a DaemonSet's pod of a set that must be together.
// kube-scheduler has the set's first pod follow that one, so it gets no node elsewhere in the same plan.
func TestTheFirstPodOfASetWaitsForNodesThatMayBringOne(t *testing.T) {
	amd := WithLabel(Type("amd", 0.2, "cpu", "4", "memory", "16Gi", "pods", "110"), Arch, "amd64")
	arm := WithLabel(Type("arm", 0.4, "cpu", "8", "memory", "32Gi", "pods", "110"), Arch, "arm64")
	types := []*catalog.InstanceType{
		WithOfferings(amd, Offering("z2", "on-demand", 0.2)),
		WithOfferings(arm, Offering("z2", "on-demand", 0.4), Offering("z3", "on-demand", 0.4)),
	}
	first := Pod("first", Labeled("app", "set"), Near(Host, "set"), Selects(Zone, "z3"))
	agent := Pod("agent", Labeled("app", "set"), Selects(Arch, "amd64"))
	inPool := func(pods ...*corev1.Pod) *snapshot.Snapshot {
		return World([]snapshot.Pool{Pool("general", types)}, pods...)
	}
	checkPlans(t, []planCase{
		{"alone", daemons(inPool(first), agent), []string{"general arm z3: first"}},
		{"beside a node that may bring one", daemons(inPool(first, Pod("x", Selects(Zone, "z2"))), agent), []string{
			"general amd z2: x", "unschedulable (Topology): first",
		}},
	})
}

// TestNewDomainsMakeNoRoomByPodsThatWait: a pod that is one too many beside a new domain needs another pod there. Where two spreads cross,
// that other pod may have to wait for the first.
func TestNewDomainsMakeNoRoomByPodsThatWait(t *testing.T) {
	amd := WithLabel(Type("amd", 0.1, "cpu", "2", "memory", "8Gi", "pods", "110"), Arch, "amd64")
	arm := WithLabel(Type("arm", 0.1, "cpu", "2", "memory", "8Gi", "pods", "110"), Arch, "arm64")
	types := []*catalog.InstanceType{WithOfferings(amd, Offering("z3", "on-demand", 0.1)), WithOfferings(arm, Offering("z2", "on-demand", 0.1))}
	web := []func(*corev1.Pod){Labeled("app", "web"), Requests("cpu", "500m")}
	world := func(edit ...func(*corev1.Pod)) *snapshot.Snapshot {
		s := World([]snapshot.Pool{Pool("general", types)}, Pods(3, "w", append(edit, web...)...)...)
		return daemons(withNodes(s, occupied("old", "z2", Pods(2, "old", web...)...)), Pod("agent", Labeled("app", "web")))
	}
	checkPlans(t, []planCase{
		{"spreads over zones and architectures", world(Spread(Zone, 1, "web"), Spread(Arch, 3, "web", onAllNodes)), []string{
			"general amd z3: w x2", "unschedulable (Topology): w",
		}},
	})
}

// TestNodesWithoutADaemonSetTakePodsOnceADomainIsOut: each node on demand brings a pod of the DaemonSet, with which another is too many on
// the host. So nothing can be launched there for pods that spread over capacity types, too, and they come to spot, although more than
// maxSkew are there.
func TestNodesWithoutADaemonSetTakePodsOnceADomainIsOut(t *testing.T) {
	amd := WithLabel(Type("amd", 0.1, "cpu", "2", "memory", "8Gi", "pods", "110"), Arch, "amd64")
	arm := WithLabel(Type("arm", 0.1, "cpu", "2", "memory", "8Gi", "pods", "110"), Arch, "arm64")
	types := []*catalog.InstanceType{WithOfferings(amd, Offering("z2", "spot", 0.1)), WithOfferings(arm, Offering("z2", "on-demand", 0.1))}
	pods := append(Pods(2, "w", Labeled("app", "web"), Spread(Host, 1, "web")),
		Pod("x", Labeled("app", "web"), Spread(Host, 1, "web"), Spread(Capacity, 1, "web")))
	agent := Pod("agent", Labeled("app", "web"), Selects(Arch, "arm64"))
	checkPlans(t, []planCase{
		{"hosts that begin with one", daemons(World([]snapshot.Pool{Pool("general", types)}, pods...), agent), []string{
			"general amd: w", "general amd: w", "general amd: x",
		}},
	})
}

// TestPodsWaitForNodesThatBringTooManyDaemons: each new node brings a pod of a DaemonSet to its architecture. The pod that counts these fits
// beside one of them, so no second node is launched for a pod that follows it: that one waits for the next plan.
func TestPodsWaitForNodesThatBringTooManyDaemons(t *testing.T) {
	agent := Pod("agent", Labeled("app", "agent"), Selects(corev1.LabelOSStable, "linux"))
	first := Pod("first", Labeled("app", "first"), Requests("cpu", "750m"), Spread(Arch, 1, "agent"))
	web := Pods(2, "w", Labeled("app", "web"), Near(Capacity, "first"), Spread(Host, 1, "web"))
	arm := occupied("arm", "z1")
	arm.Labels[Arch] = "arm64"
	checkPlans(t, []planCase{
		{"without followers", daemons(withNodes(world(first), arm), agent), []string{"general m.small: first"}},
		{"with followers", daemons(withNodes(world(append(web, first)...), arm), agent), []string{
			"general m.small: first, w", "unschedulable (Topology): w",
		}},
	})
}

// TestDomainsBeginWithDaemonsOfNodesThatCount: the first node of each zone brings a DaemonSet's pod, if it is one that the pods select.
func TestDomainsBeginWithDaemonsOfNodesThatCount(t *testing.T) {
	pools := []snapshot.Pool{
		Pool("general", Types()), Pool("rack", Types(), TemplateLabel("rack", "r1"), PoolTaint("dedicated", corev1.TaintEffectNoSchedule)),
	}
	outside := func(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
		return Pod(name, append(edit, Labeled("app", "web"), Needs(Expr("rack", absent)), Spread(Zone, 1, "web"))...)
	}
	checkPlans(t, []planCase{{
		"not those of another pool's nodes", daemons(World(pools, outside("a"), outside("b", Tolerates("dedicated"))), Pod("agent", Labeled("app", "web"))),
		[]string{"general m.small z1: a", "general m.small z2: b"},
	}})
}
