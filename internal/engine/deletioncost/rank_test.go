package deletioncost

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ranked returns the ranking of a cluster with a pool "p" of two types, and the nodes.
func ranked(t *testing.T, pool func(*karpv1.NodePool), nodes ...snapshot.Node) Ranking {
	t.Helper()
	s := enginetest.World([]snapshot.Pool{enginetest.Pool("p", enginetest.Types(), func(p *karpv1.NodePool) {
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		if pool != nil {
			pool(p)
		}
	})})
	s.Nodes = nodes
	v := disrupt.NewView(s)
	return Rank(v, Budgets{
		v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionDrifted)), v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionUnderutilized)),
	})
}

// node is an initialized node with so many pods of a ReplicaSet.
func node(name string, pods int, edit ...func(*snapshot.Node)) snapshot.Node {
	it := enginetest.Types()[0]
	n := enginetest.Node(name, "p", func(n *snapshot.Node) {
		n.Claim, n.Launched, n.Registered, n.Initialized, n.Ready = name, true, true, true, true
		n.Labels[corev1.LabelInstanceTypeStable] = it.Name
		n.Labels[corev1.LabelTopologyZone] = it.Offerings[0].Zone
		n.Labels[karpv1.LabelCapacityType] = it.Offerings[0].CapacityType
	})
	for i := range pods {
		n.Pods = append(n.Pods, enginetest.Pod(name+string(rune('a'+i)), func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "rs", Controller: new(true)}}
		}))
	}
	for _, f := range edit {
		f(&n)
	}
	return n
}

func TestRank(t *testing.T) {
	driftedAt := func(n *snapshot.Node) { n.DriftedAt = enginetest.Now().Add(-time.Hour) }
	for _, tc := range []struct {
		name  string
		pool  func(*karpv1.NodePool)
		nodes []snapshot.Node
		want  []string
	}{
		{"the most savings for the least cost first, then by name", nil, []snapshot.Node{node("c", 3), node("b", 1), node("a", 1)}, []string{"a", "b", "c"}},
		{"drifted nodes first", nil, []snapshot.Node{node("a", 1), node("b", 3, driftedAt)}, []string{"b", "a"}},
		{
			"within the budget", func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets[0].Nodes = "1" },
			[]snapshot.Node{node("a", 1), node("b", 2)},
			[]string{"a"},
		},
		{
			"within the budget for drift",
			func(p *karpv1.NodePool) {
				p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionDrifted}}}
			},
			[]snapshot.Node{node("a", 1, driftedAt), node("b", 2)},
			[]string{"b"},
		},
		{
			"not consolidated, unless drifted",
			func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.Never() },
			[]snapshot.Node{node("a", 1), node("b", 2, driftedAt)},
			[]string{"b"},
		},
		{
			"blocked nodes and those with lasting pods stay", nil,
			[]snapshot.Node{
				node("a", 1, func(n *snapshot.Node) { n.Initialized = false }),
				node("b", 1, func(n *snapshot.Node) { n.Pods[0].OwnerReferences[0].Kind = "StatefulSet" }),
				node("c", 1, func(n *snapshot.Node) {
					n.Pods[0].Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
				}),
				node("d", 1, func(n *snapshot.Node) { n.Labels[corev1.LabelInstanceTypeStable] = "unknown" }),
				node("e", 1, func(n *snapshot.Node) { n.Pods[0].OwnerReferences, n.Pods[0].Namespace = nil, metav1.NamespaceSystem }),
			},
			[]string{"e"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ranked(t, tc.pool, tc.nodes...); !slices.Equal(got.Next, tc.want) {
				t.Errorf("next %v, want %v", got.Next, tc.want)
			}
		})
	}
}

func TestLeavingNodes(t *testing.T) {
	got := ranked(
		t, nil,
		node("a", 1, func(n *snapshot.Node) { n.Deleting = true }),
		node("b", 1, func(n *snapshot.Node) { n.Disrupting = true }),
		node("c", 1, func(n *snapshot.Node) { n.Taints = []corev1.Taint{karpv1.TaintDisrupted()} }),
		node("d", 1),
	)
	if !got.Leaving["a"] || !got.Leaving["b"] || !got.Leaving["c"] || got.Leaving["d"] || !slices.Equal(got.Next, []string{"d"}) {
		t.Errorf("ranking %+v", got)
	}
}
