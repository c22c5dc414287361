package schedule_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

type np = karpv1.NodePool

const (
	in      = corev1.NodeSelectorOpIn
	notIn   = corev1.NodeSelectorOpNotIn
	exists  = corev1.NodeSelectorOpExists
	absent  = corev1.NodeSelectorOpDoesNotExist
	gt      = corev1.NodeSelectorOpGt
	lt      = corev1.NodeSelectorOpLt
	prefer  = corev1.TaintEffectPreferNoSchedule
	noPlace = corev1.TaintEffectNoSchedule
)

func TestPools(t *testing.T) {
	replicas := int64(2)
	cheap := []*catalog.InstanceType{Type("c.small", 0.03, "cpu", "1", "memory", "4Gi")}
	large := []*catalog.InstanceType{Type("c.xlarge", 0.16, "cpu", "8", "memory", "32Gi")}
	static := Pool("static", Types(), func(p *np) { p.Spec.Replicas = &replicas })
	checkPlans(t, []planCase{
		{"no pool", World(nil, Pod("a")), []string{"unschedulable (NoNodePools): a"}},
		{"only a static pool", World([]snapshot.Pool{static}, Pod("a")), []string{"unschedulable (NoNodePools): a"}},
		{"static and dynamic pool", World([]snapshot.Pool{static, Pool("dynamic", Types())}, Pod("a")), []string{"dynamic m.small: a"}},
		{
			"the heaviest pool gets all",
			World([]snapshot.Pool{Pool("none", Types()), Pool("w20", Types(), Weight(20)), Pool("w100", Types(), Weight(100))}, Pods(3, "a")...),
			[]string{"w100 m.small: a x3"},
		},
		{
			"a pod may name its pool",
			World(
				[]snapshot.Pool{Pool("light", Types()), Pool("heavy", Types(), Weight(100))},
				Pod("a", Selects(karpv1.LabelNodePool, "light")),
			),
			[]string{"light m.small: a"},
		},
		{
			"or a label of its template",
			World(
				[]snapshot.Pool{Pool("light", Types(), TemplateLabel("team", "x")), Pool("heavy", Types(), Weight(100))},
				Pod("a", Selects("team", "x")),
			),
			[]string{"light m.small: a"},
		},
		{
			"among equal weights and prices the last name wins",
			World([]snapshot.Pool{Pool("np-1", Types()), Pool("np-2", Types())}, Pod("a")),
			[]string{"np-2 m.small: a"},
		},
		{
			"among equal weights the cheaper pool wins",
			World([]snapshot.Pool{Pool("np-1", cheap), Pool("np-2", Types())}, Pod("a")),
			[]string{"np-1 c.small: a"},
		},
		{
			"by what its node holds for the price, not by the price of the smallest node",
			World([]snapshot.Pool{Pool("np-1", large), Pool("np-2", Types())}, Pods(8, "a", Requests("cpu", "950m"))...),
			[]string{"np-1 c.xlarge: a x8"},
		},
		{
			"a heavier pool wins at any price",
			World([]snapshot.Pool{Pool("np-1", cheap), Pool("np-2", Types(), Weight(1))}, Pod("a")),
			[]string{"np-2 m.small: a"},
		},
		{
			"among equal weights a pool that does not take the pod is passed over",
			World([]snapshot.Pool{Pool("np-1", cheap, PoolTaint("hard", noPlace)), Pool("np-2", Types())}, Pod("a")),
			[]string{"np-2 m.small: a"},
		},
		{
			"a soft taint is avoided",
			World([]snapshot.Pool{Pool("np-2", Types(), PoolTaint("soft", prefer)), Pool("np-1", Types())}, Pod("a")),
			[]string{"np-1 m.small: a"},
		},
		{
			"preferences go before a soft taint is tolerated",
			World(pool(PoolTaint("soft", prefer)), Pod("a", Prefers(1, Expr(Zone, in, "nowhere")))),
			[]string{"general m.small: a"},
		},
		{
			"a hard taint needs a toleration",
			World(pool(PoolTaint("hard", noPlace)), Pod("a"), Pod("b", Tolerates("hard"))),
			[]string{"general m.small: b", "unschedulable (Taints): a"},
		},
		{
			"a pool whose requirements leave no type",
			World(pool(Require(Zone, in, "z1"), Require(Zone, in, "z2")), Pod("a")),
			[]string{"unschedulable (Requirements): a"},
		},
		{
			"existing nodes stay usable",
			withNodes(World(pool(Require(Arch, in, "s390x")), Pod("a")), Node("n1", "general")),
			[]string{"on n1: a"},
		},
	})
}

func TestRequirements(t *testing.T) {
	team := func(op corev1.NodeSelectorOperator, values ...string) *corev1.Pod {
		return Pod("a", Needs(Expr("team", op, values...)))
	}
	defined := func(p *corev1.Pod) *snapshot.Snapshot { return World(pool(TemplateLabel("team", "x")), p) }
	checkPlans(t, []planCase{
		{"a pool's label does not stand in the way", defined(Pod("a")), []string{"general m.small: a"}},
		{"another value", defined(Pod("a", Selects("team", "other"))), []string{"unschedulable (Requirements): a"}},
		{"undefined key, selector", world(Pod("a", Selects("team", "x"))), []string{"unschedulable (Requirements): a"}},
		{"undefined key, In", world(team(in, "x")), []string{"unschedulable (Requirements): a"}},
		{"undefined key, Exists", world(team(exists)), []string{"unschedulable (Requirements): a"}},
		{"undefined key, NotIn", world(team(notIn, "x")), []string{"general m.small: a"}},
		{"undefined key, DoesNotExist", world(team(absent)), []string{"general m.small: a"}},
		{"defined key, In", defined(team(in, "x", "y")), []string{"general m.small: a"}},
		{"defined key, Exists", defined(team(exists)), []string{"general m.small: a"}},
		{"defined key, DoesNotExist", defined(team(absent)), []string{"unschedulable (Requirements): a"}},
		{"defined key, NotIn it", defined(team(notIn, "x")), []string{"unschedulable (Requirements): a"}},
		{"defined key, NotIn another", defined(team(notIn, "y")), []string{"general m.small: a"}},
		{
			"any of the pool's values",
			World(pool(Require("team", in, "v1", "v2")), team(exists)),
			[]string{"general m.small: a"},
		},
		{
			"compatible values share a node",
			World(
				pool(Require("team", in, "x", "y", "z")),
				Pod("a", Needs(Expr("team", in, "x", "y"))),
				Pod("b", Needs(Expr("team", in, "y", "z"))),
			),
			[]string{"general m.small: a, b"},
		},
		{
			"disjoint values do not",
			World(pool(Require("team", in, "x", "y")), Pod("a", Selects("team", "x")), Pod("b", Selects("team", "y"))),
			[]string{"general m.small: a", "general m.small: b"},
		},
		{"hostname", world(Pod("a", Selects(Host, "n1"))), []string{"unschedulable (Requirements): a"}},
		{
			"restricted domain",
			world(Pod("a", Selects("karpenter.sh/own", "x")), Pod("b", Selects("sub.karpenter.sh/own", "x"))),
			[]string{"unschedulable (Requirements): a, b"},
		},
		{"opted out", world(Pod("a", Needs(Expr(karpv1.LabelNodePool, absent)))), []string{"unschedulable (OptedOut): a"}},
		{
			"a Kubernetes domain that the pool defines",
			World(pool(TemplateLabel("node.kubernetes.io/kind", "x")), Pod("a", Selects("node.kubernetes.io/kind", "x"))),
			[]string{"general m.small: a"},
		},
		{
			"so kubernetes.io, k8s.io and what is below",
			World(pool(TemplateLabel("kubernetes.io/kind", "x"), TemplateLabel("k8s.io/kind", "x"), TemplateLabel("own.k8s.io/kind", "x")),
				Pod("a", Selects("kubernetes.io/kind", "x"), Selects("k8s.io/kind", "x"), Selects("own.k8s.io/kind", "x"))),
			[]string{"general m.small: a"},
		},
		{
			"well-known label outside the pool's range",
			World(pool(Require(Zone, in, "z1")), Pod("a", Selects(Zone, "z2"))),
			[]string{"unschedulable (Requirements): a"},
		},
		{"well-known label of unknown value", world(Pod("a", Selects(Zone, "nowhere"))), []string{"unschedulable (Requirements): a"}},
		{
			"impossible preference",
			world(Pod("a", Needs(Expr(Zone, in, "z1", "z2", "z3", "nowhere")), Prefers(1, Expr(Zone, in, "nowhere")))),
			[]string{"general m.small: a"},
		},
		{
			"preference within what is required",
			world(Pod("a", Needs(Expr(Zone, in, "z1", "z2")), Prefers(1, Expr(Zone, in, "z1")))),
			[]string{"general m.small z1: a"},
		},
		{
			"preference against all that is required",
			world(Pod("a", Needs(Expr(Zone, in, "z1", "z2", "z3", "nowhere")), Prefers(1, Expr(Zone, notIn, "z1", "z2", "z3", "nowhere")))),
			[]string{"general m.small: a"},
		},
		{
			"selector, requirement and preference together",
			world(Pod("a", Selects(Zone, "z3"), Selects(corev1.LabelInstanceTypeStable, "m.large"),
				Needs(Expr(Zone, in, "z1", "z3"), Expr(corev1.LabelInstanceTypeStable, in, "m.small", "m.large")),
				Prefers(1, Expr(Zone, notIn, "nowhere"), Expr(corev1.LabelInstanceTypeStable, notIn, "nothing")))),
			[]string{"general m.large z3: a"},
		},
		{"the last required term stays", world(Pod("a", Needs(Expr(Zone, in, "nowhere")))), []string{"unschedulable (Requirements): a"}},
		{
			"required terms are tried in order",
			world(
				Pod(
					"a",
					Needs(Expr(Zone, in, "nowhere")),
					Needs(Expr(Zone, in, "never")),
					Needs(Expr(Zone, in, "z2")),
					Needs(Expr(Zone, in, "z1")),
				),
			),
			[]string{"general m.small z2: a"},
		},
		{
			"the heaviest preference that is possible",
			world(Pod("a", Prefers(1, Expr(Zone, in, "z1")), Prefers(100, Expr(Zone, in, "nowhere")), Prefers(50, Expr(Zone, in, "z2")))),
			[]string{"general m.small z2: a"},
		},
		{
			"two impossible preferences",
			world(Pod("a", Prefers(1, Expr(Zone, in, "nowhere")), Prefers(1, Expr(Zone, in, "never")))),
			[]string{"general m.small: a"},
		},
		{"a capacity type that is none", world(Pod("a", Selects(Capacity, "gold"))), []string{"unschedulable (InvalidPod): a"}},
		{"mixed with one that is", world(Pod("a", Needs(Expr(Capacity, in, "gold", "spot")))), []string{"general m.small: a"}},
		{
			"an alias means the same",
			world(Pod("a", Selects("beta.kubernetes.io/arch", "amd64")), Pod("b", Selects("beta.kubernetes.io/arch", "arm64"))),
			[]string{"general m.small: a", "unschedulable (Requirements): b"},
		},
		{
			"exists but not x is not satisfied without the label",
			world(Pod("a", Needs(Expr("team", exists), Expr("team", notIn, "x")))),
			[]string{"unschedulable (Requirements): a"},
		},
	})
}

// The label that a node gets satisfies all its pods.
func TestLabelOfTheNode(t *testing.T) {
	team := func(name string, op corev1.NodeSelectorOperator, values ...string) *corev1.Pod {
		return Pod(name, Needs(Expr("team", op, values...)))
	}
	for _, c := range []struct {
		name  string
		world *snapshot.Snapshot
		want  []string // one of these
	}{
		{"the pool's", World(pool(TemplateLabel("team", "x")), Pod("a")), []string{"x"}},
		{"none", world(team("a", absent)), []string{""}},
		{"one of the pool's values", World(pool(Require("team", in, "v1", "v2")), team("a", exists)), []string{"v1", "v2"}},
		{"the common one", World(pool(Require("team", in, "x", "y", "z")), team("a", in, "x", "y"), team("b", in, "y", "z")), []string{"y"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := schedule.Solve(c.world, schedule.Budget{})
			if len(p.Launches) != 1 {
				t.Fatal(describe(p))
			}
			if got := p.Launches[0].ClaimLabels(c.world.Labels)["team"]; !slices.Contains(c.want, got) {
				t.Errorf("label %q, want one of %q", got, c.want)
			}
		})
	}
}

func TestIntegerLabelsNarrowTypes(t *testing.T) {
	const cores = "example.com/cores"
	types := Types()
	for i, n := range []string{"1", "2", "4", "8"} {
		types[i] = WithLabel(types[i], cores, n)
	}
	labelled := func(op corev1.NodeSelectorOperator, v string, more ...func(*np)) *snapshot.Snapshot {
		return World([]snapshot.Pool{Pool("general", types, append(more, Require(cores, op, v))...)}, Pod("a"))
	}
	checkPlans(t, []planCase{
		{"Gt", labelled(gt, "2"), []string{"general m.large: a"}},
		{"Gte", labelled(karpv1.OperatorGte, "2"), []string{"general m.medium: a"}},
		{"Lt", labelled(lt, "2"), []string{"general m.small: a"}},
		{"Lte and Gt", labelled(karpv1.OperatorLte, "4", Require(cores, gt, "1")), []string{"general m.medium: a"}},
	})
}

func TestClaimOfALaunch(t *testing.T) {
	s := World(
		[]snapshot.Pool{Pool(
			"general",
			Types(),
			TemplateLabel("team", "x"),
			Require("tier", in, "b", "a"),
			Require("gen", gt, "3"),
			Require("os2", absent),
			Require(
				"rack",
				notIn,
				"0",
			),
			Require(corev1.LabelInstanceTypeStable, exists),
			MinValues(2),
		)},
		Pod("a", Requests("cpu", "2"), Selects(Zone, "z1")),
	)
	p := schedule.Solve(s, schedule.Budget{})
	if len(p.Launches) != 1 {
		t.Fatal(describe(p))
	}
	l := &p.Launches[0]
	var got []string
	for _, r := range l.ClaimRequirements() {
		got = append(got, strings.TrimSpace(r.Key+" "+string(r.Operator)+" "+strings.Join(r.Values, " ")))
	}
	want := []string{
		"example.com/nodeclass In default", "gen Gte 4", "karpenter.sh/capacity-type In on-demand spot", "karpenter.sh/nodepool In general",
		"node.kubernetes.io/instance-type In m.medium m.large m.xlarge", "os2 DoesNotExist", "rack NotIn 0", "team In x", "tier In a b",
		"topology.kubernetes.io/zone In z1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("claim requires\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	labels := l.ClaimLabels(s.Labels)
	for k, v := range map[string]string{"team": "x", "tier": "a", "gen": "4", "rack": "1", "example.com/nodeclass": "default", karpv1.LabelNodePool: "general"} {
		if labels[k] != v {
			t.Errorf("label %s=%q, want %q", k, labels[k], v)
		}
	}
	for _, k := range []string{"os2", Zone, karpv1.LabelInitialized, Host} {
		if v, ok := labels[k]; ok {
			t.Errorf("label %s=%s must not be on the claim", k, v)
		}
	}
}

func TestPrice(t *testing.T) {
	od, spot := karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot
	a := WithOfferings(Type("a", 0, "cpu", "4"), Offering("z1", od, 1.0), Offering("z1", spot, 0.2))
	b := WithOfferings(Type("b", 0, "cpu", "4"), Offering("z1", od, 1.3), Offering("z1", spot, 0.1))
	arm := WithLabel(Type("arm", 0.01, "cpu", "4"), Arch, "arm64")
	windows := WithLabel(Type("windows", 2, "cpu", "4"), corev1.LabelOSStable, "windows")
	gone := Offering("z1", spot, 0.01)
	gone.Available = false
	checkPlans(t, []planCase{
		{"the cheapest", World(singlePool(a, b), Pod("a")), []string{"general b: a"}},
		{"the cheapest that matches", World(singlePool(a, b, arm), Pod("a", Selects(Arch, "amd64"))), []string{"general b: a"}},
		{"its architecture", World(singlePool(a, b, arm), Pod("a", Selects(Arch, "arm64"))), []string{"general arm: a"}},
		{"its capacity type", World(singlePool(a, b), Pod("a", Selects(Capacity, od))), []string{"general a: a"}},
		{
			"the pool's operating system",
			World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{a, windows}, Require(corev1.LabelOSStable, in, "windows"))}, Pod("a")),
			[]string{"general windows: a"},
		},
		{
			"one from the pool, one from the pod",
			World(
				[]snapshot.Pool{Pool("general", []*catalog.InstanceType{a, b, arm}, Require(Arch, in, "amd64"))},
				Pod("a", Selects(Zone, "z1"), Selects(Capacity, od)),
			),
			[]string{"general a z1: a"},
		},
		{
			"a zone where nothing is sold so",
			World(singlePool(a, b), Pod("a", Selects(Zone, "z2"))),
			[]string{"unschedulable (Requirements): a"},
		},
		{
			"prices that do not apply do not count",
			World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{a, b}, Require(Capacity, in, od))}, Pod("a")),
			[]string{"general a: a"},
		},
		{
			"a combination that nothing offers",
			World(singlePool(a, arm), Pod("a", Selects(Arch, "arm64"), Selects(corev1.LabelInstanceTypeStable, "a"))),
			[]string{"unschedulable (Requirements): a"},
		},
		{
			"an unavailable offering is not launched",
			World(singlePool(WithOfferings(Type("c", 1, "cpu", "4"), gone), a), Pod("a")),
			[]string{"general a: a"},
		},
		{
			"nothing available at the moment",
			World(singlePool(WithOfferings(Type("c", 1, "cpu", "4"), gone)), Pod("a")),
			[]string{"unschedulable (NoOffering): a"},
		},
	})
	p := schedule.Solve(World(singlePool(a, b, Type("dear", 99, "cpu", "4")), Pod("a")), schedule.Budget{})
	if n := len(p.Launches[0].InstanceTypes); n != 3 {
		t.Errorf("%d types in the claim, want all 3", n)
	}
	if o := p.Launches[0].Offering; o.CapacityType != spot || o.Price != 0.1 {
		t.Errorf("offering %+v, want the cheapest", o)
	}
}
