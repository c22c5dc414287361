package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func maybe(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// randomTypes are a family with and without local storage, on two architectures, with some unavailable offerings.
func randomTypes(r *rand.Rand) []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for i := range 3 + r.IntN(6) {
		cores := pick(r, 1, 2, 4, 8, 16)
		it := Type(
			fmt.Sprintf("t%d", i),
			float64(cores)*(0.03+0.04*r.Float64()),
			"cpu",
			fmt.Sprint(cores),
			"memory",
			fmt.Sprintf("%dGi", cores*pick(r, 2, 4, 8)),
			"pods",
			fmt.Sprint(pick(r, 8, 29, 110)),
		)
		it = WithLabel(it, Arch, pick(r, "amd64", "amd64", "arm64"))
		for j := range it.Offerings {
			it.Offerings[j].Available = !maybe(r, 15)
		}
		if maybe(r, 25) {
			it = WithReservation(it, pick(r, "cr-1", "cr-2"), r.IntN(4))
		}
		out = append(out, it)
	}
	return out
}

func randomPool(r *rand.Rand, name string, types []*catalog.InstanceType) snapshot.Pool {
	var edit []func(*np)
	add := func(percent int, e func(*np)) {
		if maybe(r, percent) {
			edit = append(edit, e)
		}
	}
	add(40, Require(Zone, in, pick(r, []string{"z1"}, []string{"z1", "z2"}, []string{"z2", "z3"})...))
	add(30, Require(Arch, in, "amd64"))
	add(30, Require("team", in, "x", "y"))
	add(20, TemplateLabel("rack", pick(r, "r1", "r2")))
	add(20, PoolTaint("hard", noPlace))
	add(20, PoolTaint("soft", prefer))
	add(30, Weight(int32(1+r.IntN(100))))
	add(40, Limit("cpu", fmt.Sprint(r.IntN(40))))
	add(20, Limit("nodes", fmt.Sprint(r.IntN(6))))
	add(15, func(p *np) { Require(corev1.LabelInstanceTypeStable, exists)(p); MinValues(1 + r.IntN(3))(p) })
	p := Pool(name, types, edit...)
	if maybe(r, 30) {
		p.Used = Resources("cpu", fmt.Sprint(r.IntN(10)), "nodes", fmt.Sprint(r.IntN(3)))
	}
	return p
}

// randomFamily is a set of pods as a workload's controller would make them.
func randomFamily(r *rand.Rand, name string) []*corev1.Pod {
	other := pick(r, "a", "b", "c", "d")
	edit := []func(*corev1.Pod){
		Labeled("app", name),
		Requests("cpu", fmt.Sprintf("%dm", 100*(1+r.IntN(30))), "memory", fmt.Sprintf("%dMi", 128*(1+r.IntN(40)))),
	}
	add := func(percent int, e func(*corev1.Pod)) {
		if maybe(r, percent) {
			edit = append(edit, e)
		}
	}
	key := func() string { return pick(r, Zone, Host, Zone, Host, "rack", Capacity) }
	add(15, Selects(Zone, pick(r, Zones()...)))
	add(15, Selects(Arch, pick(r, "amd64", "arm64")))
	add(10, Needs(Expr("team", pick(r, in, notIn, exists, absent), teamValues(r)...)))
	if maybe(r, 15) {
		edit = append(edit, Needs(Expr(Zone, in, pick(r, Zones()...))), Needs(Expr(Zone, in, pick(r, Zones()...))))
	}
	add(15, Prefers(1+int32(r.IntN(9)), Expr(Zone, in, pick(r, Zones()...))))
	add(30, Tolerates("hard"))
	add(20, Spread(key(), int32(1+r.IntN(2)), name))
	add(10, Spread(key(), 1, name, anyway))
	add(10, Spread(Zone, 1, name, minDomains(int32(1+r.IntN(4)))))
	add(15, Apart(pick(r, Zone, Host), pick(r, name, other)))
	add(10, Near(pick(r, Zone, Host), pick(r, name, other)))
	add(10, PreferNear(5, Zone, other))
	add(10, PreferApart(5, Host, name))
	add(15, Claims(pick(r, "disk-z1", "disk-z2", "disk-z1-z3", "disk-new")))
	add(10, HostPort(pick(r, "", "127.0.0.1"), int32(pick(r, 80, 81)), "TCP"))
	return Pods(1+r.IntN(8), name, edit...)
}

// teamValues suits any of the operators that randomFamily draws: fixValues corrects it afterwards.
func teamValues(r *rand.Rand) []string { return []string{pick(r, "x", "y")} }

// fixValues removes the values of operators that take none.
func fixValues(p *corev1.Pod) {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil ||
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	for _, t := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for i := range t.MatchExpressions {
			if op := t.MatchExpressions[i].Operator; op == exists || op == absent {
				t.MatchExpressions[i].Values = nil
			}
		}
	}
}

func randomNode(r *rand.Rand, name string) snapshot.Node {
	return Node(name, "p0", inZone(pick(r, Zones()...)), func(n *snapshot.Node) {
		if maybe(r, 20) {
			n.Taints = []corev1.Taint{{Key: "hard", Effect: noPlace}}
		}
		if maybe(r, 15) {
			n.Deleting = true
		}
		if maybe(r, 20) {
			n.Registered, n.Initialized = false, false
		}
		for _, p := range randomFamily(r, pick(r, "a", "b", "c", "d"))[:1] {
			fixValues(p)
			p.Name, p.UID = p.Name+"-"+name, p.UID+types.UID("-on-"+name)
			n.Pods = append(n.Pods, Bound(p, name))
		}
	})
}

func randomWorld(seed uint64) *snapshot.Snapshot {
	r := rand.New(rand.NewPCG(seed, 1))
	types := randomTypes(r)
	s := storage(World(nil), disk{name: "disk-z1", volume: volumeIn(zoned("z1"))}, disk{name: "disk-z2", volume: volumeIn(zoned("z2"))},
		disk{name: "disk-z1-z3", volume: volumeIn(zoned("z1"), zoned("z3"))}, disk{name: "disk-new", class: "wait"})
	for i := range 1 + r.IntN(3) {
		s.Pools = append(s.Pools, randomPool(r, fmt.Sprintf("p%d", i), types))
	}
	for _, name := range []string{"a", "b", "c", "d"}[:1+r.IntN(4)] {
		s.Pods = append(s.Pods, randomFamily(r, name)...)
	}
	for _, p := range s.Pods {
		fixValues(p)
	}
	for i := range r.IntN(4) {
		s.Nodes = append(s.Nodes, randomNode(r, fmt.Sprintf("n%d", i)))
	}
	if len(s.Nodes) > 0 && maybe(r, 30) {
		s.Nodes[0].Nominated = append(s.Nodes[0].Nominated, s.Pods[0].UID)
		s.Nodes[0].Launched, s.Nodes[0].Registered, s.Nodes[0].Initialized = false, false, false
	}
	if maybe(r, 40) {
		daemons(
			s,
			Pod("agent", Requests("cpu", "200m"), Tolerates("hard")),
			Pod("arm-agent", Requests("cpu", "300m"), Selects(Arch, "arm64")),
		)
	}
	s.Settings = snapshot.Settings{
		PreferencePolicy: snapshot.PreferencePolicy(pick(r, "Respect", "Ignore")),
		MinValuesPolicy:  snapshot.MinValuesPolicy(pick(r, "Strict", "BestEffort")),
	}
	return s
}

const worlds = 600

func TestEveryPlanIsValid(t *testing.T) {
	placed, rejected := 0, 0
	for seed := range uint64(worlds) {
		s := randomWorld(seed)
		p := schedule.Solve(s, schedule.Budget{})
		if err := validate.Plan(s, p); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, describe(p))
		}
		rejected += len(p.Rejected)
		placed += len(s.Pods) - len(p.Rejected)
	}
	// Worlds in which nothing happens prove nothing.
	if placed < 2*worlds || rejected < worlds/2 {
		t.Errorf("%d pods placed and %d rejected in %d worlds", placed, rejected, worlds)
	}
}

func TestPlanDoesNotDependOnSnapshotOrder(t *testing.T) {
	for seed := range uint64(worlds / 4) {
		s := randomWorld(seed)
		want := fingerprint(schedule.Solve(s, schedule.Budget{}))
		r := rand.New(rand.NewPCG(seed, 2))
		r.Shuffle(len(s.Pods), func(i, j int) { s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i] })
		r.Shuffle(len(s.Nodes), func(i, j int) { s.Nodes[i], s.Nodes[j] = s.Nodes[j], s.Nodes[i] })
		r.Shuffle(len(s.Pools), func(i, j int) { s.Pools[i], s.Pools[j] = s.Pools[j], s.Pools[i] })
		r.Shuffle(len(s.DaemonSets), func(i, j int) { s.DaemonSets[i], s.DaemonSets[j] = s.DaemonSets[j], s.DaemonSets[i] })
		for i := range s.Pools {
			types := slices.Clone(s.Pools[i].InstanceTypes)
			r.Shuffle(len(types), func(a, b int) { types[a], types[b] = types[b], types[a] })
			s.Pools[i].InstanceTypes = types
		}
		if diff := cmp.Diff(want, fingerprint(schedule.Solve(s, schedule.Budget{}))); diff != "" {
			t.Fatalf("seed %d, shuffled:\n%s", seed, diff)
		}
	}
}

func TestPlanDoesNotDependOnSnapshotOrderInLargeClusters(t *testing.T) {
	for _, kind := range []string{"diverse", "replicas", "batch", "prefs", "volumes", "multi-pool"} {
		s := workloadSnapshot(kind, 1200, 5, catalogNamed(t, "synthetic-400"), true)
		want := fingerprint(schedule.Solve(s, schedule.Budget{}))
		r := rand.New(rand.NewPCG(5, 2))
		r.Shuffle(len(s.Pods), func(i, j int) { s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i] })
		processors := runtime.GOMAXPROCS(1)
		got := fingerprint(schedule.Solve(s, schedule.Budget{}))
		runtime.GOMAXPROCS(processors)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, shuffled and on one processor:\n%s", kind, diff)
		}
	}
}

// fingerprint is everything in a plan that a caller may act on.
func fingerprint(p schedule.Plan) []string {
	var out []string
	names := func(pods []*corev1.Pod) string {
		s := ""
		for _, p := range pods {
			s += " " + p.Name
		}
		return s
	}
	for _, pl := range p.Placements {
		out = append(out, "on "+pl.Node+names(pl.Pods))
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		cpu := l.Requests[corev1.ResourceCPU]
		claim := ""
		for _, r := range l.ClaimRequirements() {
			minimum := 0
			if r.MinValues != nil {
				minimum = *r.MinValues
			}
			claim += fmt.Sprint(r.Key, r.Operator, r.Values, minimum, " ")
		}
		out = append(
			out,
			fmt.Sprint(l.Pool.Name, claim, cpu.String(), l.Offering.Zone, l.Offering.CapacityType, l.MinValuesRelaxed, names(l.Pods)),
		)
	}
	for _, r := range p.Rejected {
		out = append(out, fmt.Sprint(r.Pod.Name, r.Reasons))
	}
	return append(out, fmt.Sprintf("%+v", p.Stats))
}

func TestSpentLookaheadBudgetStillSchedulesAllPods(t *testing.T) {
	for seed := range uint64(worlds / 4) {
		s := randomWorld(seed)
		p := schedule.Solve(s, schedule.Budget{LookaheadSteps: 1})
		if err := validate.Plan(s, p); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// regionSized is about as large as a region's catalog.
func regionSized(n int) []*catalog.InstanceType {
	var out []*catalog.InstanceType
	sizes := []int{1, 2, 4, 8, 16, 32, 48, 64, 96}
	for i := range n {
		cores, perCore := sizes[i%len(sizes)], []int{2, 4, 8}[i/len(sizes)%3]
		price := float64(cores) * (0.035 + 0.003*float64(perCore)) * (1 + 0.001*float64(i%17))
		it := Type(fmt.Sprintf("type-%03d", i), price, "cpu", fmt.Sprint(cores), "memory", fmt.Sprintf("%dGi", cores*perCore), "pods", "110")
		it.Requirements = it.Requirements.With(it.Requirements.Get(Arch))
		for j := range 20 {
			it = WithLabel(it, fmt.Sprintf("%s/label-%02d", karpv1.Group, j), fmt.Sprint(i%(j+2)))
		}
		out = append(out, it)
	}
	return out
}

func benchmark(b *testing.B, pods []*corev1.Pod, nodes ...snapshot.Node) {
	s := withNodes(World([]snapshot.Pool{Pool("general", regionSized(900), Require(Arch, in, "amd64"))}, pods...), nodes...)
	var p schedule.Plan
	for b.Loop() {
		p = schedule.Solve(s, schedule.Budget{})
	}
	if len(p.Rejected) > 0 {
		b.Fatal(p.Rejected[0].Reasons)
	}
	b.ReportMetric(float64(len(p.Launches)), "nodes")
	b.ReportMetric(p.Stats.HourlyCost, "$/h")
}

func mixed(n int) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		name := fmt.Sprintf("app-%02d", i%20)
		edit := app(name)
		edit = append(edit, Requests("cpu", fmt.Sprintf("%dm", 100+50*(i%20)), "memory", fmt.Sprintf("%dMi", 256+128*(i%13))))
		switch i % 20 {
		case 0, 1, 2:
			edit = append(edit, Spread(Zone, 1, name))
		case 3:
			edit = append(edit, Spread(Host, 1, name))
		case 4:
			edit = append(edit, Apart(Host, name))
		case 5:
			edit = append(edit, Near(Zone, name))
		}
		out = append(out, Pod(fmt.Sprintf("%s-%05d", name, i), edit...))
	}
	return out
}

func BenchmarkEqualPods200(b *testing.B) {
	benchmark(b, Pods(200, "web", app("web", Spread(Zone, 1, "web"))...))
}
func BenchmarkEqualPods5000(b *testing.B) { benchmark(b, Pods(5000, "web", app("web")...)) }
func BenchmarkMixed200(b *testing.B)      { benchmark(b, mixed(200)) }
func BenchmarkMixed5000(b *testing.B)     { benchmark(b, mixed(5000)) }
func BenchmarkHostApart1000(b *testing.B) {
	benchmark(b, Pods(1000, "web", app("web", Apart(Host, "web"))...))
}

// BenchmarkBusyCluster places 1000 pods in a cluster of 1000 nodes with 20 pods each, nearly full.
func BenchmarkBusyCluster(b *testing.B) {
	var nodes []snapshot.Node
	for i := range 1000 {
		nodes = append(nodes, Node(fmt.Sprintf("n%04d", i), "general", inZone(Zones()[i%3]), func(n *snapshot.Node) {
			for _, p := range Pods(20, "old-"+n.Name, app(fmt.Sprintf("app-%02d", i%20), Requests("cpu", "195m"))...) {
				n.Pods = append(n.Pods, Bound(p, n.Name))
			}
		}))
	}
	benchmark(b, mixed(1000), nodes...)
}
