package schedule_test

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// hostile are pods with n terms in all that a tenant can write to slow down planning.
func hostile() map[string]func(n int) []*corev1.Pod {
	eachTerm := func(edit func(i int) func(*corev1.Pod)) func(n int) []*corev1.Pod {
		return func(n int) []*corev1.Pod {
			p := Pod("hostile", Labeled("app", "hostile"))
			for i := range n {
				edit(i)(p)
			}
			return []*corev1.Pod{p}
		}
	}
	name := func(i int) string { return fmt.Sprintf("a-%05d", i) }
	everybody := func(i int) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: name(i), Operator: metav1.LabelSelectorOpDoesNotExist}},
		}
	}
	anyNode := func(i int) corev1.NodeSelectorRequirement {
		return Expr("example.com/"+name(i), corev1.NodeSelectorOpNotIn, "x")
	}
	soft := func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	return map[string]func(n int) []*corev1.Pod{
		"preferred anti-affinity": eachTerm(func(i int) func(*corev1.Pod) { return PreferApart(int32(1+i%100), Zone, name(i)) }),
		"preferred anti-affinity to everybody": eachTerm(func(i int) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				PreferApart(int32(1+i%100), Zone, "")(p)
				p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm.LabelSelector = everybody(i)
			}
		}),
		"preferred affinity": eachTerm(func(i int) func(*corev1.Pod) { return PreferNear(int32(1+i%100), Zone, name(i)) }),
		"preferred node affinity": eachTerm(func(i int) func(*corev1.Pod) {
			return Prefers(int32(1+i%100), Expr(Zone, corev1.NodeSelectorOpIn, name(i)))
		}),
		"spreads that may be given up": eachTerm(func(i int) func(*corev1.Pod) { return Spread("example.com/"+name(i), 1, "hostile", soft) }),
		"required anti-affinity":       eachTerm(func(i int) func(*corev1.Pod) { return Apart(Zone, name(i)) }),
		"required anti-affinity to everybody": eachTerm(func(i int) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				Apart(Zone, "")(p)
				p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i].LabelSelector = everybody(i)
			}
		}),
		"required affinity":   eachTerm(func(i int) func(*corev1.Pod) { return Near(Zone, name(i)) }),
		"node selector terms": eachTerm(func(i int) func(*corev1.Pod) { return Needs(Expr(Zone, corev1.NodeSelectorOpIn, name(i))) }),
		"node selector terms that any node has": eachTerm(func(i int) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				Needs(anyNode(i))(p)
				Requests("cpu", "10000")(p)
			}
		}),
		"one term of many labels": eachTerm(func(i int) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				if i == 0 {
					Needs(anyNode(i))(p)
					Requests("cpu", "10000")(p)
				}
				term := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
				term.MatchExpressions = append(term.MatchExpressions, anyNode(i))
			}
		}),
		"tolerations": eachTerm(func(i int) func(*corev1.Pod) { return Tolerates(name(i)) }),
		"host ports":  eachTerm(func(i int) func(*corev1.Pod) { return HostPort("", int32(1+i), corev1.ProtocolTCP) }),
		"many pods of some soft terms": func(n int) []*corev1.Pod {
			var out []*corev1.Pod
			for k := 0; n > 0; k++ {
				p := Pod(fmt.Sprintf("hostile-%d", k), Labeled("app", "hostile"))
				for i := range min(n, 50+45*(k%11)) {
					PreferApart(int32(1+i%100), [...]string{Zone, Host}[i%2], fmt.Sprintf("b-%d-%d", k, i))(p)
					n--
				}
				out = append(out, p)
			}
			return out
		},
	}
}

// besideHostile is a cluster in which ordinary pods and hostile ones are pending.
func besideHostile(ordinary int, pods []*corev1.Pod) *snapshot.Snapshot {
	list := workload.SyntheticTypes(400, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
	s := workload.Snapshot([]snapshot.Pool{Pool("general", list)}, append(workload.Diverse(ordinary, 1), pods...), true)
	for i := range 200 {
		s.Nodes = append(s.Nodes, Node(fmt.Sprintf("n%03d", i), "general", inZone(workload.ZonesOf(list)[i%3]), func(n *snapshot.Node) {
			for _, p := range Pods(20, "old-"+n.Name, app(fmt.Sprintf("app-%02d", i%20), Requests("cpu", "199m"))...) {
				n.Pods = append(n.Pods, Bound(p, n.Name))
			}
		}))
	}
	return s
}

// BenchmarkManyTerms plans 5,000 ordinary pods together with pods of 10,000 terms.
func BenchmarkManyTerms(b *testing.B) {
	all := hostile()
	all["many more pods of some soft terms"] = func(n int) []*corev1.Pod { return all["many pods of some soft terms"](10 * n) }
	all["nothing hostile"] = func(int) []*corev1.Pod { return nil }
	for name, pods := range all {
		b.Run(name, func(b *testing.B) {
			s := besideHostile(5000, pods(10000))
			runtime.GC()
			b.ReportAllocs()
			steps := 0
			for b.Loop() {
				steps = schedule.Solve(s, schedule.DefaultBudget()).Stats.Steps
			}
			b.ReportMetric(float64(steps), "steps")
		})
	}
}

// A pod with thousands of terms costs in proportion to them, and keeps no other pod from its node.
func TestPodWithThousandsOfTermsDoesNotDelayOthers(t *testing.T) {
	const ordinary = 200
	calm := schedule.Solve(besideHostile(ordinary, nil), schedule.DefaultBudget())
	for name, pods := range hostile() {
		t.Run(name, func(t *testing.T) {
			steps, mallocs, bytes := map[int]int{}, map[int]uint64{}, map[int]uint64{}
			for _, n := range []int{1500, 6000} {
				s := besideHostile(ordinary, pods(n))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				p := schedule.Solve(s, schedule.DefaultBudget())
				runtime.ReadMemStats(&after)
				steps[n], mallocs[n] = p.Stats.Steps-calm.Stats.Steps, after.Mallocs-before.Mallocs
				bytes[n] = after.TotalAlloc - before.TotalAlloc
				for _, r := range p.Rejected {
					if r.Pod.Labels["app"] != "hostile" {
						t.Errorf("%s is left without a node: %v", r.Pod.Name, r.Reasons)
					}
				}
			}
			if few, many := max(steps[1500], calm.Stats.Steps/4), steps[6000]; many > 5*few {
				t.Errorf("4 times the terms take %d steps instead of %d", many, few)
			}
			if few, many := mallocs[1500], mallocs[6000]; many > 5*few {
				t.Errorf("4 times the terms take %d allocations instead of %d", many, few)
			}
			if few, many := bytes[1500], bytes[6000]; many > 5*few {
				t.Errorf("4 times the terms take %d bytes instead of %d", many, few)
			}
		})
	}
}

// Preferences beyond the bound are respected together if possible, and dropped before others.
func TestPreferencesBeyondTheBoundAreDroppedTogether(t *testing.T) {
	picky := func(p *corev1.Pod) {
		Labeled("app", "picky")(p)
		for i := range podclass.MaxSoftTerms {
			PreferApart(100, Zone, fmt.Sprintf("nobody-%d", i))(p)
		}
		PreferApart(100, Zone, "first")(p)
		for i := range 200 {
			PreferApart(int32(1+i%50), Zone, fmt.Sprintf("light-%d", i))(p)
		}
	}
	occupied := func(apps ...string) []snapshot.Node {
		var out []snapshot.Node
		for i, name := range apps {
			zone := Zones()[i]
			out = append(out, Node("n-"+zone, "general", inZone(zone), func(n *snapshot.Node) {
				n.Pods = append(n.Pods, Bound(Pod("old-"+zone, Labeled("app", name), Requests("cpu", "4")), n.Name))
			}))
		}
		return out
	}
	zone := func(nodes []snapshot.Node) string {
		s := World([]snapshot.Pool{Pool("general", Types())}, Pod("picky", picky, Requests("cpu", "1")))
		s.Nodes = nodes
		p := schedule.Solve(s, schedule.Budget{})
		if len(p.Launches) != 1 {
			t.Fatalf("want one launch, got %d", len(p.Launches))
		}
		z := p.Launches[0].Requirements.Get(Zone)
		return fmt.Sprint(z.Has("z1"), z.Has("z2"), z.Has("z3"))
	}
	if got := zone(occupied("light-7", "light-199")); got != "false false true" {
		t.Errorf("z1 and z2 have pods that the lightest terms keep away from, but z1, z2, z3 are allowed: %s", got)
	}
	if got := zone(occupied("light-7", "light-199", "light-3")); got != "true true true" {
		t.Errorf("no zone suits all of the lightest terms, yet z1, z2, z3 are allowed: %s", got)
	}
}

// Required anti-affinity with many terms keeps away from whatever any of them selects, and keeps that away.
func TestManyRequiredAntiAffinityTermsAllHold(t *testing.T) {
	apart := func(p *corev1.Pod) {
		for i := range 300 {
			Apart(Zone, fmt.Sprintf("other-%d", i))(p)
		}
	}
	other := func(name string) *corev1.Pod {
		return Pod(name, Labeled("app", name), Requests("cpu", "100m"), Selects(Zone, "z1"))
	}
	s := World(
		[]snapshot.Pool{Pool("general", Types())},
		Pod("lonely", apart, Requests("cpu", "1")),
		other("other-3"),
		other("other-299"),
		other("other-300"),
	)
	p := schedule.Solve(s, schedule.Budget{})
	if len(p.Rejected) > 0 {
		t.Fatalf("%s is rejected: %v", p.Rejected[0].Pod.Name, p.Rejected[0].Reasons)
	}
	for _, l := range p.Launches {
		names := map[string]bool{}
		for _, pod := range l.Pods {
			names[pod.Name] = true
		}
		if names["lonely"] && (names["other-3"] || names["other-299"]) {
			t.Errorf("lonely is with %v", names)
		}
	}
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	running := Bound(Pod("lonely", apart), "n1")
	s = World([]snapshot.Pool{Pool("general", Types())}, Pod("other-299", Labeled("app", "other-299")))
	s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) { n.Pods = append(n.Pods, running) })}
	if p := schedule.Solve(s, schedule.Budget{}); len(p.Placements) > 0 || len(p.Launches) != 1 ||
		p.Launches[0].Requirements.Get(Zone).Has("z1") {
		t.Errorf("a pod is put into the zone of one that keeps away from it: %d placements, %d launches", len(p.Placements), len(p.Launches))
	}
}

// The reason states what cannot be planned, and what to do.
func TestTooManyRequiredTermsAreReported(t *testing.T) {
	for name, c := range map[string]struct{ pod, want string }{
		"affinity": {"required affinity", `the pod has 100 terms of required pod affinity, and no more than 64 are planned; use fewer terms`},
		"terms":    {"node selector terms", `of the pod's 100 terms of required node affinity only the first 64 are considered; use fewer terms`},
	} {
		t.Run(name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", Types())}, hostile()[c.pod](100)...)
			p := schedule.Solve(s, schedule.DefaultBudget())
			if len(p.Rejected) != 1 {
				t.Fatalf("%d are rejected", len(p.Rejected))
			}
			last := p.Rejected[0].Reasons[len(p.Rejected[0].Reasons)-1]
			if last.Code != schedule.TooComplex || wording.Reason(last) != c.want {
				t.Errorf("got %s %q, want %q", last.Code, wording.Reason(last), c.want)
			}
		})
	}
}

// A budget bounds all of planning: remaining pods are rejected until the next pass, and every pod is in the plan once.
func TestSpentStepsEndThePlan(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types())}, workload.Diverse(2000, 1)...)
	full := schedule.Solve(s, schedule.Budget{})
	p := schedule.Solve(s, schedule.Budget{LookaheadSteps: 1000, MaxSteps: 2000})
	if p.Stats.Steps > full.Stats.Steps/2 {
		t.Errorf("%d steps were taken, without a budget %d", p.Stats.Steps, full.Stats.Steps)
	}
	placed, waiting := 0, 0
	for _, l := range p.Launches {
		placed += len(l.Pods)
	}
	for _, r := range p.Rejected {
		if r.Reasons[0].Code == schedule.BudgetSpent {
			waiting++
		}
	}
	if placed == 0 || waiting == 0 || placed+waiting != 2000 {
		t.Errorf("%d pods are placed, and %d wait for the next pass, of 2000", placed, waiting)
	}
}

// Stop finishes planning at any time, and the plan is empty.
func TestStoppedPlanIsAbandoned(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types())}, workload.Diverse(300, 1)...)
	asked := 0
	schedule.Solve(s, schedule.Budget{Stop: func() bool { asked++; return false }})
	if asked < 300 {
		t.Fatalf("Stop was called %d times", asked)
	}
	for _, at := range []int{1, 10, asked / 2, asked} {
		n := 0
		p := schedule.Solve(s, schedule.Budget{Stop: func() bool { n++; return n >= at }})
		if !p.Abandoned || len(p.Launches)+len(p.Placements)+len(p.Rejected) > 0 {
			t.Errorf("stopped at call %d of %d: abandoned is %v, with %d launches", at, asked, p.Abandoned, len(p.Launches))
		}
	}
}

// BenchmarkManyTermsWhatIf simulates the removal of nodes that run pods of 10,000 terms.
func BenchmarkManyTermsWhatIf(b *testing.B) {
	for name, pods := range hostile() {
		b.Run(name, func(b *testing.B) {
			s := besideHostile(1000, nil)
			for i := range 10 {
				for _, p := range pods(10000) {
					p.Name, p.UID = fmt.Sprintf("%s-%d", p.Name, i), types.UID(fmt.Sprintf("%s-%d", p.UID, i))
					s.Nodes[i].Pods = append(s.Nodes[i].Pods, Bound(p, s.Nodes[i].Name))
				}
			}
			budget := schedule.DefaultBudget()
			budget.FirstFitOnly = true
			for b.Loop() {
				problem := schedule.Compile(s)
				for i := range 3 {
					problem.WhatIf([]int{i}, s.Nodes[i].Pods, budget)
				}
			}
		})
	}
}
