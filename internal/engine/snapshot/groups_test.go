package snapshot_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// on returns a node with pods, and the nodes' pods bound to it.
func on(name string, pods ...*corev1.Pod) snapshot.Node {
	return Node(name, "general", func(n *snapshot.Node) { n.Pods = pods })
}

func nominatedTo(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.NominatedNodeName = node }
}

// victim is evicted by kube-scheduler for other pods.
func victim() *corev1.Pod {
	p := Bound(Pod("victim", terminating), "n1")
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
	}}
	return p
}

func TestHowManyPodsOfAGroupNeedNodes(t *testing.T) {
	in := InGroup("g")
	for _, c := range []struct {
		name  string
		nodes []snapshot.Node
		more  []*corev1.Pod
		need  int
	}{
		{"none has one", nil, nil, 4},
		{"one has one", []snapshot.Node{on("n1", Bound(Pod("a", in), "n1"))}, nil, 3},
		{"it terminates", []snapshot.Node{on("n1", Bound(Pod("a", in, terminating), "n1"))}, nil, 3},
		{"it has finished", nil, []*corev1.Pod{Pod("a", in, func(p *corev1.Pod) { p.Spec.NodeName = "n1" }, phase(corev1.PodSucceeded))}, 4},
		{"it failed", nil, []*corev1.Pod{Pod("a", in, func(p *corev1.Pod) { p.Spec.NodeName = "n1" }, phase(corev1.PodFailed))}, 4},
		{"a static pod", []snapshot.Node{on("n1", Bound(Pod("a", in, OwnedBy("v1", "Node")), "n1"))}, nil, 3},
		{"its node is gone", nil, []*corev1.Pod{Bound(Pod("a", in), "gone")}, 3},
		{"one is about to be bound", []snapshot.Node{on("n1", Pod("a", in, nominatedTo("n1")))}, nil, 3},
		{"one is nominated to a node that is gone", nil, []*corev1.Pod{Pod("a", in, nominatedTo("gone"))}, 4},
		{"one waits for others to leave", []snapshot.Node{on("n1", Pod("a", in, nominatedTo("n1")), victim())}, nil, 4},
		{"more than enough have one", []snapshot.Node{on("n1",
			Bound(Pod("a", in), "n1"), Bound(Pod("b", in), "n1"), Bound(Pod("c", in), "n1"), Bound(Pod("d", in), "n1"), Bound(Pod("e", in), "n1"),
		)}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World(nil)
			s.Nodes = c.nodes
			WithGroups(s, Gang("g", 4))
			s.PodGroups[0].Members = append(s.PodGroups[0].Members, c.more...)
			if got := snapshot.ReadGroups(s).All()[0].Need(0); got != c.need {
				t.Errorf("need %d, want %d", got, c.need)
			}
		})
	}
}

func TestPodsThatLoseTheirNodeAreNeededAgain(t *testing.T) {
	s := World(nil)
	s.Nodes = []snapshot.Node{on("n1", Bound(Pod("a", InGroup("g")), "n1"), Bound(Pod("b", InGroup("g")), "n1"))}
	g := snapshot.ReadGroups(WithGroups(s, Gang("g", 2))).All()[0]
	if got := []int{g.Need(0), g.Need(1), g.Need(2)}; got[0] != 0 || got[1] != 1 || got[2] != 2 {
		t.Errorf("need %v", got)
	}
}

func TestWhyGroupsAreHeld(t *testing.T) {
	in, never, ten := InGroup("g"), corev1.PreemptNever, int32(10)
	condition := func(status metav1.ConditionStatus, reason, message string) func(*schedulingv1beta1.PodGroup) {
		return func(g *schedulingv1beta1.PodGroup) {
			g.Status.Conditions = []metav1.Condition{{
				Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: reason, Message: message,
			}}
		}
	}
	for _, c := range []struct {
		name  string
		group *schedulingv1beta1.PodGroup
		pods  []*corev1.Pod
		nodes []snapshot.Node
		want  string // part of the message; empty if the group is not held
	}{
		{"as many pods as it needs", Gang("g", 2), Pods(2, "p", in), nil, ""},
		{"too few pods", Gang("g", 3), Pods(2, "p", in), nil, `needs 3 pods at the same time (gang.minCount), and 2 exist`},
		{"pods that have finished exist", Gang("g", 3), append(Pods(2, "p", in), Pod("done", in, phase(corev1.PodSucceeded))), nil, ""},
		{"a basic group needs no number", Gang("g", 0, func(g *schedulingv1beta1.PodGroup) {
			g.Spec.SchedulingPolicy.Gang, g.Spec.SchedulingPolicy.Basic = nil, &schedulingv1beta1.BasicSchedulingPolicy{}
		}), Pods(1, "p", in), nil, ""},
		{"the group is being deleted", Gang("g", 2, func(g *schedulingv1beta1.PodGroup) {
			g.DeletionTimestamp = &metav1.Time{Time: Now()}
		}), Pods(2, "p", in), nil, ""},
		{"a topology", Gang("g", 2, GroupKey(Zone)), Pods(2, "p", in), nil, ""},
		{"pods in two domains", Gang("g", 2, GroupKey(Host)), Pods(2, "p", in), []snapshot.Node{
			on("n1", Bound(Pod("a", in), "n1")), on("n2", Bound(Pod("b", in), "n2")),
		}, `has pods in two, or on a node without that label, such as pod "b"`},
		{"a pod in no domain", Gang("g", 2, GroupKey("rack")), Pods(2, "p", in), []snapshot.Node{on("n1", Bound(Pod("a", in), "n1"))}, `such as pod "a"`},
		{"a topology and a spread", Gang("g", 2, GroupKey(Zone)), Pods(2, "p", in, Spread(Zone, 1, "p")), nil, "has a spread constraint"},
		{"one pod has gates", Gang("g", 2), append(Pods(2, "p", in), Pod("late", in, func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
		})), nil, `waits for its pod "late", which has scheduling gates`},
		{"priorities differ", Gang("g", 2), Pods(2, "p", in, func(p *corev1.Pod) { p.Spec.Priority = &ten }), nil, `has priority 0, and its pod "p-000" has 10`},
		{"priorities are the same", Gang("g", 2, func(g *schedulingv1beta1.PodGroup) { g.Spec.Priority = &ten }), Pods(2, "p", in, func(p *corev1.Pod) {
			p.Spec.Priority = &ten
		}), nil, ""},
		{"preemption policies differ", Gang("g", 2), append(Pods(1, "p", in), Pod("q", in, func(p *corev1.Pod) {
			p.Spec.PreemptionPolicy = &never
		})), nil, "two preemption policies"},
		{"schedulers differ from that of a pod with a node", Gang("g", 2), Pods(1, "p", in), []snapshot.Node{
			on("n1", Bound(Pod("old", in, func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }), "n1")),
		}, "two schedulers"},
		{"kube-scheduler fails", Gang("g", 2, condition(metav1.ConditionFalse, "SchedulerError", "no profile")), Pods(2, "p", in), []snapshot.Node{on("n1")}, "no profile"},
		{"kube-scheduler fails without a node", Gang("g", 2, condition(metav1.ConditionFalse, "SchedulerError", "not found")), Pods(2, "p", in), nil, ""},
		{"kube-scheduler has found no room", Gang("g", 2, condition(metav1.ConditionFalse, "Unschedulable", "")), Pods(2, "p", in), nil, ""},
		{
			"others leave for it", Gang("g", 2), Pods(3, "p", in, func(p *corev1.Pod) {
				if p.Name == "p-001" {
					p.Status.NominatedNodeName = "n1"
				}
			}),
			[]snapshot.Node{on("n1", victim())},
			"waits for pods of lower priority to leave node n1",
		},
		{
			"others have left", Gang("g", 2), Pods(3, "p", in, nominatedTo("n1")), []snapshot.Node{on("n1")}, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World(nil, c.pods...)
			s.Nodes = c.nodes
			g := snapshot.ReadGroups(WithGroups(s, c.group)).All()[0]
			got := ""
			if g.Held != nil {
				got = g.Held.Rule.PodGroup.Held
			}
			if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("held: %q, want %q", got, c.want)
			}
		})
	}
}

func TestGroupsOfNoOtherNamespace(t *testing.T) {
	s := WithGroups(World(nil, Pods(2, "p", InGroup("g"))...), Gang("g", 2))
	other := Pod("p", InGroup("g"))
	other.Namespace = "other"
	if g := snapshot.ReadGroups(s); g.Of(other) != nil || g.Of(Pod("alone")) != nil || g.Of(s.Pods[0]) != g.All()[0] {
		t.Error("pods are in the wrong groups")
	}
}
