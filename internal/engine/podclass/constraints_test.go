package podclass_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// fixture compiles pods for one pool with nodes in three zones, which has a taint.
type fixture struct {
	podclass.Config
	*podclass.Compiler
	slots reservation.Slots
	steps int
}

func newFixture(edit ...func(*fixture)) *fixture {
	f := &fixture{}
	s := World([]snapshot.Pool{Pool("general", Types(), PoolTaint("team", corev1.TaintEffectNoSchedule))})
	f.Config = podclass.Config{
		Snapshot: s, Topology: topology.NewRegistry(s, map[types.UID]bool{}), Volumes: volume.NewLimits(s, nil), RespectPreferences: true,
		Steps: &f.steps,
		Pools: nodepool.NewModels(nodepool.Config{
			Labels: s.Labels, Axes: resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0")), Slots: &f.slots, Steps: &f.steps,
			LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
		}, s.Pools),
	}
	for _, t := range f.Pools.All() {
		f.Config.Topology.AddPool(topology.Pool{Taints: t.Taints(), Labels: t}, false)
	}
	for _, e := range edit {
		e(f)
	}
	f.Compiler = podclass.NewCompiler(f.Config)
	return f
}

// compile compiles pods one after the other.
func (f *fixture) compile(pods ...*corev1.Pod) []*podclass.Constraints {
	var out []*podclass.Constraints
	for _, pod := range pods {
		k := podclass.New(pod)
		f.Read(k, pod)
		out = append(out, k)
	}
	for _, k := range out {
		f.Compile(k)
	}
	f.Config.Topology.CountDeclared()
	f.Config.Topology.Index()
	for _, k := range out {
		f.Find(k)
	}
	return out
}

func zoneOf(set requirement.Set) string {
	v, _ := set.Get(Zone).Single()
	return v
}

// The last preference in Kubernetes' order of weights goes last, and what is required stays at all levels.
func TestLevelsDropOnePreferenceEach(t *testing.T) {
	in := corev1.NodeSelectorOpIn
	k := newFixture().compile(Pod("web", Labeled("app", "web"), Selects(Arch, "amd64"), Apart(Host, "web"),
		Prefers(1, Expr(Zone, in, "z1")), Prefers(9, Expr(Zone, in, "z2")), PreferNear(1, Zone, "db")))[0]
	if len(k.Invalid()) > 0 {
		t.Fatal(k.Invalid())
	}
	var zones []string
	var groups, dropped []int
	for _, level := range k.Levels() {
		zones, groups, dropped = append(zones, zoneOf(level.Full())), append(groups, len(level.Groups())), append(dropped, level.Dropped())
		if arch, _ := level.Full().Get(Arch).Single(); arch != "amd64" || zoneOf(level.InternedStrict().Set) != "" {
			t.Errorf("a level requires %v and prefers %v", level.InternedStrict().Set, level.Full())
		}
	}
	if !slices.Equal(zones, []string{"z2", "z2", "z1", ""}) || !slices.Equal(groups, []int{2, 1, 1, 1}) ||
		!slices.Equal(dropped, []int{0, 1, 2, 3}) {
		t.Errorf("zones %q, groups %v, dropped %v", zones, groups, dropped)
	}
	if own := k.Declares(); len(own) != 1 || len(k.Matches()) == 0 {
		t.Errorf("%d groups keep others away, %d count the pod", len(own), len(k.Matches()))
	}
}

func TestPreferencesDoNotCountWhereTheyAreIgnored(t *testing.T) {
	f := newFixture(func(f *fixture) { f.RespectPreferences = false })
	k := f.compile(Pod("web", Prefers(1, Expr(Zone, corev1.NodeSelectorOpIn, "z1")), PreferApart(1, Host, "web")))[0]
	if len(k.Levels()) != 1 || zoneOf(k.Levels()[0].Full()) != "" || len(k.Levels()[0].Groups()) != 0 {
		t.Errorf("%d levels", len(k.Levels()))
	}
}

func TestTaintsBlockPools(t *testing.T) {
	f := newFixture()
	got := f.compile(Pod("web"), Pod("ours", Tolerates("team")))
	if !got[0].Levels()[0].Blocked().Has(0) || got[1].Levels()[0].Blocked().Has(0) {
		t.Error("the taint must keep out the pod without a toleration, and no other")
	}
	if got[0].LaunchableAt(got[0].Levels()[0], f.Pools) || !got[1].LaunchableAt(got[1].Levels()[0], f.Pools) {
		t.Error("a level is launchable where some pool takes it")
	}
	f = newFixture(func(f *fixture) { f.SoftTaints = true })
	levels := f.compile(Pod("web", Tolerates("team")))[0].Levels()
	if len(levels) != 2 || len(levels[1].Tolerations()) != 2 || levels[1].Dropped() != 1 {
		t.Errorf("%d levels: the last one tolerates what only prefers to keep pods off", len(levels))
	}
}

func TestPodsThatCannotBeConsidered(t *testing.T) {
	many := make([]func(*corev1.Pod), 0, podclass.MaxRequiredTerms+1)
	for range podclass.MaxRequiredTerms + 1 {
		many = append(many, Near(Zone, "web"))
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want rejection.Code
	}{
		"too many terms":                 {Pod("web", many...), rejection.TooComplex},
		"a value that no node has":       {Pod("web", Selects(Capacity, "cheap")), rejection.InvalidPod},
		"a label that registration sets": {Pod("web", Selects("karpenter.sh/initialized", "true")), ""},
		"a claim for a device": {Pod("web", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}), rejection.DeviceClaims},
		"an unknown volume": {Pod("web", Claims("missing")), rejection.Volume},
		"none of it":        {Pod("web", Tolerates("team")), ""},
	} {
		var got rejection.Code
		if k := newFixture().compile(c.pod)[0]; len(k.Invalid()) > 0 {
			got = k.Invalid()[0].Code
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestInZone(t *testing.T) {
	f := newFixture()
	k := f.compile(Pod("web", Labeled("app", "web"), Spread(Zone, 1, "web"), Spread(Host, 1, "web")))[0]
	if !k.OnlySpreadsOverZones(0) {
		t.Error("the pods have no other rule on zones")
	}
	in := k.InZone("z2", f.Pools)
	if in == nil || len(in.Levels()) != 1 || zoneOf(in.Levels()[0].Full()) != "z2" || len(in.Levels()[0].Groups()) != 1 {
		t.Fatalf("in z2: %v", in)
	}
	if in != k.InZone("z2", f.Pools) {
		t.Error("the constraints of a zone are made once")
	}
	k = f.compile(Pod("db", Labeled("app", "db"), Spread(Zone, 1, "db"), Selects(Zone, "z1")))[0]
	if k.InZone("z2", f.Pools) != nil {
		t.Error("the pods cannot run in z2")
	}
}

func TestEffectiveZone(t *testing.T) {
	for want, pod := range map[string]*corev1.Pod{
		podclass.FlexibleZone: Pod("web"), "z2": Pod("web", Selects(Zone, "z2")),
		podclass.NoZone: Pod("web", Selects(Zone, "z2"), Needs(Expr(Zone, corev1.NodeSelectorOpIn, "z1"))),
	} {
		if got := newFixture().compile(pod)[0].EffectiveZone(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAlternativesBeyondTheBoundAreReported(t *testing.T) {
	edit := make([]func(*corev1.Pod), 0, podclass.MaxAlternatives+1)
	for range podclass.MaxAlternatives + 1 {
		edit = append(edit, Needs(Expr(Zone, corev1.NodeSelectorOpIn, "z1")))
	}
	k := newFixture().compile(Pod("web", edit...))[0]
	if why := k.LeftOut(); !strings.Contains(wording.Reason(why), "only the first") || !k.ManyTerms() {
		t.Errorf("%+v, many terms %v", why, k.ManyTerms())
	}
}
