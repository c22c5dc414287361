package schedule_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// hugeQuantities are quantities that the API server accepts but no int64 of thousandths holds.
var hugeQuantities = []string{
	"9223372036854775807",
	"10P",
	"1Ei",
	"1e30",
	"1e400",
	"1e2147483647",
	"9223372036854775808",
	"18446744073709552",
}

func shop(more ...*corev1.Pod) *snapshot.Snapshot {
	s := World([]snapshot.Pool{Pool("general", Types())})
	s.Pods = append(Pods(12, "web", Requests("cpu", "700m", "memory", "900Mi")), more...)
	return s
}

func launched(p schedule.Plan) string {
	var b strings.Builder
	for i := range p.Launches {
		l := &p.Launches[i]
		fmt.Fprintf(&b, "%s %v %v", l.Pool.Name, l.Requirements, coresAndMemory(l.Requests))
		for _, it := range l.InstanceTypes {
			b.WriteString(" " + it.Name)
		}
		for _, pod := range l.Pods {
			b.WriteString(" " + pod.Name)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func coresAndMemory(l corev1.ResourceList) string {
	cpu, memory := l[corev1.ResourceCPU], l[corev1.ResourceMemory]
	return cpu.String() + " " + memory.String()
}

// The pod gets a reason, and the others get the nodes that they would get without it.
func TestOversizedPodDoesNotDelayOthers(t *testing.T) {
	alone := launched(schedule.Solve(shop(), schedule.Budget{}))
	sized := func(name corev1.ResourceName, quantity string) func(*corev1.Pod) {
		return Requests(string(name), quantity)
	}
	for _, quantity := range hugeQuantities {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if name != corev1.ResourceCPU && (quantity == "10P" || quantity == "18446744073709552") {
				continue // an int64 holds so many bytes
			}
			t.Run(quantity+" of "+string(name), func(t *testing.T) {
				p := schedule.Solve(shop(Pod("hostile", sized(name, quantity))), schedule.Budget{})
				if got := launched(p); got != alone {
					t.Errorf("launched\n%swant\n%s", got, alone)
				}
				if len(p.Rejected) != 1 || p.Rejected[0].Pod.Name != "hostile" {
					t.Fatalf("rejected %v", p.Rejected)
				}
				want := "no instance type is that large"
				if name == corev1.ResourceEphemeralStorage {
					want = "which no instance type has" // of this catalog
				}
				if why := p.Rejected[0].Reasons[0]; why.Code != schedule.Resources || !strings.Contains(wording.Reason(why), want) {
					t.Errorf("reason %v, want %q", why, want)
				}
			})
		}
	}
}

// Each amount fits into an int64; their sum does not.
func TestSumsOfContainerRequestsDoNotWrapAround(t *testing.T) {
	most := Resources("cpu", "9223372036854775", "memory", "9223372036854775807", "example.com/widget", "9223372036854775807")
	always := corev1.ContainerRestartPolicyAlways
	alone := launched(schedule.Solve(shop(), schedule.Budget{}))
	for name, edit := range map[string]func(*corev1.PodSpec){
		"containers": func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "more", Resources: corev1.ResourceRequirements{Requests: most}})
		},
		"a sidecar": func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "more", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: most}}}
		},
		"overhead":  func(s *corev1.PodSpec) { s.Overhead = most },
		"the whole": func(s *corev1.PodSpec) { s.Resources, s.Overhead = &corev1.ResourceRequirements{Requests: most}, most },
	} {
		t.Run(name, func(t *testing.T) {
			hostile := Pod("hostile")
			hostile.Spec.Containers[0].Resources.Requests = most
			edit(&hostile.Spec)
			p := schedule.Solve(shop(hostile), schedule.Budget{})
			if got := launched(p); got != alone || len(p.Rejected) != 1 {
				t.Errorf("launched\n%s and rejected %v, want\n%s", got, p.Rejected, alone)
			}
		})
	}
}

func TestOversizedDaemonSetLeavesNoRoom(t *testing.T) {
	s := shop()
	for i := range 3 {
		s.DaemonSets = append(
			s.DaemonSets,
			snapshot.DaemonSet{
				Namespace: "default",
				Name:      fmt.Sprint(i),
				Pod:       Pod(fmt.Sprint(i), Requests("cpu", "9223372036854775", "memory", "8Ei")),
			},
		)
	}
	if p := schedule.Solve(s, schedule.Budget{}); len(p.Launches) != 0 || len(p.Rejected) != 12 {
		t.Errorf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
	}
}

// A user may have set such a pod's nodeName.
func TestOversizedBoundPodLeavesNoRoom(t *testing.T) {
	for most := range 5 {
		s := shop()
		n := Node("n1", "general")
		for i := range most + 1 {
			n.Pods = append(
				n.Pods,
				Bound(Pod(fmt.Sprint("hostile-", i), Requests("cpu", "9223372036854775", "memory", "9223372036854775807")), "n1"),
			)
		}
		s.Nodes = append(s.Nodes, n)
		if p := schedule.Solve(s, schedule.Budget{}); len(p.Placements) != 0 || len(p.Rejected) != 0 {
			t.Errorf("beside %d hostile pods: placed %d, rejected %v", most+1, len(p.Placements), p.Rejected)
		}
	}
}

func TestLimitBeyondInt64IsNoLimit(t *testing.T) {
	for _, quantity := range hugeQuantities {
		s := shop()
		s.Pools[0].NodePool.Spec.Limits = Resources("cpu", quantity, "memory", "1e30")
		s.Pools[0].Used = Resources("cpu", "100", "memory", "1Ti")
		if p := schedule.Solve(s, schedule.Budget{}); len(p.Rejected) != 0 {
			t.Errorf("under a limit of %s cpu: %v", quantity, p.Rejected[0].Reasons)
		}
	}
}

// 1.5Gi is stored in a form that Quantity.Mul writes to.
func TestLaunchRequestsTheSumOfItsPods(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types())})
	s.Pods = Pods(30, "web", Requests("cpu", "0.7", "memory", "1.5Gi"))
	p := schedule.Solve(s, schedule.Budget{})
	for i := range p.Launches {
		l := &p.Launches[i]
		if q, want := l.Requests[corev1.ResourceMemory], int64(len(l.Pods))*3<<29; q.Value() != want {
			t.Errorf("launch %d requests %s of memory for %d pods of 1.5Gi", i, q.String(), len(l.Pods))
		}
	}
	if q := s.Pods[0].Spec.Containers[0].Resources.Requests[corev1.ResourceMemory]; q.Cmp(resource.MustParse("1.5Gi")) != 0 {
		t.Errorf("planning has made 1.5Gi %s", q.String())
	}
}

// claimLike validates, as the API server does, the claim that a launch becomes.
func claimLike(t *testing.T, s *snapshot.Snapshot, l *schedule.Launch) {
	t.Helper()
	for _, r := range l.ClaimRequirements() {
		for _, v := range r.Values {
			n, err := strconv.Atoi(v)
			switch r.Operator {
			case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
				if why := validation.IsValidLabelValue(v); len(why) > 0 {
					t.Errorf("the claim says %v: %v", r, why)
				}
			default:
				if err != nil || n < 0 {
					t.Errorf("the claim says %v", r)
				}
			}
		}
	}
	for k, v := range l.ClaimLabels(s.Labels) {
		if why := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(why) > 0 {
			t.Errorf("the claim has label %q=%q: %v", k, v, why)
		}
	}
}

func TestInvalidPreferenceIsIgnoredAndReported(t *testing.T) {
	const in, gt = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpGt
	for name, expr := range map[string]corev1.NodeSelectorRequirement{
		"a value with a space": Expr("example.com/team", in, "team a"),
		"a negative bound":     Expr("example.com/team", gt, "-5"),
		"and of a type's":      Expr(corev1.LabelInstanceTypeStable, in, "m small"),
	} {
		t.Run(name, func(t *testing.T) {
			s := shop(Pod("hostile", Requests("cpu", "100m"), Prefers(1, expr)))
			Require("example.com/team", corev1.NodeSelectorOpExists)(s.Pools[0].NodePool)
			p := schedule.Solve(s, schedule.Budget{})
			if len(p.Rejected) != 0 {
				t.Errorf("rejected %v", p.Rejected)
			}
			for i := range p.Launches {
				claimLike(t, s, &p.Launches[i])
			}
			if len(p.Ignored) != 1 || p.Ignored[0].Pod.Name != "hostile" ||
				!strings.Contains(p.Ignored[0].Why[0], strconv.Quote(expr.Values[0])) {
				t.Errorf("ignored %v", p.Ignored)
			}
		})
	}
}

func TestInvalidRequirementIsReportedAndDoesNotDelayOthers(t *testing.T) {
	const in, gt = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpGt
	team := Require("example.com/team", corev1.NodeSelectorOpExists)
	s := shop()
	team(s.Pools[0].NodePool)
	alone := launched(schedule.Solve(s, schedule.Budget{}))
	for want, edit := range map[string]func(*corev1.Pod){
		`required node affinity term 0: label "example.com/team": no node can have the value "team a"`: Needs(Expr("example.com/team", in,
			"team a")),
		`required node affinity term 0: label "example.com/team": no node can have the value "-5"`: Needs(Expr("example.com/team", gt, "-5")),
		`nodeSelector: label "example.com/team": no node can have the value "team a"`:              Selects("example.com/team", "team a"),
	} {
		t.Run(want, func(t *testing.T) {
			s := shop(Pod("hostile", Requests("cpu", "100m"), edit))
			team(s.Pools[0].NodePool)
			p := schedule.Solve(s, schedule.Budget{})
			if got := launched(p); got != alone {
				t.Errorf("launched\n%swant\n%s", got, alone)
			}
			if len(p.Rejected) != 1 || p.Rejected[0].Reasons[0].Code != schedule.InvalidPod ||
				!strings.Contains(wording.Reason(p.Rejected[0].Reasons[0]), want) {
				t.Errorf("rejected %v", p.Rejected)
			}
		})
	}
}

// Each node would come up without the label that the pod requires, and the next plan would launch another.
func TestNoLaunchForBoundsThatExcludeEveryInteger(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types(), Require("example.com/size", corev1.NodeSelectorOpExists))},
		Pod("hostile", Requests("cpu", "100m"), Needs(Expr("example.com/size", corev1.NodeSelectorOpGt, "5"),
			Expr("example.com/size", corev1.NodeSelectorOpLt, "8"), Expr("example.com/size", corev1.NodeSelectorOpNotIn, "6", "7"))))
	if p := schedule.Solve(s, schedule.Budget{}); len(p.Launches) != 0 || len(p.Rejected) != 1 {
		t.Errorf("%d launches, rejected %v", len(p.Launches), p.Rejected)
	}
}

// The only pod that declares anti-affinity is unschedulable itself.
func TestUnschedulablePodKeepsNoPodAway(t *testing.T) {
	everybody := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			Apart(key, "")(p)
			p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = &metav1.LabelSelector{}
			p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{}
		}
	}
	alone := launched(schedule.Solve(shop(), schedule.Budget{}))
	for _, key := range []string{corev1.LabelWindowsBuild, corev1.LabelTopologyRegion, Zone, Host, "example.com/none"} {
		for name, edit := range map[string]func(*corev1.Pod){"too large": Requests("cpu", "10P"), "invalid": Selects("team", "team a"), "without its volume": Claims("gone")} {
			s := shop(Pod("hostile", everybody(key), edit))
			p := schedule.Solve(s, schedule.Budget{})
			if got := launched(p); got != alone || len(p.Rejected) != 1 {
				t.Errorf("%s, away from everybody over %s: rejected %v, launched\n%swant\n%s", name, key, p.Rejected, got, alone)
			}
		}
	}
}

func TestNewResourceNameDoesNotCloseNodes(t *testing.T) {
	n := Node("n1", "general")
	n.Pods = append(n.Pods, Bound(Pod("older", Requests("cpu", "1m", "example.com/widget", "3")), "n1")) // the node has none left
	s := World([]snapshot.Pool{Pool("general", Types())}, Pod("web", Requests("cpu", "100m")))
	s.Nodes = append(s.Nodes, n)
	for range 2 {
		p := schedule.Solve(s, schedule.Budget{})
		if len(p.Placements) != 1 || p.Placements[0].Pods[0].Name != "web" {
			t.Errorf("with %d pods: placed %v, launched\n%s", len(s.Pods), p.Placements, launched(p))
		}
		s.Pods = append(s.Pods, Pod("hostile", Requests("example.com/widget", "1")))
	}
}

// The selector of all pods and that of none are different, though both print as the empty string.
func TestEmptyAndNilSelectorsDiffer(t *testing.T) {
	s := World(
		[]snapshot.Pool{Pool("general", Types())},
		Pod("a", Requests("cpu", "100m"), Labeled("app", "a"), Near(Zone, "a"), PreferNear(1, Zone, "a")),
	)
	a := s.Pods[0].Spec.Affinity.PodAffinity
	a.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = nil
	a.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector = &metav1.LabelSelector{}
	if p := schedule.Solve(s, schedule.Budget{}); len(p.Rejected) != 1 {
		t.Errorf("a pod with affinity to no pods is scheduled:\n%s", launched(p))
	}
}

// Each resource would be one more number for every instance type and node.
func TestPodsWithThousandsOfResourcesDoNotDelayOthers(t *testing.T) {
	alone := launched(schedule.Solve(shop(), schedule.Budget{}))
	var hostile []*corev1.Pod
	for i := range 20 {
		p := Pod(fmt.Sprint("hostile-", i), Requests("cpu", "100m"))
		for j := range 1000 {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprintf("example.com/r%d-%d", i, j))] = resource.MustParse("1")
		}
		hostile = append(hostile, p)
	}
	p := schedule.Solve(shop(hostile...), schedule.Budget{})
	if got := launched(p); got != alone {
		t.Errorf("launched\n%swant\n%s", got, alone)
	}
	if len(p.Rejected) != len(hostile) {
		t.Fatalf("%d rejected", len(p.Rejected))
	}
	const event = 1024 // characters that one holds
	const want = "the pod needs 1 example.com/r0-0, which neither a node nor an instance type has"
	if why := p.Rejected[0].Reasons[0]; why.Code != schedule.Resources || !strings.Contains(wording.Reason(why), want) ||
		len(wording.Reason(why)) > event {
		t.Errorf("reason %.300s (%d characters)", wording.Reason(why), len(wording.Reason(why)))
	}
}

// A resource that is requested with zero does not constrain a pod, however many there are.
func TestZeroRequestsOfThousandsOfResourcesAreIgnored(t *testing.T) {
	p := Pod("plain", Requests("cpu", "100m"))
	for j := range 1000 {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprint("example.com/r", j))] = resource.MustParse("0")
	}
	if plan := schedule.Solve(shop(p), schedule.Budget{}); len(plan.Rejected) != 0 {
		t.Errorf("rejected %v", plan.Rejected)
	}
}

func TestSoftSpreadsBeyondTheBoundAreDropped(t *testing.T) {
	var many []*corev1.Pod
	for i := range 20 {
		p := Pod(fmt.Sprint("soft-", i), Requests("cpu", "100m"), Labeled("app", fmt.Sprint(i)))
		for j := range 100 {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
				MaxSkew: 1, TopologyKey: fmt.Sprint("k", j), WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: App(fmt.Sprint(i)),
			})
		}
		many = append(many, p)
	}
	if plan := schedule.Solve(shop(many...), schedule.Budget{}); len(plan.Rejected) != 0 {
		t.Errorf("%d rejected, the first with %v", len(plan.Rejected), plan.Rejected[0].Reasons)
	}
}

// Each launch and its NodeClaim would have a copy of their names.
func TestZeroDaemonRequestsAreNotInLaunches(t *testing.T) {
	d := Pod("d", Requests("cpu", "100m"))
	for j := range 1000 {
		d.Spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprint("example.com/r", j))] = resource.MustParse("0")
	}
	s := shop()
	s.DaemonSets = append(s.DaemonSets, snapshot.DaemonSet{Namespace: "default", Name: "d", Pod: d})
	p := schedule.Solve(s, schedule.Budget{})
	if len(p.Launches) == 0 || len(p.Launches[0].Requests) > 10 {
		t.Errorf("%d launches, the first requests %d resources", len(p.Launches), len(p.Launches[0].Requests))
	}
}
