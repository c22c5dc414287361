package disrupt

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// world has one pool "p" and one node "n" that is empty and can be removed.
func world(change func(s *snapshot.Snapshot, n *snapshot.Node)) *snapshot.Snapshot {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	s := &snapshot.Snapshot{
		Now:   sunday,
		Pools: []snapshot.Pool{{NodePool: pool}},
		Nodes: []snapshot.Node{{
			Name: "n", Claim: "c", Pool: "p", Launched: true, Registered: true, Initialized: true, Ready: true, Consolidatable: true,
		}},
	}
	change(s, &s.Nodes[0])
	return s
}

func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": "a"}, Annotations: map[string]string{}},
	}
	p.Spec.NodeName = "n"
	for _, c := range changes {
		c(p)
	}
	return p
}

func owned(apiVersion, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind}}
	}
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: sunday} }

func blockingPDB(name string) *policyv1.PodDisruptionBudget {
	zero := intstr.FromInt32(0)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &zero,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		},
	}
}

// look returns the empty nodes, and why the others are kept.
func look(s *snapshot.Snapshot) ([]*Candidate, []Blocked) {
	v := NewView(s)
	empty, kept := v.Empty()
	return empty, append(v.DisruptionBlocked(), kept...)
}

func TestEmpty(t *testing.T) {
	const dnd = karpv1.AnnotationDoNotDisrupt
	pods := func(list ...*corev1.Pod) func(*snapshot.Snapshot, *snapshot.Node) {
		return func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Pods = list }
	}
	tests := []struct {
		name    string
		change  func(s *snapshot.Snapshot, n *snapshot.Node)
		blocked Reason // empty: the node is terminated
		message string
	}{
		{"no pods", pods(), "", ""},
		{"only daemon pods", pods(pod("d", owned("apps/v1", "DaemonSet"))), "", ""},
		{"only terminating Deployment pods", pods(pod("x", owned("apps/v1", "ReplicaSet"), terminating)), "", ""},
		{"a terminating StatefulSet pod will be recreated", pods(pod("x", owned("apps/v1", "StatefulSet"), terminating)), NotEmpty, "ns/x"},
		{"no pod has an eviction cost", pods(pod("x", annotated(corev1.PodDeletionCost, "-134217728"))), "", ""},
		{"a running pod", pods(pod("x")), NotEmpty, "ns/x"},
		{
			"only virtual pods of buffers",
			func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Virtual = 2 },
			BufferPods,
			`Node "n" has buffer pods`,
		},
		{"the buffer is scaled to 0", func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Virtual = 0 }, "", ""},
		{
			"do-not-disrupt on a daemon pod",
			pods(pod("d", owned("apps/v1", "DaemonSet"), annotated(dnd, "true"))),
			PodDoNotDisrupt,
			"Pod=ns/d",
		},
		{"do-not-disrupt on a static pod", pods(pod("m", owned("v1", "Node"), annotated(dnd, "true"))), PodDoNotDisrupt, "Pod=ns/m"},
		{"do-not-disrupt on a terminating pod", pods(pod("x", annotated(dnd, "true"), terminating)), "", ""},
		{
			"a blocking PDB on a daemon pod",
			func(s *snapshot.Snapshot, n *snapshot.Node) {
				n.Pods = []*corev1.Pod{pod("d", owned("apps/v1", "DaemonSet"))}
				s.PDBs = []*policyv1.PodDisruptionBudget{blockingPDB("b")}
			},
			PDB, "pdb prevents pod evictions (Pod=ns/d)",
		},
		{
			"a blocking PDB on a static pod",
			func(s *snapshot.Snapshot, n *snapshot.Node) {
				n.Pods = []*corev1.Pod{pod("m", owned("v1", "Node"))}
				s.PDBs = []*policyv1.PodDisruptionBudget{blockingPDB("b")}
			},
			"", "",
		},
		{
			"two PDBs on one pod",
			func(s *snapshot.Snapshot, n *snapshot.Node) {
				n.Pods = []*corev1.Pod{pod("d", owned("apps/v1", "DaemonSet"))}
				a, b := blockingPDB("a"), blockingPDB("b")
				a.Status.DisruptionsAllowed, b.Status.DisruptionsAllowed = 1, 1
				s.PDBs = []*policyv1.PodDisruptionBudget{a, b}
			},
			PDB, "multiple PDBs",
		},
		{
			"a PDB of another namespace",
			func(s *snapshot.Snapshot, n *snapshot.Node) {
				n.Pods = []*corev1.Pod{pod("d", owned("apps/v1", "DaemonSet"))}
				b := blockingPDB("b")
				b.Namespace = "other"
				s.PDBs = []*policyv1.PodDisruptionBudget{b}
			},
			"", "",
		},
		{"nominated", func(s *snapshot.Snapshot, n *snapshot.Node) { n.NominatedUntil = s.Now.Add(time.Second) }, Nominated, "nominated"},
		{
			"bought for a pod that the scheduler has not bound yet",
			func(s *snapshot.Snapshot, n *snapshot.Node) {
				n.Nominated = []types.UID{"u"}
				s.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}
			},
			Nominated, "nominated",
		},
		{"launched for a pod that was deleted", func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Nominated = []types.UID{"u"} }, "", ""},
		{"the nomination has expired", func(s *snapshot.Snapshot, n *snapshot.Node) { n.NominatedUntil = s.Now }, "", ""},
		{"not initialized", func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Initialized = false }, NotInitialized, "node isn't initialized"},
		{"deleting", func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Deleting = true }, Deleting, "deleting"},
		{
			"a claim without a node",
			func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Registered = false },
			NoNode,
			"does not have an associated node",
		},
		{
			"node annotated",
			func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Annotations = map[string]string{dnd: "true"} },
			NodeDoNotDisrupt,
			dnd,
		},
		{
			"a node annotated with a duration is not blocked",
			func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Annotations = map[string]string{dnd: "30m"} },
			"",
			"",
		},
		{"the pool is not known", func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Pool = "x" }, NoNodePool, "NodePool=x"},
		{
			"consolidateAfter Never",
			func(s *snapshot.Snapshot, _ *snapshot.Node) {
				s.Pools[0].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.Never()
			},
			ConsolidationDisabled, "consolidation disabled",
		},
		{"a static pool", func(s *snapshot.Snapshot, _ *snapshot.Node) {
			replicas := int64(1)
			s.Pools[0].NodePool.Spec.Replicas = &replicas
		}, ConsolidationDisabled, "fixed number"},
		{
			"a pod has just left",
			func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Consolidatable = false },
			NotConsolidatable,
			"consolidateAfter",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			empty, kept := look(world(tt.change))
			if tt.blocked == "" {
				if len(empty) != 1 || len(kept) != 0 {
					t.Fatalf("node was blocked: %+v", kept)
				}
				return
			}
			if len(empty) != 0 || len(kept) != 1 {
				t.Fatalf("node was removed")
			}
			if k := kept[0]; k.Reason != tt.blocked || !strings.Contains(k.Message, tt.message) {
				t.Errorf("blocked for %s (%s), want %s with %q", k.Reason, k.Message, tt.blocked, tt.message)
			}
		})
	}
	t.Run("a node of a pool that cannot launch now can be removed", func(t *testing.T) {
		empty, kept := look(world(func(s *snapshot.Snapshot, _ *snapshot.Node) {
			s.Closed = []*karpv1.NodePool{s.Pools[0].NodePool}
			s.Pools = nil
		}))
		if len(empty) != 1 {
			t.Errorf("node was blocked: %+v", kept)
		}
	})
	t.Run("a node that Dovetail does not manage is ignored", func(t *testing.T) {
		empty, kept := look(world(func(_ *snapshot.Snapshot, n *snapshot.Node) { n.Claim, n.Pool = "", "" }))
		if len(empty)+len(kept) != 0 {
			t.Errorf("decision about an unmanaged node: %+v, %+v", empty, kept)
		}
	})
}

func TestEvictionCost(t *testing.T) {
	priority := func(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }
	tests := []struct {
		name string
		pod  *corev1.Pod
		want float64
	}{
		{"a plain pod", pod("x"), 1},
		{"more expensive by its annotation", pod("x", annotated(corev1.PodDeletionCost, "134217728")), 2},
		{"cheaper by its priority", pod("x", priority(-1<<26)), -1},
		{"at most ten", pod("x", priority(2_000_000_000)), 10},
		{"at least minus ten", pod("x", annotated(corev1.PodDeletionCost, "-2147483647"), priority(-2_000_000_000)), -10},
		{"not a number", pod("x", annotated(corev1.PodDeletionCost, "expensive")), 1},
		{"not an integer", pod("x", annotated(corev1.PodDeletionCost, "134217728.0")), 1},
		{"more than an int32", pod("x", annotated(corev1.PodDeletionCost, "2147483648")), 1},
		{"Karpenter's annotation", pod("x", annotated(karpv1.AnnotationDisruptionCost, "-134217728")), 0},
		{
			"Karpenter's annotation wins",
			pod("x", annotated(karpv1.AnnotationDisruptionCost, "134217728"), annotated(corev1.PodDeletionCost, "-134217728")), 2,
		},
		{
			"our own deletion cost says where the pod is, not what it costs",
			pod("x", annotated(corev1.PodDeletionCost, "-134217728"), annotated(karpv1.AnnotationOwnDeletionCost, "-134217728")), 1,
		},
		// Case 19 of Karpenter 1.15.
		{"disruption-cost: abc, pod-deletion-cost: 5", pod("x", annotated(karpv1.AnnotationDisruptionCost, "abc"),
			annotated(corev1.PodDeletionCost, "5")), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := snapshot.EvictionCost(tt.pod); got != tt.want {
				t.Errorf("cost %v, want %v", got, tt.want)
			}
		})
	}
}
