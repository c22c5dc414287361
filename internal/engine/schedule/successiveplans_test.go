package schedule_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// batches is a cluster that receives one batch of pods after the other. Before the next batch, the nodes of the plan
// are ready and kube-scheduler has bound the pods as planned.
type batches struct {
	*testing.T
	world *snapshot.Snapshot
}

// plan adds unscheduled pods to the next batch.
func (b *batches) plan(pods ...*corev1.Pod) schedule.Plan {
	b.Helper()
	b.world.Pods = append(b.world.Pods, pods...)
	p := schedule.Solve(b.world, schedule.Budget{})
	if err := validate.Plan(b.world, p); err != nil {
		b.Fatal(err)
	}
	for _, placed := range p.Placements {
		i := slices.IndexFunc(b.world.Nodes, func(n snapshot.Node) bool { return n.Name == placed.Node })
		b.world.Nodes[i].Pods = append(b.world.Nodes[i].Pods, bind(placed.Pods, placed.Node)...)
	}
	for i := range p.Launches {
		b.world.Nodes = append(b.world.Nodes, b.nodeOf(&p.Launches[i]))
	}
	b.world.Pods = nil
	for _, r := range p.Rejected {
		b.world.Pods = append(b.world.Pods, r.Pod)
	}
	return p
}

func bind(pods []*corev1.Pod, node string) []*corev1.Pod {
	out := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		out[i] = Bound(p.DeepCopy(), node)
	}
	return out
}

// nodeOf is the node that a launch becomes: its cheapest offering.
func (b *batches) nodeOf(l *schedule.Launch) snapshot.Node {
	return Node(fmt.Sprintf("node-%03d", len(b.world.Nodes)), l.Pool.Name, func(n *snapshot.Node) {
		maps.Copy(n.Labels, l.ClaimLabels(b.world.Labels))
		n.Labels[Zone], n.Labels[Capacity], n.Labels[corev1.LabelInstanceTypeStable] = l.Offering.Zone, l.Offering.CapacityType, l.InstanceTypes[0].Name
		n.Labels[Arch], _ = l.InstanceTypes[0].Requirements.Get(Arch).Single()
		n.Capacity, n.Allocatable, n.Taints = l.InstanceTypes[0].Capacity, l.InstanceTypes[0].Allocatable, l.Pool.Spec.Template.Spec.Taints
		n.Pods = bind(l.Pods, n.Name)
	})
}

// spread counts the pods per value of a node label, sorted: "z1: 2, z2: 1".
func (b *batches) spread(key string) string {
	counts := map[string]int{}
	for i := range b.world.Nodes {
		n := &b.world.Nodes[i]
		counts[n.Labels[key]] += len(n.Pods)
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", v, counts[v]))
		}
	}
	return strings.Join(parts, ", ")
}

func (b *batches) want(key, want string) {
	b.Helper()
	if got := b.spread(key); got != want {
		b.Errorf("pods per %s: %s; want %s", key, got, want)
	}
}

func TestSuccessivePlans(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"random batches leave one node with room", randomBatches},
		{"zones and hosts over growing batches", growingBatches},
		{"zones of node affinity that overlap", overlappingZones},
		{"a pod that is kept apart gets another zone at once", keptApart},
		{"exclusive taints are honored", exclusiveTaints},
		{"capacity types of nodes that pods can use", usableCapacityTypes},
		{"apart over architectures", apartOverArchitectures},
	} {
		t.Run(c.name, c.test)
	}
}

func randomBatches(t *testing.T) {
	random := rand.New(rand.NewPCG(139, 0))
	b := &batches{t, World(singlePool(Type("four", 1, "cpu", "4")))}
	for batch := range 20 {
		b.plan(Pods(1+random.IntN(7), fmt.Sprintf("batch-%d", batch), Requests("cpu", "1"))...)
		open := 0
		for i := range b.world.Nodes {
			if len(b.world.Nodes[i].Pods) < 4 {
				open++
			}
		}
		if open > 1 {
			t.Fatalf("batch %d leaves %d nodes with room", batch, open)
		}
	}
}

func growingBatches(t *testing.T) {
	b := &batches{t, world()}
	total := 0
	for batch := range 6 {
		pods := Pods(1+2*batch, fmt.Sprintf("batch-%d", batch), app("web", Spread(Zone, 1, "web"), Spread(Host, 3, "web"))...)
		total += len(pods)
		if p := b.plan(pods...); len(p.Rejected) > 0 {
			t.Fatal(describe(p))
		}
		zones := map[string]int{"z1": 0, "z2": 0, "z3": 0}
		most, fewest := 0, total
		for i := range b.world.Nodes {
			n := &b.world.Nodes[i]
			zones[n.Labels[Zone]] += len(n.Pods)
			most, fewest = max(most, len(n.Pods)), min(fewest, len(n.Pods))
		}
		if most-fewest > 3 {
			t.Errorf("batch %d: %d pods on one host, %d on another", batch, most, fewest)
		}
		counts := slices.Sorted(maps.Values(zones))
		if counts[2]-counts[0] > 1 {
			t.Errorf("batch %d, %d pods: zones hold %v", batch, total, counts)
		}
	}
}

func overlappingZones(t *testing.T) {
	b := &batches{t, world()}
	web := func(n int, name string, edit ...func(*corev1.Pod)) []*corev1.Pod {
		return Pods(n, name, app("web", append(edit, Spread(Zone, 1, "web"))...)...)
	}
	b.plan(web(6, "first", Needs(Expr(Zone, in, "z1", "z2")))...)
	b.want(Zone, "z1: 3, z2: 3")
	b.plan(web(1, "second", Needs(Expr(Zone, in, "z2", "z3")))...)
	b.want(Zone, "z1: 3, z2: 3, z3: 1")
	b.plan(web(5, "third")...)
	b.want(Zone, "z1: 4, z2: 4, z3: 4")
}

func keptApart(t *testing.T) {
	b := &batches{t, world()}
	p := b.plan(Pod("alone", Requests("cpu", "1"), Apart(Zone, "web")), Pod("web", app("web")...))
	if got, want := describe(p), "general m.small z1: alone\ngeneral m.small: web"; got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	if p.Launches[1].Requirements.Get(Zone).Has("z1") {
		t.Errorf("the pods may come up in one zone: %s", p.Launches[1].Requirements)
	}
}

// Each of two pools has its own taint, and they share one domain. Nodes with taints that the pods do not tolerate do
// not count for them, as in kube-scheduler, so each half is balanced by itself.
func exclusiveTaints(t *testing.T) {
	world := World([]snapshot.Pool{
		Pool("a", Types(), Require("rack", in, "foo", "bar"), PoolTaint("a", noPlace)),
		Pool("b", Types(), Require("rack", in, "foo", "baz"), PoolTaint("b", noPlace)),
	})
	web := func(n int, taint string) []*corev1.Pod {
		return Pods(n, taint, app("web", Tolerates(taint), Spread("rack", 1, "web", func(c *constraint) { c.NodeTaintsPolicy = &honor }))...)
	}
	b := &batches{t, world}
	if p := b.plan(join(web(2, "a"), web(4, "b"))...); len(p.Rejected) > 0 {
		t.Fatal(describe(p))
	}
	b.want("rack", "bar: 1, baz: 2, foo: 3")
	for i := range b.world.Nodes {
		n := &b.world.Nodes[i]
		if n.Pool == "a" && len(n.Pods) != 1 || n.Pool == "b" && len(n.Pods) != 2 {
			t.Errorf("%d pods on a node of pool %s in rack %s", len(n.Pods), n.Pool, n.Labels["rack"])
		}
	}
}

func usableCapacityTypes(t *testing.T) {
	elsewhere := Node("n", "general", full, runningPods(1, "web")) // on-demand in z1
	b := &batches{t, withNodes(world(), elsewhere)}
	pods := Pods(
		5,
		"web",
		app("web", Spread(Capacity, 1, "web"), Needs(Expr(Zone, in, "z2"), Expr(Capacity, in, karpv1.CapacityTypeSpot)))...)
	if p := b.plan(pods...); len(p.Rejected) > 0 {
		t.Fatal(describe(p))
	}
	b.want(Capacity, "on-demand: 1, spot: 5")
}

func apartOverArchitectures(t *testing.T) {
	types := append(Types(), WithLabel(Type("a.small", 0.04, "cpu", "1", "memory", "4Gi"), Arch, "arm64"))
	b := &batches{t, World([]snapshot.Pool{Pool("general", types)})}
	p := b.plan(Pod("db", app("db", Selects(Arch, "amd64"))...), Pod("web", app("web", Apart(Arch, "db"))...))
	if got, want := describe(p), "general a.small: web\ngeneral m.small: db"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
