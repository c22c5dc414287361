package topology_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// threeZones is a pool with nodes that can be in zones z1 to z3.
type threeZones struct{}

func (threeZones) Values(key string) []string {
	if key == Zone {
		return Zones()
	}
	return nil
}

func (threeZones) Gives(string, string) bool { return false }

func (threeZones) Arriving(_, _ resources.Bitset, _ requirement.Pod) (int, bool) { return 0, true }
func (threeZones) Lacks(string) bool                                             { return false }

// registry has a node in z1 and one in z2 with these pods, and a pool with nodes in three zones.
func registry(z1, z2 []*corev1.Pod) (*topology.Registry, []*topology.Node) {
	s := snapshot.Snapshot{Labels: requirement.CoreLabels()}
	r := topology.NewRegistry(&s, map[types.UID]bool{})
	nodes := []*topology.Node{
		{Labels: requirement.NewSet(requirement.In(Zone, "z1"), requirement.In(Host, "a")), Pods: z1},
		{Labels: requirement.NewSet(requirement.In(Zone, "z2"), requirement.In(Host, "b")), Pods: z2},
	}
	for _, n := range nodes {
		r.AddNode(n)
	}
	r.AddPool(topology.Pool{Labels: threeZones{}}, false)
	return r, nodes
}

// views returns those of the pod, for the spreads and the required affinity that it has.
func views(t *testing.T, r *topology.Registry, pod *corev1.Pod) []topology.View {
	t.Helper()
	node, err := requirement.CoreLabels().FromPod(&pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var groups []*topology.Group
	for i := range pod.Spec.TopologySpreadConstraints {
		groups = append(groups, r.Spread(topology.SpreadPod{Pod: pod, Node: node}, &pod.Spec.TopologySpreadConstraints[i]))
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			groups = append(groups, r.Affinity(topology.Affinity, pod, &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]))
		}
	}
	groups = append(groups, r.Apart(topology.AntiAffinity, pod)...)
	r.CountDeclared()
	r.Index()
	_, blocking := r.Find(pod)
	var out []topology.View
	for _, g := range append(groups, blocking...) {
		out = append(out, topology.NewView(g, pod, node.Selector, &node))
	}
	return out
}

func web(edit ...func(*corev1.Pod)) *corev1.Pod {
	return Pod("web", append(edit, Labeled("app", "web"))...)
}

func running(n int, edit ...func(*corev1.Pod)) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range Pods(n, "running", append(edit, Labeled("app", "web"))...) {
		out = append(out, Bound(p, "node"))
	}
	return out
}

// TestAllowedZones is what the documentation of Kubernetes states of each constraint, for nodes in z1 and z2 and nodes
// that can be launched in z1, z2 and z3.
func TestAllowedZones(t *testing.T) {
	minDomains := func(n int32) func(*corev1.TopologySpreadConstraint) {
		return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &n }
	}
	tests := []struct {
		name   string
		z1, z2 []*corev1.Pod
		pod    *corev1.Pod
		want   []string
	}{
		{"spread: nobody is anywhere", nil, nil, web(Spread(Zone, 1, "web")), []string{"z1", "z2", "z3"}},
		{"spread: the emptiest zone only", running(1), running(1), web(Spread(Zone, 1, "web")), []string{"z3"}},
		{"spread: within maxSkew", running(2), running(1), web(Spread(Zone, 2, "web")), []string{"z2", "z3"}},
		{"spread: others do not count", running(3), nil, web(Spread(Zone, 1, "db")), []string{"z1", "z2", "z3"}},
		{
			"spread: skew is measured over zones that the pod can use",
			running(1),
			running(1),
			web(Spread(Zone, 1, "web"), Needs(Expr(Zone, corev1.NodeSelectorOpIn, "z1", "z2"))),
			[]string{"z1", "z2", "z3"}, // its node affinity is not part of the view
		},
		{"spread: fewer zones than minDomains count as an empty one", running(1), running(1), web(Spread(Zone, 1, "web", minDomains(4))), []string{"z3"}},
		{"affinity: where the others are", running(1), nil, web(Near(Zone, "web")), []string{"z1"}},
		{"affinity: to nobody", nil, nil, web(Near(Zone, "db")), nil},
		{"affinity: the first of those that follow each other may be anywhere", nil, nil, web(Near(Zone, "web")), []string{"z1", "z2", "z3"}},
		{"anti-affinity: where none is", running(1), nil, web(Apart(Zone, "web")), []string{"z2", "z3"}},
		{"anti-affinity of a running pod keeps others out", running(1, Apart(Zone, "web")), nil, web(), []string{"z2", "z3"}},
		{"anti-affinity of a running pod to others does not", running(1, Apart(Zone, "db")), nil, web(), []string{"z1", "z2", "z3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := registry(tt.z1, tt.z2)
			all := views(t, r, tt.pod)
			var got []string
			for _, zone := range Zones() {
				if !slices.ContainsFunc(all, func(v topology.View) bool { return !v.Allows(zone) }) {
					got = append(got, zone)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("allowed zones %v, want %v", got, tt.want)
			}
		})
	}
}

func TestEqualConstraintsShareAGroup(t *testing.T) {
	r, _ := registry(nil, nil)
	a := views(t, r, web(Spread(Zone, 1, "web")))[0]
	b := views(t, r, Pod("other", Spread(Zone, 1, "web")))[0]
	c := views(t, r, web(Spread(Zone, 2, "web")))[0]
	if a.Group() != b.Group() || a.Group() == c.Group() {
		t.Error("constraints share a group if and only if they mean the same")
	}
	if !a.Self() || b.Self() {
		t.Error("a pod counts for itself if its constraint selects it")
	}
}

// TestCountsOfPlannedNodes adds pods to planned nodes and takes them back.
func TestCountsOfPlannedNodes(t *testing.T) {
	r, nodes := registry(running(1), nil)
	spread := views(t, r, web(Spread(Zone, 1, "web")))[0]
	apart := views(t, r, web(Apart(Zone, "web")))[0]
	hosts := views(t, r, web(Apart(Host, "web")))[0]
	pool := topology.Pool{Labels: threeZones{}}
	open := topology.NewNode{Index: 3, Labels: requirement.NewSet(requirement.In(Zone, "z2", "z3")), Pool: pool}
	for _, v := range []topology.View{spread, apart, hosts} {
		r.CountNew(v.Group(), &open, 1)
	}
	if spread.Group().Undecided() != 1 || spread.Group().Count("z2") != 0 {
		t.Error("a node that can be in two zones counts in none of them for a spread, and as undecided")
	}
	if apart.Allows("z2") || apart.Allows("z3") {
		t.Error("a pod that keeps apart must avoid each zone where the node may come up")
	}
	if hosts.AllowsNew(3) || !hosts.AllowsNew(4) {
		t.Error("the planned node is a host with a pod, the next one is not")
	}
	r.CountNew(spread.Group(), &topology.NewNode{Labels: requirement.NewSet(requirement.In(Zone, "z3")), Pool: pool}, 2)
	r.CountOn(spread.Group(), nodes[1])
	describe := func() string {
		return wording.Reason(rejection.Reason{Rule: &rejection.Rule{
			Domains: &rejection.Domains{Constraints: []rejection.Constraint{r.Describe(&spread, nil)}},
		}})
	}
	if got, want := describe(), "pods now: z1 (1), z2 (1), z3 (2)) allows only z1, z2"; !strings.Contains(got, want) {
		t.Errorf("%q does not say %q", got, want)
	}
	if n := spread.Group().CountBefore("z3"); n != 0 {
		t.Errorf("%d pods in z3 before, want 0", n)
	}
	r.Undo()
	if spread.Group().Undecided() != 0 || spread.Group().Count("z3") != 0 || spread.Group().Count("z1") != 1 {
		t.Errorf("after Undo: %s", describe())
	}
	if !apart.Allows("z2") || !hosts.AllowsNew(3) {
		t.Error("Undo leaves pods on planned nodes")
	}
}

func TestKeepAndRestore(t *testing.T) {
	r, nodes := registry(nil, nil)
	v := views(t, r, web(Spread(Zone, 1, "web")))[0]
	r.CountOn(v.Group(), nodes[0])
	kept := r.Keep()
	r.Undo()
	if n := v.Group().Count("z1"); n != 1 {
		t.Errorf("%d pods in z1 after Keep and Undo, want 1", n)
	}
	r.Restore(kept)
	if n := v.Group().Count("z1"); n != 0 {
		t.Errorf("%d pods in z1 after Restore, want 0", n)
	}
}

// TestRemovals removes the only node of a rack, which takes the rack away, and one of a zone, which can be launched.
func TestRemovals(t *testing.T) {
	s := snapshot.Snapshot{Labels: requirement.CoreLabels()}
	r := topology.NewRegistry(&s, nil)
	node := &topology.Node{Labels: requirement.NewSet(requirement.In(Zone, "z1"), requirement.In("rack", "r1"))}
	other := &topology.Node{Labels: requirement.NewSet(requirement.In(Zone, "z2"), requirement.In("rack", "r2"))}
	r.AddNode(node)
	r.AddNode(other)
	r.AddPool(topology.Pool{Labels: threeZones{}}, false)
	racks := views(t, r, web(Spread("rack", 1, "web")))[0].Group
	zones := views(t, r, web(Spread(Zone, 1, "web")))[0]
	v := racks()
	m := r.Removals()
	m.Remove(node)
	if got := v.Universe(); !slices.Equal(got, []string{"r2"}) {
		t.Errorf("racks %v after the removal, want r2 alone", got)
	}
	if got := zones.Group().Universe(); !slices.Equal(got, Zones()) {
		t.Errorf("zones %v after the removal: new nodes can be in all of them", got)
	}
	kept := m.Keep()
	m.RestoreDomains()
	if len(v.Universe()) != 1 {
		t.Error("RestoreDomains takes back what was kept")
	}
	m.Reopen(kept)
	m.RestoreDomains()
	m.Return(node)
	if got := v.Universe(); !slices.Equal(got, []string{"r1", "r2"}) {
		t.Errorf("racks %v in the end", got)
	}
}

// TestChoices requests the zones of a new node.
func TestChoices(t *testing.T) {
	price := map[string]float64{"z1": 1, "z2": 3, "z3": 2}
	query := func(views []topology.View, node requirement.Set) topology.Query {
		return topology.Query{Views: views, Node: node, Index: 0, Price: func(s requirement.Set) float64 {
			zone, _ := s.Get(Zone).Single()
			return price[zone]
		}}
	}
	tests := []struct {
		name string
		z1   []*corev1.Pod
		pod  *corev1.Pod
		node requirement.Set
		want []string // the zones of each choice
	}{
		{"a spread takes the cheapest of the emptiest", nil, web(Spread(Zone, 1, "web")), requirement.Set{}, []string{"z1", "z3", "z2"}},
		{"a spread has fewer pods first", running(1), web(Spread(Zone, 2, "web")), requirement.Set{}, []string{"z3", "z2", "z1"}},
		{"anti-affinity leaves the choice open", running(1), web(Apart(Zone, "web")), requirement.Set{}, []string{"z2 z3"}},
		{
			"only the node's own zones",
			nil,
			web(Spread(Zone, 1, "web")),
			requirement.NewSet(requirement.In(Zone, "z2", "z3")),
			[]string{"z3", "z2"},
		},
		{"affinity to nobody", nil, web(Near(Zone, "db")), requirement.Set{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := registry(tt.z1, nil)
			choices, blocked := r.Choices(query(views(t, r, tt.pod), tt.node))
			var got []string
			for _, c := range choices {
				text := ""
				for _, v := range c[0].Values() {
					text += " " + v
				}
				got = append(got, text[1:])
			}
			if !slices.Equal(got, tt.want) || (blocked == nil) != (len(tt.want) > 0) {
				t.Errorf("choices %q (blocked: %v), want %q", got, blocked != nil, tt.want)
			}
		})
	}
}

// TestFilters follows nodeAffinityPolicy and nodeTaintsPolicy: by default, nodes that the pod does not select do not
// count, and nodes with taints do.
func TestFilters(t *testing.T) {
	honor := corev1.NodeInclusionPolicyHonor
	ignore := corev1.NodeInclusionPolicyIgnore
	taint := func(effect corev1.TaintEffect) []corev1.Taint { return []corev1.Taint{{Key: "gpu", Effect: effect}} }
	tests := []struct {
		name             string
		affinity, taints *corev1.NodeInclusionPolicy
		node             []corev1.Taint
		selects          string
		counts           bool
	}{
		{"selected", nil, nil, nil, "z1", true},
		{"not selected", nil, nil, nil, "z2", false},
		{"not selected, and ignored", &ignore, nil, nil, "z2", true},
		{"tainted", nil, nil, taint(corev1.TaintEffectNoSchedule), "z1", true},
		{"tainted, and honored", nil, &honor, taint(corev1.TaintEffectNoSchedule), "z1", false},
		{"a soft taint, and honored", nil, &honor, taint(corev1.TaintEffectPreferNoSchedule), "z1", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, nodes := registry(nil, nil)
			nodes[0].Taints = tt.node
			v := views(t, r, web(Selects(Zone, tt.selects), Spread(Zone, 1, "web", func(c *corev1.TopologySpreadConstraint) {
				c.NodeAffinityPolicy, c.NodeTaintsPolicy = tt.affinity, tt.taints
			})))[0]
			if got := r.Counts(v.Group(), nodes[0]); got != tt.counts {
				t.Errorf("the node counts: %v", got)
			}
		})
	}
}

// TestManyTermsAreJoined compares a pod with more anti-affinity terms than are groups of their own with what each term
// states alone.
func TestManyTermsAreJoined(t *testing.T) {
	pod := web()
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	list := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range topology.MaxTerms + 1 {
		*list = append(*list, corev1.PodAffinityTerm{TopologyKey: Zone, LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"app": string(rune('A'+i/26)) + string(rune('a'+i%26))},
		}})
	}
	r, _ := registry([]*corev1.Pod{Bound(Pod("x", Labeled("app", "Bc")), "a")}, []*corev1.Pod{Bound(Pod("y", Labeled("app", "other")), "b")})
	all := views(t, r, pod)
	if len(all) != 1 {
		t.Fatalf("%d groups, want one for the key", len(all))
	}
	if all[0].Allows("z1") || !all[0].Allows("z2") || !all[0].Allows("z3") {
		t.Error("the joined terms forbid other zones than each of them does")
	}
}
