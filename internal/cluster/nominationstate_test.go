package cluster_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// A node that has just come up is waited for, as long as what keeps its pod off may go.
func TestHowLongANodeThatHasJustComeUpIsWaitedFor(t *testing.T) {
	const window, grace = 20 * time.Second, time.Minute
	tainted := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint(key, corev1.TaintEffectNoSchedule)} }
	}
	declared := func(c *karpv1.NodeClaim) {
		c.Spec.Taints = []corev1.Taint{taint("dedicated", corev1.TaintEffectNoSchedule)}
	}
	removed := func(c *karpv1.NodeClaim) {
		c.DeletionTimestamp = &metav1.Time{Time: start}
		condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because("Empty", ""), start)
	}
	nothing := func(*karpv1.NodeClaim) {}
	for _, tt := range []struct {
		name  string
		claim func(*karpv1.NodeClaim)
		node  func(*corev1.Node)
		want  time.Duration
	}{
		{"no taint", nothing, func(*corev1.Node) {}, window},
		{"a taint of something else", nothing, tainted("node.cilium.io/agent-not-ready"), grace},
		{"a taint that the node lifecycle controller removes", nothing, tainted("node.kubernetes.io/not-ready"), grace},
		{"the pool's taint", declared, tainted("dedicated"), window},
		{"cordoned", nothing, tainted("node.kubernetes.io/unschedulable"), window},
		{"removed as empty", removed, tainted("node.cilium.io/agent-not-ready"), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := cluster.Objects{
				NodeClaims: []*karpv1.NodeClaim{claimOf("a", launched("i-1"), registered("n"), initialized, nominates("uid-p"), tt.claim)},
				Nodes:      []*corev1.Node{nodeOf("n", "i-1", labeledRegistered, initializedNode, tenPods, tt.node)},
				Pods:       []*corev1.Pod{podOf("p", unschedulable)},
			}
			s := cluster.BuildSnapshot(o, cluster.Facts{Now: start.Add(time.Second), NominationWindow: window, TaintGracePeriod: grace})
			n := s.Nodes[0]
			if got := n.SettledAt.Sub(start); got != tt.want {
				t.Errorf("settled after %v, want %v", got, tt.want)
			}
			if keeps := n.KeepsNominated("uid-p"); keeps != (tt.want > 0) {
				t.Errorf("keeps its pod: %v", keeps)
			}
			s = cluster.BuildSnapshot(o, cluster.Facts{Now: start.Add(tt.want + time.Second), NominationWindow: window, TaintGracePeriod: grace})
			if n := s.Nodes[0]; n.KeepsNominated("uid-p") || len(n.Nominated) > 0 {
				t.Error("the pod is kept after that")
			}
		})
	}
}

// A node is not disrupted as an empty one while it is not known whether it refuses the pod that it was launched for: else another comes for
// the same pod, which kube-scheduler refuses there as well.
func TestANodeIsProtectedUntilItIsKnownWhetherItRefusesItsPod(t *testing.T) {
	const window = 20 * time.Second
	known := start.Add(window + refusal.ReportDelay)
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want time.Time
	}{
		{"its pod waits", podOf("p", unschedulable), known},
		{"it is too small for its pod", podOf("p", unschedulable, asks("cpu", "1000")), time.Time{}},
		{"its pod runs elsewhere", boundPod("p", "other"), time.Time{}},
		{"another pod waits", podOf("q", unschedulable), time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := cluster.BuildSnapshot(cluster.Objects{
				NodeClaims: []*karpv1.NodeClaim{claimOf("a", launched("i-1"), registered("n"), initialized, nominates("uid-p"))},
				Nodes:      []*corev1.Node{nodeOf("n", "i-1", labeledRegistered, initializedNode, tenPods), nodeOf("other", "i-2", tenPods)},
				Pods:       []*corev1.Pod{tt.pod},
			}, cluster.Facts{Now: start.Add(window + 3*time.Second), NominationWindow: window})
			if n := s.Nodes[0]; !n.NominatedUntil.Equal(tt.want) || len(n.Nominated) > 0 {
				t.Errorf("protected until %v, want %v; nominated %v", n.NominatedUntil, tt.want, n.Nominated)
			}
		})
	}
}

// The caches of Nodes and NodeClaims are not in step: a node keeps its pods, too, while its claim does not state yet that it is initialized.
func TestANodeKeepsItsPodsThoughItsClaimIsNotShownAsInitialized(t *testing.T) {
	s := cluster.BuildSnapshot(cluster.Objects{
		NodeClaims: []*karpv1.NodeClaim{claimOf("a", launched("i-1"), registered("n"), nominates("uid-p"))},
		Nodes:      []*corev1.Node{nodeOf("n", "i-1", labeledRegistered, initializedNode, tenPods)},
		Pods:       []*corev1.Pod{podOf("p", unschedulable)},
	}, cluster.Facts{Now: start.Add(time.Second), NominationWindow: 20 * time.Second})
	if n := s.Nodes[0]; !n.Initialized || !n.SettledAt.IsZero() || !n.KeepsNominated("uid-p") {
		t.Errorf("initialized %v, settled at %v, keeps its pod: %v", n.Initialized, n.SettledAt, n.KeepsNominated("uid-p"))
	}
}

// Two nodes have just come up, and kube-scheduler has swapped their pods. Each pod that runs elsewhere is nominated no longer: a simulation
// that moves it finds its node occupied.
func TestAPodThatRunsElsewhereIsNominatedNoLonger(t *testing.T) {
	web := func(name, node string) *corev1.Pod { return boundPod(name, node, asks("cpu", "3")) }
	o := cluster.Objects{
		NodeClaims: []*karpv1.NodeClaim{
			claimOf("a", launched("i-1"), registered("n1"), initialized, nominates("uid-p1")),
			claimOf("b", launched("i-2"), registered("n2"), initialized, nominates("uid-p2,uid-waits")),
		},
		Nodes: []*corev1.Node{
			nodeOf("n1", "i-1", labeledRegistered, initializedNode, tenPods), nodeOf("n2", "i-2", labeledRegistered, initializedNode, tenPods),
		},
		Pods: []*corev1.Pod{web("p2", "n1"), web("p1", "n2"), podOf("waits", unschedulable)},
	}
	for _, tt := range []struct {
		name  string
		leave bool // the node of p2
		want  string
	}{{"its node stays", false, "[] [uid-waits]"}, {"its node leaves", true, "[] [uid-p2 uid-waits]"}} {
		t.Run(tt.name, func(t *testing.T) {
			facts := cluster.Facts{Now: start.Add(time.Second), NominationWindow: time.Minute}
			if tt.leave {
				facts.MarkedForDeletion = map[types.UID]bool{o.NodeClaims[0].UID: true}
			}
			s := cluster.BuildSnapshot(o, facts)
			if got := fmt.Sprint(s.Nodes[0].Nominated, " ", s.Nodes[1].Nominated); got != tt.want {
				t.Fatalf("nominated %s, want %s", got, tt.want)
			}
			if tt.leave {
				return
			}
			plan := schedule.Compile(s).WhatIf([]int{0}, s.Nodes[0].Pods, schedule.DefaultBudget())
			for _, placed := range plan.Placements {
				for _, pod := range placed.Pods {
					if pod.Name == "p2" {
						t.Errorf("p2 moves to %s, where p1 leaves no room", placed.Node)
					}
				}
			}
		})
	}
}

// What keeps a pod off its node: others that came first, or the node itself.
func TestPlacesThatAreTakenAndNodesThatAreTooSmall(t *testing.T) {
	daemon := ownedBy("DaemonSet", "agent")
	for _, tt := range []struct {
		name            string
		pod             *corev1.Pod
		others          []*corev1.Pod
		taken, tooSmall bool
	}{
		{"room is left", podOf("p", unschedulable, asks("cpu", "1")), []*corev1.Pod{boundPod("x", "n", asks("cpu", "1"))}, false, false},
		{"another pod took the room", podOf("p", unschedulable, asks("cpu", "1")), []*corev1.Pod{boundPod("x", "n", asks("cpu", "3"))}, true, false},
		{
			"pods of a DaemonSet leave too little", podOf("p", unschedulable, asks("cpu", "1")),
			[]*corev1.Pod{boundPod("x", "n", asks("cpu", "3"), daemon)},
			false, true,
		},
		{"the node is too small", podOf("p", unschedulable, asks("cpu", "9")), nil, false, true},
		{
			"anti-affinity to a pod that came", podOf("p", unschedulable, asks("cpu", "1"), apart("web")),
			[]*corev1.Pod{boundPod("x", "n", asks("cpu", "1"), apart("web"))},
			true, false,
		},
		{
			"anti-affinity to a pod of a DaemonSet, which was to be planned for", podOf("p", unschedulable, asks("cpu", "1"), apart("web")),
			[]*corev1.Pod{boundPod("x", "n", asks("cpu", "1"), apart("web"), daemon)},
			false, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := cluster.BuildSnapshot(cluster.Objects{
				NodeClaims: []*karpv1.NodeClaim{claimOf("a", launched("i-1"), registered("n"), initialized, nominates("uid-p"))},
				Nodes: []*corev1.Node{nodeOf("n", "i-1", labeledRegistered, initializedNode, func(n *corev1.Node) {
					n.Status.Allocatable = room("3500m", "14Gi")
					tenPods(n)
				})},
				Pods: append(tt.others, tt.pod),
			}, cluster.Facts{Now: start.Add(time.Second), NominationWindow: 20 * time.Second})
			n := s.Nodes[0]
			want := fmt.Sprint(only(tt.taken), only(tt.tooSmall), !tt.taken && !tt.tooSmall)
			if got := fmt.Sprint(n.TakenFrom, n.TooSmallFor, n.KeepsNominated("uid-p")); got != want {
				t.Errorf("taken from, too small for, keeps: %s, want %s", got, want)
			}
		})
	}
}

func only(is bool) (out []types.UID) {
	if is {
		out = append(out, "uid-p")
	}
	return out
}

// A policy rejects the binding: the pod waits for its node, and is no reason for another one.
func TestPodsThatCannotBeBoundTakeRoom(t *testing.T) {
	s := cluster.BuildSnapshot(cluster.Objects{Pods: []*corev1.Pod{podOf("p", func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError},
		}
	})}}, cluster.Facts{Now: start})
	if len(s.Pods) != 0 || len(s.Arriving) != 1 || len(s.Waiting()) != 1 {
		t.Errorf("%d pods to schedule, %d arriving, %d waiting; want 0, 1, 1", len(s.Pods), len(s.Arriving), len(s.Waiting()))
	}
}

func tenPods(n *corev1.Node) {
	n.Status.Allocatable[corev1.ResourcePods] = room("10", "1")[corev1.ResourceCPU]
}

func labeledRegistered(n *corev1.Node) { n.Labels[karpv1.LabelRegistered] = "true" }
