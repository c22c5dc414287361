package schedule_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// initContainer adds an init container, a sidecar if it keeps running.
func initContainer(sidecar bool, pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: "init", Resources: corev1.ResourceRequirements{Requests: Resources(pairs...)}}
		if sidecar {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func TestResources(t *testing.T) {
	five := singlePool(Type("five", 1, "cpu", "16", "pods", "5"))
	exact := singlePool(Type("snug", 1, "cpu", "11", "memory", "5Gi"), Type("tight", 0.5, "cpu", "10", "memory", "4Gi"))
	gpu, fpga := Type("gpu", 3, "cpu", "8", "nvidia.com/gpu", "1"), Type("fpga", 3, "cpu", "8", "example.com/fpga", "1")
	onePod := Type("one", 1, "cpu", "16", "pods", "1")
	checkPlans(t, []planCase{
		{"larger than every type", world(Pod("a", Requests("cpu", "9"))), []string{"unschedulable (Resources): a"}},
		{
			"different zones, different nodes",
			world(Pod("a", Selects(Zone, "z1")), Pod("b", Selects(Zone, "z2"))),
			[]string{"general m.small z1: a", "general m.small z2: b"},
		},
		{
			"different architectures, operating systems and types",
			World(
				singlePool(
					Type("x86", 1, "cpu", "4"),
					WithLabel(Type("arm", 1, "cpu", "4"), Arch, "arm64"),
					WithLabel(Type("windows", 1, "cpu", "4"), corev1.LabelOSStable, "windows"),
					Type("other", 2, "cpu", "4"),
				),
				Pod(
					"a",
					Selects(Arch, "arm64"),
				),
				Pod("b", Selects(corev1.LabelOSStable, "windows")),
				Pod("c", Selects(corev1.LabelInstanceTypeStable, "other")),
			),
			[]string{"general arm: a", "general other: c", "general windows: b"},
		},
		{
			"resources of different types",
			World(
				singlePool(gpu, fpga),
				Pod("a", Requests("nvidia.com/gpu", "1")),
				Pod("b", Requests("example.com/fpga", "1")),
				Pod("c", Requests("nvidia.com/gpu", "1", "example.com/fpga", "1")),
			),
			[]string{"general gpu: a", "general fpga: b", "unschedulable (Resources): c"},
		},
		{"none of an unknown resource", world(Pod("a", Requests("example.com/what", "0"))), []string{"general m.small: a"}},
		{
			"overhead counts",
			world(Pod("a", Requests("cpu", "1"), func(p *corev1.Pod) { p.Spec.Overhead = Resources("cpu", "100m") })),
			[]string{"general m.medium: a"},
		},
		{
			"five pods a node",
			World(five, Pods(25, "a")...),
			[]string{"general five: a x5", "general five: a x5", "general five: a x5", "general five: a x5", "general five: a x5"},
		},
		{"one pod a node", World(singlePool(onePod), Pods(3, "a")...), []string{"general one: a", "general one: a", "general one: a"}},
		{
			"big init container first",
			World(
				exact,
				Pod(
					"a",
					Requests("cpu", "6", "memory", "2Gi"),
					initContainer(false, "cpu", "10", "memory", "4Gi"),
					initContainer(true, "cpu", "4.9", "memory", "2.9Gi"),
				),
			),
			[]string{"general snug: a"},
		},
		{
			"sidecar, then init container",
			World(
				exact,
				Pod(
					"a",
					Requests("cpu", "6", "memory", "2Gi"),
					initContainer(true, "cpu", "4.9", "memory", "2.9Gi"),
					initContainer(false, "cpu", "5", "memory", "1Gi"),
				),
			),
			[]string{"general snug: a"},
		},
		{
			"the init container's peak",
			World(
				exact,
				Pod(
					"a",
					Requests("cpu", "5", "memory", "1Gi"),
					initContainer(true, "cpu", "4.9", "memory", "2.9Gi"),
					initContainer(false, "cpu", "6", "memory", "2Gi"),
				),
			),
			[]string{"general snug: a"},
		},
		{"pod-level resources decide", World(exact, Pod("a", Requests("cpu", "20"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: Resources("cpu", "9.9", "memory", "3.9Gi")}
		})), []string{"general tight: a"}},
		{
			"init container larger than any type",
			World(exact, Pod("a", initContainer(false, "cpu", "100"))),
			[]string{"unschedulable (Resources): a"},
		},
	})
	p := schedule.Solve(World(singlePool(Type("two", 1, "cpu", "2")), Pods(40, "a", Requests("cpu", "1"))...), schedule.Budget{})
	if len(p.Launches) != 20 {
		t.Errorf("%d nodes for 40 pods, two to a node", len(p.Launches))
	}
}

func TestNodeSizeMinimizesCostOfContent(t *testing.T) {
	// One huge type holds everything at ten times the price per core.
	huge := Type("huge", 40, "cpu", "80", "memory", "320Gi")
	p := schedule.Solve(
		World([]snapshot.Pool{Pool("general", append(Types(), huge))}, Pods(32, "a", Requests("cpu", "1"))...),
		schedule.Budget{},
	)
	if cost := p.Stats.HourlyCost; cost > 32*0.05/3*1.001 {
		t.Errorf("32 pods of one core cost $%.3f/h:\n%s", cost, describe(p))
	}
	if len(p.Rejected) > 0 {
		t.Error(describe(p))
	}
	// Daemons make small nodes expensive: larger ones divide their cost among more pods.
	s := World(pool(), Pods(7, "a", Requests("cpu", "1"))...)
	s.DaemonSets = []snapshot.DaemonSet{{Name: "agent", Pod: Pod("agent", Requests("cpu", "500m"))}}
	p = schedule.Solve(s, schedule.Budget{})
	if got := describe(p); got != "general m.xlarge: a x7" {
		t.Errorf("with a daemon of half a core on each node:\n%s", got)
	}
}

func TestMinValues(t *testing.T) {
	small := []*catalog.InstanceType{Type("a", 1, "cpu", "1"), Type("b", 2, "cpu", "2"), Type("c", 3, "cpu", "4")}
	three := func(policy string, pools []snapshot.Pool, cpu string) *snapshot.Snapshot {
		return with(
			World(pools, Pod("p", Requests("cpu", cpu))),
			func(s *snapshot.Snapshot) { s.Settings.MinValuesPolicy = snapshot.MinValuesPolicy(policy) },
		)
	}
	byType := func(n int, more ...func(*np)) []snapshot.Pool {
		return []snapshot.Pool{Pool("general", small, append(more, Require(corev1.LabelInstanceTypeStable, exists), MinValues(n))...)}
	}
	cores := func(op corev1.NodeSelectorOperator, v string, n int) []snapshot.Pool {
		return []snapshot.Pool{
			Pool(
				"general",
				[]*catalog.InstanceType{
					WithLabel(Type("a", 1, "cpu", "1"), "cores", "1"),
					WithLabel(Type("b", 1, "cpu", "2"), "cores", "2"),
					WithLabel(Type("c", 1, "cpu", "4"), "cores", "4"),
				},
				Require("cores", op, v),
				MinValues(n),
			),
		}
	}
	twoPools := append(byType(3), Pool("heavy", small, Weight(50), Require(corev1.LabelInstanceTypeStable, exists), MinValues(3)))
	checkPlans(t, []planCase{
		{"strict, too few fit", three("Strict", byType(3), "2"), []string{"unschedulable (MinValues): p"}},
		{"best effort", three("BestEffort", byType(3), "2"), []string{"general b relaxed: p"}},
		{
			"zones",
			three(
				"BestEffort",
				[]snapshot.Pool{Pool("general", small, Require(Zone, in, "z1", "z2"), Require(Zone, exists), MinValues(3))},
				"1",
			),
			[]string{"general a relaxed: p"},
		},
		{"the heavy pool relaxes before a light one is tried", three("BestEffort", twoPools, "2"), []string{"heavy b relaxed: p"}},
		{"satisfied", three("BestEffort", byType(3), "1"), []string{"general a: p"}},
		{"counted within a bound", three("Strict", cores(gt, "1", 2), "1"), []string{"general b: p"}},
		{"too few within a bound", three("Strict", cores(gt, "1", 3), "1"), []string{"unschedulable (MinValues): p"}},
		{
			"the larger of two applies",
			three("Strict", byType(3, Require(corev1.LabelInstanceTypeStable, exists), MinValues(2)), "2"),
			[]string{"unschedulable (MinValues): p"},
		},
		{"counted below a bound", three("Strict", cores(lt, "4", 2), "1"), []string{"general a: p"}},
		{"too few below it", three("Strict", cores(lt, "2", 2), "1"), []string{"unschedulable (MinValues): p"}},
		{
			"several keys must all hold",
			three("Strict", byType(2, Require(Arch, exists), MinValues(2)), "1"),
			[]string{"unschedulable (MinValues): p"},
		},
	})
	p := schedule.Solve(three("BestEffort", byType(3), "2"), schedule.Budget{})
	if n := p.Launches[0].Requirements.Get(corev1.LabelInstanceTypeStable).MinValues(); n != 2 {
		t.Errorf("the claim's minValues are %d, want 2", n)
	}
	p = schedule.Solve(
		three("BestEffort", []snapshot.Pool{Pool("general", small, Require(Zone, in, "z1", "z2"), Require(Zone, exists), MinValues(3))}, "1"),
		schedule.Budget{},
	)
	if n := p.Launches[0].Requirements.Get(Zone).MinValues(); n != 2 {
		t.Errorf("the claim's minValues of zones are %d, want 2", n)
	}
}

func TestMinValuesOfTruncatedClaim(t *testing.T) {
	var types []*catalog.InstanceType
	for i := range bin.MaxInstanceTypes + 1 {
		family := "common"
		if i == bin.MaxInstanceTypes {
			family = "rare" // and the most expensive: it does not make the list
		}
		types = append(types, WithLabel(Type("t"+strings.Repeat("x", i), float64(1+i), "cpu", "1"), "example.com/family", family))
	}
	s := World([]snapshot.Pool{Pool("general", types, Require("example.com/family", exists), MinValues(2))}, Pod("p"))
	checkPlans(t, []planCase{{"a truncated claim does not reach minValues", s, []string{"unschedulable (MinValues): p"}}})
}

func TestLimits(t *testing.T) {
	used := func(s *snapshot.Snapshot, pairs ...string) *snapshot.Snapshot {
		s.Pools[0].Used = Resources(pairs...)
		return s
	}
	limited := func(pods []*corev1.Pod, pairs ...string) *snapshot.Snapshot {
		return World(pool(Limit(pairs...)), pods...)
	}
	checkPlans(t, []planCase{
		{"far above the limit already", used(limited(Pods(1, "a"), "cpu", "20"), "cpu", "100"), []string{"unschedulable (Limits): a"}},
		{"just fits", limited([]*corev1.Pod{Pod("a", Requests("cpu", "1.75"))}, "cpu", "2"), []string{"general m.medium: a"}},
		{"does not", limited([]*corev1.Pod{Pod("a", Requests("cpu", "2.1"))}, "cpu", "2"), []string{"unschedulable (Limits): a"}},
		{
			"two nodes would exceed it",
			limited(Pods(2, "a", Requests("cpu", "1.5"), Labeled("app", "a"), Apart(Host, "a")), "cpu", "3"),
			[]string{"general m.medium: a", "unschedulable (Limits): a"},
		},
		{"of another resource", limited(Pods(1, "a"), "pods", "1"), []string{"unschedulable (Limits): a"}},
		{"the rest of an earlier pass", used(limited(Pods(1, "a"), "cpu", "2"), "cpu", "2"), []string{"unschedulable (Limits): a"}},
		{"number of nodes", used(limited(Pods(1, "a"), "nodes", "2"), "nodes", "2"), []string{"unschedulable (Limits): a"}},
		{
			"one batch does not overshoot it either",
			limited(Pods(5, "a", Labeled("app", "a"), Apart(Host, "a")), "nodes", "2"),
			[]string{"general m.small: a", "general m.small: a", "unschedulable (Limits): a x3"},
		},
		{
			"limits do not bind existing nodes",
			withNodes(used(limited(Pods(1, "a"), "cpu", "2"), "cpu", "2"), Node("n", "general")),
			[]string{"on n: a"},
		},
	})
}

func TestTypesOfALaunchUnderALimit(t *testing.T) {
	for limit, want := range map[string]string{
		"100": "m.small m.medium m.large m.xlarge", // far away: all that hold the pod
		"3":   "m.small m.medium",                  // whatever is launched, the limit holds
		"1":   "m.small",
	} {
		p := schedule.Solve(World(pool(Limit("cpu", limit)), Pod("a", Requests("cpu", "1"))), schedule.Budget{})
		var names []string
		for _, it := range p.Launches[0].InstanceTypes {
			names = append(names, it.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("limit of %s cpu: types %s, want %s", limit, got, want)
		}
	}
}

// The pool allows t2.small and t2.medium only, 4 CPUs at most.
func TestLimitIsUsedFully(t *testing.T) {
	types := []*catalog.InstanceType{
		Type("t2.small", 0.023, "cpu", "1", "memory", "2Gi"),
		Type("t2.medium", 0.0464, "cpu", "2", "memory", "4Gi"),
	}
	for _, it := range types { // what kubelet and system keep for themselves
		cpu := it.Allocatable[corev1.ResourceCPU]
		cpu.Sub(resource.MustParse("60m"))
		it.Allocatable[corev1.ResourceCPU] = cpu
	}
	pools := []snapshot.Pool{Pool("default", types, Limit("cpu", "4"), TemplateLabel("nodegroup", "karpenter"))}
	pools[0].Used = Resources("cpu", "1")
	p := schedule.Solve(World(pools, Pods(6, "web", Requests("cpu", "900m"), Selects("nodegroup", "karpenter"))...), schedule.Budget{})
	placed := 0
	for _, l := range p.Launches {
		placed += len(l.Pods)
	}
	if placed != 3 || len(p.Rejected) != 3 {
		t.Fatalf("3 of 4 CPUs are free, so 3 pods of nearly one should run:\n%s", describe(p))
	}
	reason := p.Rejected[0].Reasons[0]
	const want = "fits t2.small in z1, but the pool's limit of 4 cpu leaves 0 (1 in use, 3 planned), and the smallest suitable type, t2.small, adds 1"
	if reason.Code != schedule.Limits || reason.NodePool != "default" || wording.Reason(reason) != want {
		t.Errorf("got %+v, want message %q", reason, want)
	}
}
