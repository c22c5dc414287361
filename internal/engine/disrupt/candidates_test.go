package disrupt

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// pdbAllowing selects the pods of app "a" and allows to evict some of them.
func pdbAllowing(name string, allowed int32) *policyv1.PodDisruptionBudget {
	b := blockingPDB(name)
	b.Spec.MaxUnavailable = nil
	b.Status.DisruptionsAllowed = allowed
	return b
}

func notReady(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

func terminal(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func running(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: sunday.Add(-since)} }
}

// TestPodsBlockDisruption checks what blocks a node. Graceful methods are emptiness and consolidation; drift may also
// replace nodes with a bounded drain.
func TestPodsBlockDisruption(t *testing.T) {
	const dnd = karpv1.AnnotationDoNotDisrupt
	always := policyv1.AlwaysAllow
	tests := []struct {
		name    string
		bounded bool
		pods    []*corev1.Pod
		pdbs    []*policyv1.PodDisruptionBudget
		// graceful and drift are whether these methods may remove the node, moved how many pods they simulate.
		graceful, drift bool
		moved           int
		message         string
	}{
		{
			name: "the pods of a blocking PDB are completed or terminating",
			pods: []*corev1.Pod{pod("x", terminal), pod("y", terminating)}, pdbs: []*policyv1.PodDisruptionBudget{pdbAllowing("b", 0)},
			graceful: true, drift: true,
		},
		{
			name: "two PDBs, both allowing",
			pods: []*corev1.Pod{
				pod("x"),
			}, pdbs: []*policyv1.PodDisruptionBudget{pdbAllowing("a", 1), pdbAllowing("b", 1)}, message: "multiple PDBs",
		},
		{
			name: "a pod that is not ready, AlwaysAllow",
			pods: []*corev1.Pod{pod("x", notReady)},
			pdbs: []*policyv1.PodDisruptionBudget{func() *policyv1.PodDisruptionBudget {
				b := pdbAllowing("b", 0)
				b.Spec.UnhealthyPodEvictionPolicy = &always
				return b
			}()},
			graceful: true, drift: true, moved: 1,
		},
		{
			name: "a pod that is not ready, without the policy",
			pods: []*corev1.Pod{
				pod("x", notReady),
			}, pdbs: []*policyv1.PodDisruptionBudget{pdbAllowing("b", 0)}, message: "pdb prevents pod evictions (Pod=ns/x)",
		},
		{
			name: "a pod with do-not-disrupt, the drain bounded", bounded: true,
			pods: []*corev1.Pod{pod("x", annotated(dnd, "true")), pod("y")}, drift: true, moved: 1, message: "Pod=ns/x",
		},
		{
			name: "a PDB that never allows, the drain bounded", bounded: true,
			pods: []*corev1.Pod{
				pod("x"),
				pod("y", func(p *corev1.Pod) { p.Labels = nil }),
			}, pdbs: []*policyv1.PodDisruptionBudget{blockingPDB("b")},
			drift: true, moved: 1, message: "pdb prevents",
		},
		{
			name:    "a pod with do-not-disrupt, the drain not bounded",
			pods:    []*corev1.Pod{pod("x", annotated(dnd, "true"))},
			message: "Pod=ns/x",
		},
		{
			name: "a blocking PDB, the drain not bounded",
			pods: []*corev1.Pod{pod("x")}, pdbs: []*policyv1.PodDisruptionBudget{blockingPDB("b")}, message: "pdb prevents",
		},
		{
			name:     "do-not-disrupt for 30 min, started 31 min ago",
			pods:     []*corev1.Pod{pod("x", annotated(dnd, "30m"), running(31*time.Minute))},
			graceful: true,
			drift:    true,
			moved:    1,
		},
		{name: "do-not-disrupt for 30 min, not started", pods: []*corev1.Pod{pod("x", annotated(dnd, "30m"))}, message: "Pod=ns/x"},
		{
			name: "an invalid duration",
			pods: []*corev1.Pod{
				pod("x", annotated(dnd, "0s"), running(0)),
				pod("y", annotated(dnd, "-5m"), running(0)),
				pod("z", annotated(dnd, "abc"), running(0)),
			},

			graceful: true, drift: true, moved: 3,
		},
		{
			name: "do-not-disrupt for 1 min and 3 min, after two",
			pods: []*corev1.Pod{
				pod("x", annotated(dnd, "1m"), running(2*time.Minute)),
				pod("y", annotated(dnd, "3m"), running(2*time.Minute)),
			}, message: "Pod=ns/y",
		},
		{
			name: "do-not-disrupt for 1 min and 3 min, after three",
			pods: []*corev1.Pod{
				pod("x", annotated(dnd, "1m"), running(3*time.Minute)),
				pod("y", annotated(dnd, "3m"), running(3*time.Minute)),
			}, graceful: true, drift: true, moved: 2,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := NewView(world(func(s *snapshot.Snapshot, n *snapshot.Node) {
				n.Pods, n.Bounded, n.DriftedAt = tt.pods, tt.bounded, sunday
				s.PDBs = tt.pdbs
			}))
			drift := v.Drifted(false)
			if (len(v.Candidates) == 1) != tt.graceful || (len(drift) == 1) != tt.drift {
				t.Fatalf("graceful %v, drift %v, blocked %+v", len(v.Candidates) == 1, len(drift) == 1, v.BlockedNodes)
			}
			if len(drift) == 1 && len(drift[0].Pods) != tt.moved {
				t.Errorf("%d pods would move, want %d", len(drift[0].Pods), tt.moved)
			}
			if tt.message == "" != (len(v.BlockedNodes) == 0) || tt.message != "" && !strings.Contains(v.BlockedNodes[0].Message, tt.message) {
				t.Errorf("blocked %+v, want message %q", v.BlockedNodes, tt.message)
			}
		})
	}
}

func TestNodeBlocksDisruption(t *testing.T) {
	tests := []struct {
		name    string
		change  func(s *snapshot.Snapshot, n *snapshot.Node)
		reason  Reason
		message string
	}{
		{
			"being disrupted",
			func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Disrupting, n.Deleting = true, true },
			AlreadyDisrupting,
			"candidate is already being disrupted",
		},
		{
			"without the nodepool label",
			func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Pool = "" },
			NoLabel,
			"node doesn't have required label (label=karpenter.sh/nodepool)",
		},
		{
			"launched to replace a node that still exists",
			func(s *snapshot.Snapshot, n *snapshot.Node) {
				n.Replaces = []string{"old"}
				s.Nodes = append(s.Nodes, snapshot.Node{Name: "old", Claim: "old", Pool: "p", Deleting: true, Registered: true, Initialized: true})
			},
			Nominated, "node is nominated for a pending pod",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := NewView(world(tt.change))
			if len(v.Candidates) != 0 || v.BlockedNodes[0].Reason != tt.reason || v.BlockedNodes[0].Message != tt.message {
				t.Errorf("%d candidates, kept %+v", len(v.Candidates), v.BlockedNodes)
			}
		})
	}
	t.Run("no DisruptionBlocked event for a node that is being disrupted", func(t *testing.T) {
		if blocked := NewView(world(tests[0].change)).DisruptionBlocked(); len(blocked) != 0 {
			t.Errorf("%+v", blocked)
		}
	})
	t.Run("without labels a node is a candidate of unknown price", func(t *testing.T) {
		v := NewView(world(func(_ *snapshot.Snapshot, n *snapshot.Node) { n.DriftedAt = sunday }))
		empty, _ := v.Empty()
		if len(empty) != 1 || len(v.Drifted(false)) != 1 || empty[0].Price != 0 || empty[0].Type != nil || empty[0].Zone != "" {
			t.Errorf("empty %+v, drifted %d", empty, len(v.Drifted(false)))
		}
	})
	t.Run("a node with buffer pods and real pods is a candidate, and not empty", func(t *testing.T) {
		v := NewView(world(func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Virtual, n.Pods = 2, []*corev1.Pod{pod("x")} }))
		if empty, _ := v.Empty(); len(empty) != 0 || len(v.Candidates) != 1 {
			t.Errorf("empty %d, candidates %d", len(empty), len(v.Candidates))
		}
	})
}

// fleetOf makes n nodes with a pod of app "a" each; the first is leaving.
func fleetOf(n int, allowed int32) *snapshot.Snapshot {
	return world(func(s *snapshot.Snapshot, first *snapshot.Node) {
		template := *first
		s.Nodes = nil
		for i := range n {
			node := template
			node.Name, node.Claim = string(rune('a'+i)), string(rune('a'+i))
			node.Pods = []*corev1.Pod{pod("pod-" + node.Name)}
			node.Disrupting = i == 0
			s.Nodes = append(s.Nodes, node)
		}
		s.PDBs = []*policyv1.PodDisruptionBudget{pdbAllowing("b", allowed)}
		s.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{always("100%")}
	})
}

// TestPDBSharedByNodes has nodes with pods of one PDB: as many as it allows to evict are blocked by those being
// removed.
func TestPDBSharedByNodes(t *testing.T) {
	if v := NewView(fleetOf(4, 1)); len(v.Candidates) != 0 ||
		!strings.Contains(v.BlockedNodes[1].Message, "it lets 1 pods go, and nodes that are leaving hold 1") {
		t.Errorf("%d candidates, kept %+v", len(v.Candidates), v.BlockedNodes)
	}
	v := NewView(fleetOf(4, 2))
	if len(v.Candidates) != 3 {
		t.Fatalf("%d candidates, want 3", len(v.Candidates))
	}
	room := v.RemainingBudgets(Allowances(v.Snapshot, karpv1.DisruptionDrifted))
	if !room.Allow(v.Candidates[:1]) {
		t.Error("the second pod may be evicted")
	}
	room.Use(v.Candidates[:1])
	if room.Allow(v.Candidates[1:2]) {
		t.Error("a third pod must wait")
	}
	t.Run("a single node may hold more pods than the PDB allows to evict at once", func(t *testing.T) {
		s := fleetOf(2, 1)
		s.Nodes[0].Disrupting = false
		s.Nodes[1].Pods = append(s.Nodes[1].Pods, pod("more"), pod("still-more"))
		if v := NewView(s); len(v.Candidates) != 2 || !v.RemainingBudgets(Allowances(s, karpv1.DisruptionDrifted)).Allow(v.Candidates[1:]) {
			t.Error("it is never drained")
		}
	})
	t.Run("daemon pods do not count", func(t *testing.T) {
		s := fleetOf(3, 1)
		for i := range s.Nodes {
			owned("apps/v1", "DaemonSet")(s.Nodes[i].Pods[0])
		}
		if v := NewView(s); len(v.Candidates) != 2 {
			t.Errorf("%d candidates, want 2", len(v.Candidates))
		}
	})
}

// TestRemainingBudgets has four empty nodes under a budget of three.
func TestRemainingBudgets(t *testing.T) {
	s := world(func(s *snapshot.Snapshot, first *snapshot.Node) {
		template := *first
		s.Nodes = nil
		for i := range 10 {
			n := template
			n.Name = string(rune('a' + i))
			n.Claim = n.Name
			if i >= 4 {
				n.Pods = []*corev1.Pod{pod("x")}
			}
			s.Nodes = append(s.Nodes, n)
		}
		s.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{always("3")}
	})
	v := NewView(s)
	empty, _ := v.Empty()
	room := v.RemainingBudgets(Allowances(s, karpv1.DisruptionEmpty))
	if !room.Allow(empty[:3]) || room.Allow(empty[:4]) {
		t.Error("budgets for more or less than three")
	}
	room.Use(empty[:2])
	if a := room.Allowances()[0]; room.Remaining("p") != 1 || a.Available() != 1 {
		t.Errorf("%d left, %d available, want 1", room.Remaining("p"), a.Available())
	}
	room.Use(empty[2:4])
	if room.Remaining("p") != 0 || room.Allowances()[0].Available() != 0 {
		t.Error("negative budgets")
	}
}
