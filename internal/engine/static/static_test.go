package static_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/static"
)

func deleting(n *snapshot.Node)   { n.Deleting = true }
func disrupting(n *snapshot.Node) { n.Disrupting = true }
func notLaunched(n *snapshot.Node) {
	n.Launched, n.Registered, n.Initialized, n.Pods = false, false, false, nil
}

func zone(z string) func(*snapshot.Node) {
	return func(n *snapshot.Node) { n.Labels[Zone] = z }
}

func runs(pods ...*corev1.Pod) func(*snapshot.Node) {
	return func(n *snapshot.Node) {
		for _, p := range pods {
			n.Pods = append(n.Pods, Bound(p, n.Name))
		}
	}
}

func forbids(p *corev1.Pod) {
	p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
}

// several returns n nodes.
func several(n int, prefix string, edit ...func(*snapshot.Node)) []snapshot.Node {
	out := make([]snapshot.Node, n)
	for i := range out {
		out[i] = Node(fmt.Sprintf("%s-%d", prefix, i), "fixed", edit...)
	}
	return out
}

// The numbers: how many to create of what is there, and how many are too many.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name     string
		nodes    []snapshot.Node
		replicas int64
		limit    string
		reserved int64
		create   int64
		end      int64
	}{
		{name: "nothing yet", replicas: 3, create: 3},
		{name: "as many as wanted", nodes: several(3, "a"), replicas: 3},
		{name: "five wanted, three there, four allowed", nodes: several(3, "a"), replicas: 5, limit: "4", create: 1},
		{
			name: "a node that waits for its replacement counts once", nodes: slices.Concat(several(2, "a"), several(1, "p", disrupting)),
			replicas: 3,
		},
		{
			name: "scaled up while one waits for its replacement", nodes: slices.Concat(several(2, "a"), several(1, "p", disrupting)), replicas: 5,
			create: 2,
		},
		{name: "one that goes is replaced", nodes: slices.Concat(several(2, "a"), several(1, "d", deleting)), replicas: 3, create: 1},
		{
			name: "one that goes counts against the limit until it has gone", nodes: slices.Concat(several(2, "a"), several(1, "d", deleting)),
			replicas: 3, limit: "3",
		},
		{
			name: "what others are about to create counts against the limit", nodes: several(1, "a"), replicas: 5, limit: "4", reserved: 2,
			create: 1,
		},
		{name: "the limit is exceeded already", nodes: several(5, "a"), replicas: 6, limit: "3"},
		{name: "claims without an instance are nodes", nodes: several(3, "a", notLaunched), replicas: 3},
		{name: "too many", nodes: several(5, "a"), replicas: 2, end: 3},
		{name: "to nothing", nodes: several(2, "a"), replicas: 0, end: 2},
		{name: "three of four are deleting already", nodes: slices.Concat(several(1, "a"), several(3, "d", deleting)), replicas: 1},
		{name: "ten wanted, three there, ten allowed", nodes: several(3, "a"), replicas: 13, limit: "10", create: 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := Pool("fixed", nil, func(p *karpv1.NodePool) {
				p.Spec.Replicas = &c.replicas
				if c.limit != "" {
					p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse(c.limit)}
				}
			}).NodePool
			counts := static.Count(c.nodes)
			if counts.All() != int64(len(c.nodes)) {
				t.Errorf("%+v counts %d of %d nodes", counts, counts.All(), len(c.nodes))
			}
			create := static.WithinLimit(static.Limit(pool), counts.All(), c.reserved, static.Missing(c.replicas, counts))
			if end := static.Excess(c.replicas, counts); create != c.create || end != c.end {
				t.Errorf("create %d, end %d; want %d, %d", create, end, c.create, c.end)
			}
		})
	}
}

func TestLimit(t *testing.T) {
	if got := static.Limit(Pool("fixed", nil).NodePool); got != math.MaxInt64 {
		t.Errorf("without a limit: %d", got)
	}
	none := Pool("fixed", nil, func(p *karpv1.NodePool) {
		p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse("0")}
	}).NodePool
	if got := static.Limit(none); got != 0 {
		t.Errorf("limit 0: %d", got)
	}
}

func TestSurplus(t *testing.T) {
	daemon := func(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
		return Pod(name, append(edit, OwnedBy("apps/v1", "DaemonSet"))...)
	}
	finished := func(n *snapshot.Node) {
		runs(Pod("done", forbids))(n)
		n.Pods[len(n.Pods)-1].Status.Phase = corev1.PodSucceeded
	}
	cheap := func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.PodDeletionCost: "-100000000"}
	}
	old := func(n *snapshot.Node) { n.ExpireAfter, n.CreatedAt = 10*time.Hour, Now().Add(-9*time.Hour) }
	for _, c := range []struct {
		name  string
		nodes []snapshot.Node
		n     int64
		want  []string
	}{
		{
			"daemons only, one pod, two pods, a pod that must not be disrupted: in this order, and the last one too",
			[]snapshot.Node{
				Node("forbids", "fixed", runs(Pod("d", forbids))), Node("two", "fixed", runs(Pod("b"), Pod("c"))),
				Node("one", "fixed", runs(Pod("a"))), Node("daemons", "fixed", runs(daemon("e"))),
			},
			4,
			[]string{"daemons", "one", "two", "forbids"},
		},
		{
			"without an instance first, empty next, do-not-disrupt last",
			[]snapshot.Node{
				Node("a-forbids", "fixed", runs(Pod("d", forbids))), Node("b-busy", "fixed", runs(Pod("a"))),
				Node("c-empty", "fixed"), Node("d-unlaunched", "fixed", notLaunched),
			},
			4,
			[]string{"d-unlaunched", "c-empty", "b-busy", "a-forbids"},
		},
		{
			"claims without an instance, though empty nodes are there",
			[]snapshot.Node{Node("a", "fixed"), Node("b", "fixed", notLaunched), Node("c", "fixed", notLaunched)},
			2,
			[]string{"b", "c"},
		},
		{
			"nodes that are deleting, or wait for their replacement, are not selected again",
			[]snapshot.Node{Node("a", "fixed", deleting), Node("b", "fixed", disrupting), Node("c", "fixed", runs(Pod("a")))},
			2,
			[]string{"c"},
		},
		{
			"a daemon that must not be disrupted protects, a pod that has ended does not, a static pod of the kubelet is no load",
			[]snapshot.Node{
				Node("a", "fixed", runs(daemon("d", forbids))), Node("b", "fixed", runs(Pod("p")), finished), Node("c", "fixed", runs(Pod("m",
					OwnedBy("v1", "Node")))),
			},
			3,
			[]string{"c", "b", "a"},
		},
		{
			"two pods that are cheap to move go before one that is not",
			[]snapshot.Node{Node("a", "fixed", runs(Pod("x"))), Node("b", "fixed", runs(Pod("y", cheap), Pod("z", cheap)))},
			1,
			[]string{"b"},
		},
		{
			"a node that expires soon goes before one that would stay",
			[]snapshot.Node{Node("a", "fixed", runs(Pod("x"))), Node("b", "fixed", old, runs(Pod("y"), Pod("z")))},
			1,
			[]string{"b"},
		},
		{
			"among equals zones stay even",
			[]snapshot.Node{
				Node("a", "fixed", zone("z1")), Node("b", "fixed", zone("z2")), Node("c", "fixed", zone("z2")), Node("d", "fixed", zone("z2")),
				Node("e", "fixed", zone("z1")),
			},
			3,
			[]string{"b", "a", "c"},
		},
		{
			"among equals of one zone the youngest goes",
			[]snapshot.Node{Node("a", "fixed", old), Node("b", "fixed")},
			1,
			[]string{"b"},
		},
		{"more than there are", []snapshot.Node{Node("a", "fixed")}, 3, []string{"a"}},
		{"none", []snapshot.Node{Node("a", "fixed")}, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, n := range static.SelectForRemoval(c.nodes, c.n, Now()) {
				got = append(got, n.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
