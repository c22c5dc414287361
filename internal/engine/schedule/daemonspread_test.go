package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

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
