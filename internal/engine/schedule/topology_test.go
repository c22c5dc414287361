package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

type constraint = corev1.TopologySpreadConstraint

var (
	honor  = corev1.NodeInclusionPolicyHonor
	ignore = corev1.NodeInclusionPolicyIgnore
)

func anyway(c *constraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }

func minDomains(n int32) func(*constraint) { return func(c *constraint) { c.MinDomains = &n } }

// app labels a pod app=name and makes it request half a CPU.
func app(name string, edit ...func(*corev1.Pod)) []func(*corev1.Pod) {
	return append([]func(*corev1.Pod){Labeled("app", name), Requests("cpu", "500m")}, edit...)
}

// runningPods are running pods labeled app=name.
func runningPods(n int, name string) func(*snapshot.Node) {
	return func(node *snapshot.Node) {
		for _, p := range Pods(n, "old-"+node.Name, Labeled("app", name)) {
			node.Pods = append(node.Pods, Bound(p, node.Name))
		}
	}
}

// in zone puts a node elsewhere; full leaves no room on it.
func inZone(zone string) func(*snapshot.Node) {
	return func(n *snapshot.Node) { n.Labels[Zone] = zone }
}

// full leaves no room on a node.
func full(n *snapshot.Node) {
	n.Allocatable = Resources("cpu", "100m", "memory", "16Gi", "pods", "110")
}

func TestSpread(t *testing.T) {
	zonal := Spread(Zone, 1, "web")
	web := func(n int, edit ...func(*corev1.Pod)) []*corev1.Pod { return Pods(n, "web", app("web", edit...)...) }
	old := func(name, zone string, n int) snapshot.Node {
		return Node(name, "general", inZone(zone), full, runningPods(n, "web"))
	}
	at := func(zones string, pods ...*corev1.Pod) *snapshot.Snapshot {
		return World(pool(Require(Zone, in, splitZones(zones)...)), pods...)
	}
	checkPlans(t, []planCase{
		{"unknown key", world(web(1, Spread("rack", 1, "web"))...), []string{"unschedulable (Topology): web"}},
		{
			"nil selector",
			world(web(4, Spread(Zone, 1, "web", func(c *constraint) { c.LabelSelector = nil }))...),
			[]string{"general m.medium z1: web x4"},
		},
		{
			"a selector that cannot be read",
			world(web(4, Spread(Zone, 1, "web", func(c *constraint) {
				c.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
			}))...),
			[]string{"general m.medium z1: web x4"},
		},
		{
			"three zones",
			world(web(4, zonal)...),
			[]string{"general m.small z1: web x2", "general m.small z2: web", "general m.small z3: web"},
		},
		{"two of them", at("z1 z2", web(4, zonal)...), []string{"general m.small z1: web x2", "general m.small z2: web x2"}},
		{"one", World(pool(TemplateLabel(Zone, "z1")), web(4, zonal)...), []string{"general m.medium z1: web x4"}},
		{
			"a pool per zone",
			World(
				[]snapshot.Pool{Pool("a", Types(), TemplateLabel(Zone, "z1")), Pool("b", Types(), TemplateLabel(Zone, "z2"))},
				web(4, zonal)...),
			[]string{"a m.small z1: web x2", "b m.small z2: web x2"},
		},
		{
			"one is there already",
			withNodes(world(web(4, zonal)...), old("n", "z3", 1)),
			[]string{"general m.small z1: web x2", "general m.small z2: web x2"},
		},
		{
			"up to maxSkew above the others",
			withNodes(at("z3", web(10, Spread(Zone, 5, "web"))...), old("n1", "z1", 1), old("n2", "z2", 1)),
			[]string{"general m.medium z3: web x4", "general m.small z3: web x2", "unschedulable (Topology): web x4"},
		},
		{
			"an emptier zone that cannot grow",
			withNodes(at("z2 z3", web(10, zonal)...), old("n1", "z1", 1)),
			[]string{"general m.small z2: web x2", "general m.small z3: web x2", "unschedulable (Topology): web x6"},
		},
		{
			"only the emptiest are used",
			withNodes(world(web(3, zonal)...), old("n1", "z1", 3)),
			[]string{"general m.small z2: web x2", "general m.small z3: web"},
		},
		{
			"others do not count",
			withNodes(world(web(3, zonal)...), Node("n", "general", full, func(n *snapshot.Node) {
				done, elsewhere, going := Pod("done", Labeled("app", "web")), Pod("ns", Labeled("app", "web")), Pod("going", Labeled("app", "web"))
				done.Status.Phase, elsewhere.Namespace, going.DeletionTimestamp = corev1.PodSucceeded, "other", &metav1.Time{Time: Now()}
				n.Pods = []*corev1.Pod{done, Bound(elsewhere, "n"), Bound(going, "n"), Bound(Pod("x", Labeled("app", "db")), "n")}
			})),
			[]string{"general m.small z1: web", "general m.small z2: web", "general m.small z3: web"},
		},
		{"pods that do not count themselves", world(Pods(4, "db", app("db", zonal)...)...), []string{"general m.medium z1: db x4"}},
		{
			"minDomains beyond the zones there are",
			at("z1 z2", web(3, Spread(Zone, 1, "web", minDomains(3)))...),
			[]string{"general m.small z1: web", "general m.small z2: web", "unschedulable (Topology): web"},
		},
		{
			"minDomains reached",
			world(web(11, Spread(Zone, 1, "web", minDomains(2)))...),
			[]string{"general m.medium z1: web x4", "general m.medium z2: web x4", "general m.medium z3: web x3"},
		},
		{
			"minDomains just reached",
			world(web(11, Spread(Zone, 1, "web", minDomains(3)))...),
			[]string{"general m.medium z1: web x4", "general m.medium z2: web x4", "general m.medium z3: web x3"},
		},
		{
			"one to a host",
			world(web(4, Spread(Host, 1, "web"))...),
			[]string{"general m.small: web", "general m.small: web", "general m.small: web", "general m.small: web"},
		},
		{"four to a host", world(web(4, Spread(Host, 4, "web"))...), []string{"general m.medium: web x4"}},
		{
			"two families share hosts",
			world(join(web(2, Spread(Host, 1, "web")), Pods(2, "db", app("db", Spread(Host, 1, "db"))...))...),
			[]string{"general m.small: db, web", "general m.small: db, web"},
		},
		{
			"with architectures of their own they do not",
			World(
				singlePool(Type("x86", 0.05, "cpu", "1"), WithLabel(Type("arm", 0.04, "cpu", "1"), Arch, "arm64")),
				join(
					web(2, Spread(Host, 1, "web"), Selects(Arch, "arm64")),
					Pods(2, "db", app("db", Spread(Host, 1, "db"), Selects(Arch, "amd64"))...),
				)...),
			[]string{"general arm: web", "general arm: web", "general x86: db", "general x86: db"},
		},
		{
			"capacity types, one out of reach",
			withNodes(
				World(pool(Require(Capacity, in, "on-demand")), web(5, Spread(Capacity, 1, "web"))...),
				Node("n", "general", full, runningPods(1, "web"), func(n *snapshot.Node) { n.Labels[Capacity] = "spot" }),
			),
			[]string{"general m.small: web x2", "unschedulable (Topology): web x3"},
		},
		{
			"softly",
			withNodes(
				World(pool(Require(Capacity, in, "on-demand")), web(5, Spread(Capacity, 1, "web", anyway))...),
				Node("n", "general", full, runningPods(1, "web"), func(n *snapshot.Node) { n.Labels[Capacity] = "spot" }),
			),
			[]string{"general m.medium: web x4", "general m.small: web"},
		},
		{
			"revisions spread apart",
			world(join(
				Pods(
					2,
					"old",
					app("web", Labeled("rev", "1"), Spread(Host, 1, "web", func(c *constraint) { c.MatchLabelKeys = []string{"rev"} }))...),
				Pods(
					2,
					"new",
					app("web", Labeled("rev", "2"), Spread(Host, 1, "web", func(c *constraint) { c.MatchLabelKeys = []string{"rev"} }))...),
			)...),
			[]string{"general m.small: new, old", "general m.small: new, old"},
		},
		{
			"a label that is not there",
			world(web(4, Spread(Host, 1, "web", func(c *constraint) { c.MatchLabelKeys = []string{"rev"} }))...),
			[]string{"general m.small: web", "general m.small: web", "general m.small: web", "general m.small: web"},
		},
		{
			"tainted nodes count",
			withNodes(
				World(pool(TemplateLabel("rack", "r0")), web(5, Spread("rack", 1, "web"))...),
				rack("n1", "r1", true),
				rack("n2", "r2", true),
			),
			[]string{"general m.small: web", "unschedulable (Topology): web x4"},
		},
		{
			"unless taints are honored",
			withNodes(
				World(pool(TemplateLabel("rack", "r0")), web(5, Spread("rack", 1, "web", func(c *constraint) { c.NodeTaintsPolicy = &honor }))...),
				rack("n1", "r1", true),
				rack("n2", "r2", true),
			),
			[]string{"general m.medium: web x4", "general m.small: web"},
		},
		{
			"a tainted pool has no domain of pods that do not tolerate the taint",
			World(
				[]snapshot.Pool{
					Pool("a", Types(), TemplateLabel("rack", "r0")),
					Pool("b", Types(), TemplateLabel("rack", "r1"), PoolTaint("hard", noPlace)),
				},
				web(2, Spread("rack", 1, "web"))...),
			[]string{"a m.small: web x2"},
		},
		{
			"honored",
			World(
				[]snapshot.Pool{
					Pool("a", Types(), TemplateLabel("rack", "r0")),
					Pool("b", Types(), TemplateLabel("rack", "r1"), PoolTaint("hard", noPlace)),
				},
				web(2, Spread("rack", 1, "web", func(c *constraint) { c.NodeTaintsPolicy = &honor }))...),
			[]string{"a m.small: web x2"},
		},
		{
			"nodes outside the pod's affinity",
			withNodes(
				World(
					pool(TemplateLabel("rack", "r0"), TemplateLabel("kind", "good")),
					web(5, Selects("kind", "good"), Spread("rack", 1, "web"))...),
				rack("n1", "r1", false),
				rack("n2", "r2", false),
			),
			[]string{"general m.medium: web x4", "general m.small: web"},
		},
		{
			"counted all the same",
			withNodes(
				World(
					pool(TemplateLabel("rack", "r0"), TemplateLabel("kind", "good")),
					web(5, Selects("kind", "good"), Spread("rack", 1, "web", func(c *constraint) { c.NodeAffinityPolicy = &ignore }))...),
				rack("n1", "r1", false),
				rack("n2", "r2", false),
			),
			[]string{"general m.small: web", "unschedulable (Topology): web x4"},
		},
		{
			"each in its zone",
			world(join(Pods(5, "a", app("web", zonal, Selects(Zone, "z1"))...), Pods(10, "b", app("web", zonal, Selects(Zone, "z2"))...))...),
			[]string{"general m.medium z1: a x4", "general m.small z1: a", "general m.large z2: b x8", "general m.small z2: b x2"},
		},
		{
			"preferred zones",
			world(web(6, zonal, Prefers(1, Expr(Zone, in, "z1", "z2")))...),
			[]string{"general m.small z1: web x2", "general m.small z2: web x2", "general m.small z3: web x2"},
		},
		{
			"soft constraints ignored",
			with(world(web(5, Spread(Host, 1, "web", anyway), PreferApart(1, Host, "web"))...), ignoringPreferences),
			[]string{"general m.medium: web x4", "general m.small: web"},
		},
		{
			"preferred node affinity, ignored",
			with(withNodes(world(web(1, Prefers(100, Expr(Zone, in, "z2")))...), Node("n", "general")), ignoringPreferences),
			[]string{"on n: web"},
		},
		{
			"preferred pod affinity to a planned node, ignored",
			with(
				world(
					Pod("db", Labeled("app", "db"), Requests("cpu", "1"), Selects(Zone, "z2")),
					Pod("big", Requests("cpu", "7500m"), Selects(Zone, "z1")),
					web(1, PreferNear(100, Zone, "db"))[0],
				),
				ignoringPreferences,
			),
			[]string{"general m.small z2: db", "general m.xlarge z1: big, web"},
		},
		{
			"a zone that no limit lets anyone into does not cap the others",
			World(
				[]snapshot.Pool{Pool("a", Types(), Require(Zone, in, "z1", "z2")), Pool("b", Types(), Require(Zone, in, "z3"), Limit("cpu", "0"))},
				web(10, zonal)...),
			[]string{"a m.medium z1: web x4", "a m.small z1: web", "a m.medium z2: web x4", "a m.small z2: web"},
		},
		{
			"unless a node is there, which the scheduler counts",
			withNodes(
				World(
					[]snapshot.Pool{Pool("a", Types(), Require(Zone, in, "z1", "z2")), Pool("b", Types(), Require(Zone, in, "z3"), Limit("cpu", "0"))},
					web(10, zonal)...),
				Node("n", "b", inZone("z3"), full),
			),
			[]string{"a m.small z1: web", "a m.small z2: web", "unschedulable (Limits,Topology): web x8"},
		},
		{
			"the volume's zone counts, minDomains holds",
			withNodes(
				storage(
					world(Pod("web", app("web", Spread(Zone, 1, "web", minDomains(3)), Claims("data"))...)),
					disk{name: "data", volume: volumeIn(zoned("z1"))},
				),
				old("n1", "z1", 1),
				old("n2", "z2", 1),
				old("n3", "z3", 1),
			),
			[]string{"general m.small z1: web"},
		},
	})
}

func ignoringPreferences(s *snapshot.Snapshot) { s.Settings.PreferencePolicy = "Ignore" }

func splitZones(s string) []string {
	var out []string
	for i := 0; i+1 < len(s); i += 3 {
		out = append(out, s[i:i+2])
	}
	return out
}

func rack(name, value string, tainted bool) snapshot.Node {
	return Node(name, "general", full, func(n *snapshot.Node) {
		n.Labels["rack"] = value
		if tainted {
			n.Taints = []corev1.Taint{{Key: "hard", Effect: noPlace}}
		}
	})
}

func TestSpreadOverKeysOfPools(t *testing.T) {
	s := World([]snapshot.Pool{
		Pool("spot", Types(), Require(Capacity, in, karpv1.CapacityTypeSpot), Require("spread", in, "2", "3", "4", "5")),
		Pool("on-demand", Types(), Require(Capacity, in, karpv1.CapacityTypeOnDemand), Require("spread", in, "1")),
	}, Pods(20, "web", app("web", Spread("spread", 1, "web"))...)...)
	checkPlans(t, []planCase{{"one fifth on demand", s, []string{
		"on-demand m.medium: web x4", "spot m.medium: web x4", "spot m.medium: web x4", "spot m.medium: web x4", "spot m.medium: web x4",
	}}})
}

func TestAffinity(t *testing.T) {
	web := func(n int, edit ...func(*corev1.Pod)) []*corev1.Pod { return Pods(n, "web", app("web", edit...)...) }
	db := func(edit ...func(*corev1.Pod)) *corev1.Pod { return Pod("db", app("db", edit...)...) }
	elsewhere := func(p *corev1.Pod) { p.Namespace = "other" }
	three := func(n *snapshot.Node) { n.Allocatable = Resources("cpu", "2500m", "memory", "16Gi", "pods", "110") }
	checkPlans(t, []planCase{
		{"empty affinity", world(Pod("a", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{
				NodeAffinity:    &corev1.NodeAffinity{},
				PodAffinity:     &corev1.PodAffinity{},
				PodAntiAffinity: &corev1.PodAntiAffinity{},
			}
		})), []string{"general m.small: a"}},
		{"to a pod of the batch", world(db(), Pod("web", Requests("cpu", "2"), Near(Host, "db"))), []string{"general m.large: db, web"}},
		{
			"a family larger than its host",
			withNodes(world(web(10, Near(Host, "web"))...), Node("n", "general", three, runningPods(1, "web"))),
			[]string{"on n: web x5", "unschedulable (Topology): web x5"},
		},
		{
			"kept from its family's host",
			withNodes(world(web(2, Near(Host, "web"), Needs(Expr(Zone, in, "z2", "z3")))...), Node("n", "general", runningPods(1, "web"))),
			[]string{"unschedulable (Topology): web x2"},
		},
		{"a family in one zone", world(web(3, Near(Zone, "web"))...), []string{"general m.medium z1: web x3"}},
		{"in the zone that it needs", world(web(3, Near(Zone, "web"), Selects(Zone, "z3"))...), []string{"general m.medium z3: web x3"}},
		{
			"disjoint zones",
			world(
				Pod("a", app("web", Near(Zone, "web"), Selects(Zone, "z1"))...),
				Pod("b", app("web", Near(Zone, "web"), Selects(Zone, "z2"))...),
			),
			[]string{"general m.small z1: a", "unschedulable (Topology): b"},
		},
		{"preferred, impossible", world(Pod("a", app("a", PreferNear(1, Zone, "nobody"))...)), []string{"general m.small: a"}},
		{
			"apart on hosts",
			world(db(), Pod("web", app("web", Apart(Host, "db"))...)),
			[]string{"general m.small: db", "general m.small: web"},
		},
		{"declared by the other", world(db(Apart(Host, "web")), web(1)[0]), []string{"general m.small: db", "general m.small: web"}},
		{
			"all zones taken",
			withNodes(
				world(Pod("a", Apart(Zone, "db"))),
				Node("n1", "general", runningPods(1, "db")),
				Node("n2", "general", inZone("z2"), runningPods(1, "db")),
				Node("n3", "general", inZone("z3"), runningPods(1, "db")),
			),
			[]string{"unschedulable (Topology): a"},
		},
		{
			"the other's zone is chosen for it",
			world(Pod("db", Labeled("app", "db"), Requests("cpu", "1")), Pod("web", app("web", Apart(Zone, "db"))...)),
			[]string{"general m.small z1: db", "general m.small: web"},
		},
		{
			"zones held by those who keep others out",
			world(
				join(
					[]*corev1.Pod{
						Pod("a", Requests("cpu", "2"), Selects(Zone, "z1"), Apart(Zone, "web")),
						Pod("b", Requests("cpu", "2"), Selects(Zone, "z2"), Apart(Zone, "web")),
						Pod("c", Requests("cpu", "2"), Selects(Zone, "z3"), Apart(Zone, "web")),
					},
					web(1),
				)...),
			[]string{"general m.medium z1: a", "general m.medium z2: b", "general m.medium z3: c", "unschedulable (Topology): web"},
		},
		{
			"bound already",
			withNodes(
				World(pool(Require(Zone, in, "z1")), web(1)...),
				Node("n", "general", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{Bound(Pod("a", Apart(Zone, "web")), "n")} }),
			),
			[]string{"unschedulable (Topology): web"},
		},
		{"all zones in one pass", world(web(3, Apart(Zone, "web"))...), []string{"general m.small z1: web", "general m.small z2: web", "general m.small z3: web"}},
		{
			"zones beside one that is taken",
			withNodes(world(web(2, Apart(Zone, "web"))...), Node("n", "general", full, func(n *snapshot.Node) {
				n.Pods = []*corev1.Pod{Bound(Pod("old", app("web", Apart(Zone, "web"))...), "n")}
			})),
			[]string{"general m.small z2: web", "general m.small z3: web"},
		},
		{
			"preferred anti-affinity keeps no pod away",
			withNodes(World(pool(Require(Zone, in, "z1")), web(1)...), Node("n", "general", func(n *snapshot.Node) {
				n.Pods = []*corev1.Pod{Bound(Pod("a", PreferApart(100, Zone, "web"), PreferApart(100, Host, "web")), "n")}
			})),
			[]string{"on n: web"},
		},
		{
			"preferred by the others of the batch",
			world(join([]*corev1.Pod{
				Pod(
					"a",
					Requests("cpu", "2"),
					Selects(Zone, "z1"),
					PreferApart(1, Zone, "web"),
				), Pod("b", Requests("cpu", "2"), Selects(Zone, "z2"), PreferApart(1, Zone, "web")),
				Pod("c", Requests("cpu", "2"), Selects(Zone, "z3"), PreferApart(1, Zone, "web")),
			}, web(1))...),
			[]string{"general m.medium z1: a", "general m.medium z2: b", "general m.medium z3: c", "general m.small: web"},
		},
		{
			"the zone of a node in flight",
			withNodes(
				world(web(1, Near(Zone, "web"))...),
				Node(
					"n",
					"general",
					inZone("z2"),
					full,
					runningPods(1, "web"),
					func(n *snapshot.Node) { n.Registered, n.Initialized = false, false },
				),
			),
			[]string{"general m.small z2: web"},
		},
		{
			"no zone is left",
			withNodes(
				world(web(1, Apart(Zone, "web"))...),
				Node("n1", "general", full, runningPods(1, "web")),
				Node("n2", "general", full, inZone("z2"), runningPods(1, "web")),
				Node("n3", "general", full, inZone("z3"), runningPods(1, "web")),
			),
			[]string{"unschedulable (Topology): web"},
		},
		{"affinity to pods that do not exist", world(Pod("a", Near(Zone, "nobody"))), []string{"unschedulable (Topology): a"}},
		{
			"the target could be anywhere, and gets a zone",
			world(join([]*corev1.Pod{db()}, web(10, Near(Zone, "db")))...),
			[]string{"general m.large z1: db, web x7", "general m.medium z1: web x3"},
		},
		{
			"the target is pinned",
			world(join([]*corev1.Pod{db(Selects(Zone, "z2"))}, web(10, Near(Zone, "db")))...),
			[]string{"general m.large z2: db, web x7", "general m.medium z2: web x3"},
		},
		{
			"a chain, in any order",
			world(
				Pod("ui", Labeled("app", "ui"), Requests("cpu", "400m"), Near(Host, "cache")),
				Pod("cache", Labeled("app", "cache"), Requests("cpu", "300m"), Near(Host, "web")),
				Pod(
					"web",
					Labeled("app", "web"),
					Requests("cpu", "200m"),
					Near(Host, "db"),
				),
				Pod("db", Labeled("app", "db"), Requests("cpu", "100m")),
			),
			[]string{"general m.small: cache, db, ui, web"},
		},
		{
			"target in another namespace",
			world(db(elsewhere), web(1, Near(Host, "db"))[0]),
			[]string{"general m.small: db", "unschedulable (Topology): web"},
		},
		{
			"which the term lists",
			world(db(elsewhere), web(1, Near(Host, "db"), func(p *corev1.Pod) {
				p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].Namespaces = []string{"other"}
			})[0]),
			[]string{"general m.small: db, web"},
		},
		{
			"or all are meant",
			world(db(elsewhere), web(1, Near(Host, "db"), func(p *corev1.Pod) {
				p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{}
			})[0]),
			[]string{"general m.small: db, web"},
		},
	})
}

func TestPreferencesAreDroppedInOrder(t *testing.T) {
	// Preferred pod affinity goes before preferred node affinity, whatever their weights.
	p := Pod("a", app("a", PreferNear(100, Zone, "db"), Prefers(1, Expr(Zone, in, "z2")))...)
	s := withNodes(world(p), Node("n", "general", full, runningPods(1, "db")))
	checkPlans(t, []planCase{
		{"node affinity outlives pod affinity", s, []string{"general m.small z2: a"}},
		{
			"a spread holds against preferred affinity",
			world(Pods(3, "web", app("web", Spread(Host, 1, "web"), PreferNear(50, Host, "web"))...)...),
			[]string{"general m.small: web", "general m.small: web", "general m.small: web"},
		},
		{
			"a soft spread is respected while it can be",
			world(Pods(3, "web", app("web", Spread(Zone, 1, "web", anyway))...)...),
			[]string{"general m.small z1: web", "general m.small z2: web", "general m.small z3: web"},
		},
	})
}
