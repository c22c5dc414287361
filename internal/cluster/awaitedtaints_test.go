package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// agentNotReady is a taint that no pool declares, and that a network plugin removes.
func agentNotReady(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, taint("node.cilium.io/agent-not-ready", corev1.TaintEffectNoSchedule))
}

// swapped are two nodes that came up for two pods each, and have the room of two. The first has lost the taint of another component, and
// kube-scheduler has bound the pods of the second to it.
type swapped struct {
	first, second *karpv1.NodeClaim
	n1, n2        *corev1.Node
	bound         []*corev1.Pod
	waiting       []*corev1.Pod
	leaving       map[types.UID]bool
	others        []*corev1.Node
}

func newSwapped() *swapped {
	large := asks("cpu", "1500m")
	node := func(name, id string, change ...func(*corev1.Node)) *corev1.Node {
		return nodeOf(name, id, append([]func(*corev1.Node){labeledRegistered, initializedNode, func(n *corev1.Node) {
			n.Status.Allocatable = enginetest.Resources("cpu", "3920m", "memory", "6Gi", "pods", "58")
		}}, change...)...)
	}
	return &swapped{
		first:   claimOf("a", launched("i-1"), registered("n1"), initialized, nominates("uid-a1,uid-a2")),
		second:  claimOf("b", launched("i-2"), registered("n2"), initialized, nominates("uid-b1,uid-b2")),
		n1:      node("n1", "i-1"),
		n2:      node("n2", "i-2", agentNotReady),
		bound:   []*corev1.Pod{boundPod("b1", "n1", large), boundPod("b2", "n1", large)},
		waiting: []*corev1.Pod{podOf("a1", large, unschedulable), podOf("a2", large, unschedulable)},
	}
}

// plan plans the cluster, so long after the nodes were initialized. It returns how many pods are placed on the second node, and how many
// get a new one.
func (w *swapped) plan(after time.Duration) string {
	s := cluster.BuildSnapshot(cluster.Objects{
		NodeClaims: []*karpv1.NodeClaim{w.first, w.second}, Nodes: append(w.others, w.n1, w.n2), Pods: slices.Concat(w.bound, w.waiting),
	}, cluster.Facts{
		Now: start.Add(after), NominationWindow: 20 * time.Second, TaintGracePeriod: 30 * time.Second, MarkedForDeletion: w.leaving,
	})
	world := enginetest.World(nil)
	s.Pools, s.Labels = []snapshot.Pool{enginetest.Pool("general", enginetest.Types())}, world.Labels
	plan := schedule.Solve(s, schedule.DefaultBudget())
	second, anew := 0, 0
	for _, p := range plan.Placements {
		if p.Claim == "b" {
			second += len(p.Pods)
		}
	}
	for i := range plan.Launches {
		anew += len(plan.Launches[i].Pods)
	}
	return fmt.Sprint(second, " on it, ", anew, " anew")
}

// kube-scheduler does not know which pods a node was launched for. While something else may still remove a taint of a node, the room of pods
// that have gone elsewhere is for those that lost their places to them: another node for these would be a second one. Pods that the node
// does not suit without the taint get theirs at once, and so do all others while the node's own pods wait for it.
func TestANodeWhoseTaintMayGoHasRoomForOtherPods(t *testing.T) {
	large := asks("cpu", "1500m")
	uninitialized := func(w *swapped) {
		w.second = claimOf("b", launched("i-2"), registered("n2"), nominates("uid-b1,uid-b2"))
		delete(w.n2.Labels, karpv1.LabelInitialized)
	}
	tolerates := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	for _, tt := range []struct {
		name   string
		change func(*swapped)
		after  time.Duration
		want   string
	}{
		{"its pods came to the other node", nil, 18 * time.Second, "2 on it, 0 anew"},
		{"its grace period is over", nil, 31 * time.Second, "0 on it, 2 anew"},
		{"it is not initialized yet", uninitialized, 18 * time.Second, "2 on it, 0 anew"},
		{"only its Node states that it is initialized", func(w *swapped) {
			uninitialized(w)
			initializedNode(w.n2)
		}, 18 * time.Second, "2 on it, 0 anew"},
		{"a startup taint is stuck there", func(w *swapped) {
			uninitialized(w)
			condition.SetUnknown(w.second, karpv1.ConditionInitialized, condition.Because(cluster.ReasonTaintStuck, ""), start)
		}, 18 * time.Second, "0 on it, 2 anew"},
		{"one of its pods came, and one waits for it", func(w *swapped) {
			w.bound = []*corev1.Pod{boundPod("b1", "n1", large), boundPod("a1", "n1", large)}
			w.waiting = []*corev1.Pod{podOf("a2", large, unschedulable), podOf("b2", large, unschedulable)}
		}, 18 * time.Second, "2 on it, 0 anew"},
		{"its pods are gone, and others wait", func(w *swapped) { w.bound = nil }, 18 * time.Second, "0 on it, 0 anew"},
		{"its pods are gone, and others wait beside a full node", func(w *swapped) {
			w.bound = []*corev1.Pod{boundPod("a1", "n1", large), boundPod("a2", "n1", large)}
			w.waiting = []*corev1.Pod{podOf("c1", large, unschedulable), podOf("c2", asks("cpu", "2"), unschedulable)}
		}, 18 * time.Second, "2 on it, 0 anew"},
		{"its pods wait for it: others get their node", func(w *swapped) {
			w.bound = []*corev1.Pod{boundPod("a1", "n1", large), boundPod("a2", "n1", large), boundPod("full", "n1", asks("cpu", "900m"))}
			w.waiting = []*corev1.Pod{
				podOf("b1", large, unschedulable), podOf("b2", large, unschedulable), podOf("c", asks("cpu", "500m"), unschedulable),
			}
		}, 18 * time.Second, "2 on it, 1 anew"},
		{"another node has room now", func(w *swapped) {
			w.others = []*corev1.Node{nodeOf("z", "", func(n *corev1.Node) { n.Status.Allocatable = enginetest.Resources("cpu", "2", "pods", "9") })}
		}, 18 * time.Second, "1 on it, 0 anew"},
		{"it has no room for all", func(w *swapped) {
			w.waiting = append(w.waiting, podOf("a3", large, unschedulable))
		}, 18 * time.Second, "2 on it, 1 anew"},
		{"it is too small", func(w *swapped) {
			w.waiting = []*corev1.Pod{podOf("a1", asks("cpu", "5"), unschedulable)}
		}, 18 * time.Second, "0 on it, 1 anew"},
		{"the pool has the taint", func(w *swapped) { w.second.Spec.Taints = w.n2.Spec.Taints }, 18 * time.Second, "0 on it, 2 anew"},
		{"it is cordoned", func(w *swapped) { w.n2.Spec.Unschedulable = true }, 18 * time.Second, "0 on it, 2 anew"},
		{"it is being removed", func(w *swapped) {
			w.second.DeletionTimestamp = &metav1.Time{Time: start}
		}, 18 * time.Second, "0 on it, 2 anew"},
		{"its pods tolerate the taint: nothing needs to remove it", func(w *swapped) {
			tolerates(w.bound[0])
			tolerates(w.bound[1])
		}, 18 * time.Second, "0 on it, 2 anew"},
		{"a pod is there that does not tolerate the taint: it came later", func(w *swapped) {
			w.bound = []*corev1.Pod{boundPod("b1", "n1", large), boundPod("a1", "n1", large), boundPod("b2", "n2", large)}
			w.waiting = w.waiting[1:]
		}, 18 * time.Second, "0 on it, 1 anew"},
		{"its pods are on a node that is leaving, and come back", func(w *swapped) {
			w.leaving = map[types.UID]bool{w.first.UID: true}
			w.waiting = append(w.waiting, podOf("c", asks("cpu", "500m"), unschedulable))
		}, 18 * time.Second, "2 on it, 3 anew"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newSwapped()
			if tt.change != nil {
				tt.change(w)
			}
			if got := w.plan(tt.after); got != tt.want {
				t.Errorf("planned: %s; want %s", got, tt.want)
			}
		})
	}
}
