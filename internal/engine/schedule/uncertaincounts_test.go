package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// podsIn counts the pods of the plan's launches by zone; those of a launch with an open zone have none.
func podsIn(p schedule.Plan) map[string]int {
	out := map[string]int{}
	for i := range p.Launches {
		zone, _ := p.Launches[i].Requirements.Get(Zone).Single()
		out[zone] += len(p.Launches[i].Pods)
	}
	return out
}

// A pod that others count if they may run beside it is on a new node of a type that they do not select: kube-scheduler counts no pods there,
// so that the pod makes no room in the other zone. The zone of its node is not stated, and only one is left.
func TestPodsOnNodesThatMayNotCountMakeNoRoom(t *testing.T) {
	zones := func(it *catalog.InstanceType, prices ...float64) *catalog.InstanceType {
		return WithOfferings(it, Offering("z2", "on-demand", prices[0]), Offering("z3", "on-demand", prices[1]))
	}
	types := []*catalog.InstanceType{
		zones(Type("t1", 0.1, "cpu", "2", "memory", "32Gi"), 0.1, 0.12), zones(Type("t2", 0.4, "cpu", "8", "memory", "32Gi"), 0.42, 0.4),
	}
	app := Labeled("app", "a")
	pods := append(Pods(4, "a", app, Selects(corev1.LabelInstanceTypeStable, "t1"), Requests("cpu", "10m"), Spread(Zone, 1, "a")),
		Pod("b", app, Requests("cpu", "2250m"), Needs(Expr(Zone, corev1.NodeSelectorOpNotIn, "z2"))))
	p := solveValid(t, World([]snapshot.Pool{Pool("general", types)}, pods...))
	of := map[string]int{}
	for i := range p.Launches {
		zone, _ := p.Launches[i].Requirements.Get(Zone).Single()
		for _, pod := range p.Launches[i].Pods {
			if pod.Name != "b" {
				of[zone]++
			}
		}
	}
	if len(p.Rejected) != 0 || of["z2"] != 2 || of["z3"] != 2 {
		t.Errorf("pods per zone %v, %d rejected; want two in each zone", of, len(p.Rejected))
	}
}

// A node is being deleted, and its pods move. The DaemonSet's pod there goes with the node: no pod can follow it to its zone, and it evens
// out no spread.
func TestPodsOfDaemonSetsLeaveWithTheirNode(t *testing.T) {
	leaving := func(moves bool) *snapshot.Snapshot {
		old := Bound(Pod("old", Labeled("app", "old"), Requests("cpu", "1")), "n1")
		agent := Bound(Pod("agent-n1", Labeled("app", "agent"), OwnedBy("apps/v1", "DaemonSet")), "n1")
		s := World([]snapshot.Pool{Pool("general", Types(), Require(Zone, corev1.NodeSelectorOpIn, "z1", "z2"))},
			Pod("a", Requests("cpu", "1"), Near(Zone, "agent")))
		s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) { n.Deleting, n.Pods = true, []*corev1.Pod{old, agent} })}
		if moves {
			s.Pods = append(s.Pods, old)
		}
		return s
	}
	if p := solveValid(t, leaving(false)); podsIn(p)["z1"] != 1 {
		t.Errorf("while the node stays: pods per zone %v, %d rejected; want the pod in z1", podsIn(p), len(p.Rejected))
	}
	if p := solveValid(t, leaving(true)); len(p.Rejected) != 1 || p.Rejected[0].Pod.Name != "a" {
		t.Errorf("once its pods move: pods per zone %v, %d rejected; want pod a without a node", podsIn(p), len(p.Rejected))
	}
}
