package deletioncost

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// world is nodes with pods. Each pod is "OWNER", "OWNER=VALUE" with a value of ours, or "OWNER!VALUE" with one of others.
type world struct {
	nodes []snapshot.Node
	edit  func(*corev1.Pod)
}

func (w *world) node(name string, pods ...string) *world {
	n := snapshot.Node{Name: name, Claim: name, Labels: map[string]string{corev1.LabelTopologyZone: name[:1]}}
	for i, text := range pods {
		owner, value, ours := strings.Cut(text, "=")
		own := value
		if !ours {
			owner, value, _ = strings.Cut(text, "!")
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s-%d", owner, name, i), Labels: map[string]string{"app": owner},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: types.UID(owner), Controller: new(true)}},
		}}
		if value != "" {
			p.Annotations = map[string]string{corev1.PodDeletionCost: value}
		}
		if own != "" {
			p.Annotations[karpv1.AnnotationOwnDeletionCost] = own
		}
		if w.edit != nil {
			w.edit(p)
		}
		n.Pods = append(n.Pods, p)
	}
	w.nodes = append(w.nodes, n)
	return w
}

// apply writes changes, and returns them as "POD=VALUE", or "POD-" for a removed value.
func apply(changes []Change) (out []string) {
	for _, c := range changes {
		c.Pod.Annotations = maps.Clone(c.Pod.Annotations)
		if c.Value == nil {
			delete(c.Pod.Annotations, corev1.PodDeletionCost)
			delete(c.Pod.Annotations, karpv1.AnnotationOwnDeletionCost)
			out = append(out, c.Pod.Name+"-")
			continue
		}
		if c.Pod.Annotations == nil {
			c.Pod.Annotations = map[string]string{}
		}
		text := strconv.Itoa(int(*c.Value))
		c.Pod.Annotations[corev1.PodDeletionCost], c.Pod.Annotations[karpv1.AnnotationOwnDeletionCost] = text, text
		out = append(out, c.Pod.Name+"="+text)
	}
	return out
}

func TestChanges(t *testing.T) {
	zonal := func(skew int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: skew, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
			}}
		}
	}
	for _, tc := range []struct {
		name    string
		world   *world
		ranking *Ranking
		want    []string
	}{
		{
			"pods of leaving nodes first, then those of the next, then the others",
			(&world{}).node("a", "web").node("b", "web").node("c", "web").node("d", "web"),
			&Ranking{Leaving: map[string]bool{"d": true}, Next: []string{"b", "a"}},
			[]string{"web-d-0=-2147483648", "web-b-0=-1431655766", "web-a-0=-715827883"},
		},
		{
			"a ReplicaSet with all pods on one node needs no order", (&world{}).node("a", "web", "web").node("b", "api"),
			&Ranking{Next: []string{"a", "b"}}, nil,
		},
		{
			"the last node needs no value if no pod stays", (&world{}).node("a", "web").node("b", "web"),
			&Ranking{Next: []string{"a", "b"}},
			[]string{"web-a-0=-1073741825"},
		},
		{
			"values in order stay, and what is between them gets one between",
			(&world{}).node("a", "web=-9").node("b", "web").node("c", "web=-4").node("d", "web"),
			&Ranking{Next: []string{"a", "b", "c"}},
			[]string{"web-b-0=-7"},
		},
		{
			"one node that moved is one write",
			(&world{}).node("a", "web=-40").node("b", "web=-30").node("c", "web=-20").node("d", "web"),
			&Ranking{Next: []string{"c", "a", "b"}},
			[]string{"web-c-0=-1073741845"},
		},
		{
			"no room between two values", (&world{}).node("a", "web=-3", "web=-3").node("b", "web").node("c", "web=-2").node("d", "web"),
			&Ranking{Next: []string{"a", "b", "c"}},
			[]string{"web-b-0=-2", "web-c-0=-1"},
		},
		{
			"a node that stays again loses its values", (&world{}).node("a", "web=-9").node("b", "web=-5"),
			&Ranking{Next: []string{"a"}},
			[]string{"web-b-0-"},
		},
		{
			"values of others are left alone", (&world{}).node("a", "web!5", "api").node("b", "web!-7", "api"),
			&Ranking{Next: []string{"a"}},
			[]string{"api-a-1=-1073741825"},
		},
		{"turned off", (&world{}).node("a", "web=-9", "api!-3").node("b", "web"), nil, []string{"web-a-0-"}},
		{
			"a spread constraint keeps pods of a zone", (&world{edit: zonal(1)}).node("a1", "web", "web").node("b1", "web", "web").node("c1", "web"),
			&Ranking{Next: []string{"a1"}},
			[]string{"web-a1-0=-1073741825"},
		},
		{
			"zones take turns", (&world{edit: zonal(1)}).node("a1", "web", "web").node("b1", "web", "web"),
			&Ranking{Next: []string{"a1", "b1"}},
			[]string{"web-a1-0=-1610612737", "web-b1-0=-1073741825", "web-a1-1=-536870913"},
		},
		{
			"leaving nodes go whatever the spread", (&world{edit: zonal(1)}).node("a1", "web", "web").node("b1", "web"),
			&Ranking{Leaving: map[string]bool{"a1": true}},
			[]string{"web-a1-0=-2147483648", "web-a1-1=-2147483648"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := apply(Changes(tc.world.nodes, tc.ranking))
			if !slices.Equal(got, tc.want) {
				t.Errorf("changes %v\nwant %v", got, tc.want)
			}
			if again := Changes(tc.world.nodes, tc.ranking); len(again) > 0 {
				t.Errorf("%d changes when repeated", len(again))
			}
		})
	}
}

// Random ReplicaSets: afterwards the order holds, and no assignment that holds it has fewer writes.
func TestFewestWrites(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w, r := &world{}, &Ranking{Leaving: map[string]bool{}}
		for i := range 1 + rng.IntN(5) {
			name := string(rune('a' + i))
			switch rng.IntN(5) {
			case 0:
			case 1:
				r.Leaving[name] = true
			default:
				r.Next = append(r.Next, name)
			}
			var pods []string
			for range 1 + rng.IntN(2) {
				pods = append(pods, []string{"web", fmt.Sprintf("web=%d", -rng.IntN(7)-1), "web=-2147483648"}[rng.IntN(3)])
			}
			w.node(name, pods...)
		}
		rng.Shuffle(len(r.Next), func(i, j int) { r.Next[i], r.Next[j] = r.Next[j], r.Next[i] })
		want := fewest(groupsOf(w, r))
		if got := len(apply(Changes(w.nodes, r))); got > want {
			t.Fatalf("seed %d: %d writes, want %d", seed, got, want)
		}
		checkOrder(t, seed, w, r)
	}
}

// groupsOf returns the present values of the pods by group, and those of the pods that stay.
func groupsOf(w *world, r *Ranking) (groups [][]int64, staying []int64) {
	position := map[string]int{}
	for i, name := range r.Next {
		position[name] = i + 1
	}
	at := make([][]int64, len(r.Next)+1)
	for _, n := range w.nodes {
		for _, p := range n.Pods {
			v, _ := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 64)
			switch i := position[n.Name]; {
			case i > 0 || r.Leaving[n.Name]:
				at[i] = append(at[i], v)
			default:
				staying = append(staying, v)
			}
		}
	}
	return slices.DeleteFunc(at, func(g []int64) bool { return len(g) == 0 }), staying
}

// fewest tries for each group to keep each of its values, or none. Pods that stay must have none.
func fewest(groups [][]int64, staying []int64) int {
	writes := 0
	for _, v := range staying {
		if v != 0 {
			writes++
		}
	}
	if len(groups) == 1 && len(staying) == 0 {
		return 0
	}
	last := int64(0) // of the last group
	if len(staying) > 0 {
		last = -1
	}
	best := math.MaxInt
	var try func(i int, room int64, spent int)
	try = func(i int, room int64, spent int) { // room is the least value that group i may have
		if i == len(groups) {
			best = min(best, spent)
			return
		}
		try(i+1, room+1, spent+len(groups[i])-absent(groups[i], i == len(groups)-1 && last == 0))
		for _, v := range groups[i] {
			if v >= room && v <= last-int64(len(groups)-1-i) {
				kept := 0
				for _, o := range groups[i] {
					if o == v {
						kept++
					}
				}
				try(i+1, v+1, spent+len(groups[i])-kept)
			}
		}
	}
	try(0, math.MinInt32, 0)
	return writes + best
}

// absent returns how many pods of the last group keep having no value.
func absent(group []int64, may bool) (n int) {
	for _, v := range group {
		if may && v == 0 {
			n++
		}
	}
	return n
}

func checkOrder(t *testing.T, seed uint64, w *world, r *Ranking) {
	t.Helper()
	groups, staying := groupsOf(w, r)
	if len(groups) == 1 && len(staying) == 0 {
		return
	}
	groups = append(groups, staying)
	before := int64(math.MinInt64)
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		if slices.Min(g) <= before {
			t.Fatalf("seed %d: values %v are not in order", seed, groups)
		}
		before = slices.Max(g)
	}
	if len(staying) > 0 && (slices.Min(staying) != 0 || slices.Max(staying) != 0) {
		t.Fatalf("seed %d: pods that stay have values %v", seed, staying)
	}
}

// The cost of many pods grows as p log p.
func BenchmarkChanges(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			w, r := &world{}, &Ranking{}
			for i := range n / 10 {
				w.node(fmt.Sprintf("n%d", i), slices.Repeat([]string{"web"}, 10)...)
				r.Next = append(r.Next, fmt.Sprintf("n%d", i))
			}
			for b.Loop() {
				Changes(w.nodes, r)
			}
		})
	}
}
