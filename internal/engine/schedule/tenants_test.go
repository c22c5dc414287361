package schedule_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// topologyKeys are labels that pods can follow or avoid each other by.
func topologyKeys() []string {
	keys := []string{
		Zone, Host, Arch, Capacity, corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion, karpv1.LabelNodePool,
		"topology.k8s.aws/zone-id", "example.com/a", "example.com/b",
	}
	for _, name := range []string{"family", "size", "category", "cpu", "memory", "generation"} {
		keys = append(keys, "karpenter.k8s.aws/instance-"+name)
	}
	return keys
}

// tenantPods are the pods of tenants that the API server admits, and that take many steps: each is of another owner, and none has more
// than 32 terms of one sort.
func tenantPods() map[string]func(p *corev1.Pod, i int) {
	keys := topologyKeys()
	app := func(i int) string { return fmt.Sprint("h", i%125) }
	key := func(i int) string { return keys[i%len(keys)] }
	soft := func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	prefers := func(p *corev1.Pod, i, n int) {
		for j := range n {
			PreferNear(int32(1+j), key(j), app(i+j))(p)
			PreferApart(int32(1+j), key(j+3), app(i+2*j))(p)
		}
	}
	return map[string]func(p *corev1.Pod, i int){
		"preferred affinity, required anti-affinity": func(p *corev1.Pod, i int) {
			prefers(p, i, 16)
			for j := range 16 {
				Prefers(int32(1+j), Expr(key(j), corev1.NodeSelectorOpNotIn, "x"))(p)
				Apart(key(j), app(i+j+1))(p)
			}
		},
		"preferred affinity, required affinity to itself": func(p *corev1.Pod, i int) {
			prefers(p, i, 16)
			for j := range 16 {
				Near(key(j), app(i))(p)
			}
		},
		"preferred affinity, required affinity to each other": func(p *corev1.Pod, i int) {
			prefers(p, i, 16)
			for j := range 16 {
				Near(key(j), app(i+j+1))(p)
			}
		},
		"spread over many keys": func(p *corev1.Pod, i int) {
			for j := range 8 {
				Spread(key(j), 1, app(i))(p)
				Spread(key(15-j), 1, app(i), soft)(p)
			}
			prefers(p, i, 8)
		},
		"twice as many terms": func(p *corev1.Pod, i int) {
			prefers(p, i, 32)
			for j := range 32 {
				Prefers(int32(1+j), Expr(key(j), corev1.NodeSelectorOpNotIn, "x"))(p)
				Near(key(j), app(i+j+1))(p)
			}
		},
		"terms by expressions, over labels with hundreds of values": func(p *corev1.Pod, i int) {
			wide := []string{Zone, Host, Capacity, corev1.LabelInstanceTypeStable, Arch}
			selects := func(j int) *metav1.LabelSelector {
				in, not := metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn
				return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: in, Values: []string{app(i + j), app(i + 2*j)}},
					{Key: fmt.Sprint("l", j%9), Operator: not, Values: []string{fmt.Sprint("v", i%6), fmt.Sprint("v", j%7)}},
				}}
			}
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
			near, apart := p.Spec.Affinity.PodAffinity, p.Spec.Affinity.PodAntiAffinity
			for j := range 60 {
				term := corev1.PodAffinityTerm{LabelSelector: selects(j), TopologyKey: wide[(i+j)%len(wide)]}
				weighted := corev1.WeightedPodAffinityTerm{Weight: int32(1 + j), PodAffinityTerm: term}
				near.PreferredDuringSchedulingIgnoredDuringExecution = append(near.PreferredDuringSchedulingIgnoredDuringExecution, weighted)
				apart.PreferredDuringSchedulingIgnoredDuringExecution = append(apart.PreferredDuringSchedulingIgnoredDuringExecution, weighted)
				if j < 6 {
					near.RequiredDuringSchedulingIgnoredDuringExecution = append(near.RequiredDuringSchedulingIgnoredDuringExecution, term)
					apart.RequiredDuringSchedulingIgnoredDuringExecution = append(apart.RequiredDuringSchedulingIgnoredDuringExecution, term)
				}
			}
		},
		"long lists of values": func(p *corev1.Pod, i int) {
			var values []string
			for j := range 300 {
				values = append(values, fmt.Sprintf("v%d-%d", i, j))
			}
			for j := range 16 {
				Prefers(int32(1+j), Expr(key(j), corev1.NodeSelectorOpNotIn, values...))(p)
			}
		},
	}
}

// besideTenant are ordinary pods, and pods of a tenant.
func besideTenant(t *testing.T, ordinary []*corev1.Pod, hostile int, edit func(p *corev1.Pod, i int)) *snapshot.Snapshot {
	t.Helper()
	list, err := workload.EC2Types("us-east-1", karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
	if err != nil {
		t.Fatal(err)
	}
	pods := ordinary
	for i := range hostile {
		p := Pod(fmt.Sprint("hostile-", i), Labeled("app", fmt.Sprint("h", i)), Requests("cpu", "100m"))
		p.Namespace = "tenant"
		edit(p, i)
		pods = append(pods, p)
	}
	return workload.Snapshot([]snapshot.Pool{Pool("general", list)}, pods, true)
}

// A plan beside 125 pods of a tenant that request as much as they can takes at most so many steps, about a second. Without a bound on
// them all together, these were up to 467 million.
func TestPodsOfOneTenantTakeABoundedShareOfAPlan(t *testing.T) {
	const most = 40_000_000
	for name, edit := range tenantPods() {
		t.Run(name, func(t *testing.T) {
			p := schedule.Solve(besideTenant(t, workload.Diverse(10, 1), 125, edit), schedule.DefaultBudget())
			if p.Stats.Steps > most {
				t.Errorf("the plan takes %d steps, want at most %d", p.Stats.Steps, most)
			}
			for i := range p.Rejected {
				if r := &p.Rejected[i]; r.Pod.Namespace != "tenant" {
					t.Errorf("%s is left without a node: %v", r.Pod.Name, r.Reasons)
				}
			}
		})
	}
}

// Pods of another namespace with as many preferences keep them: the share of a namespace is its own.
func TestTenantsDoNotTakeStepsFromEachOther(t *testing.T) {
	list, err := workload.EC2Types("us-east-1", karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
	if err != nil {
		t.Fatal(err)
	}
	zones := workload.ZonesOf(list)
	picky := func(p *corev1.Pod) {
		p.Namespace = "other"
		for j := range 20 {
			PreferApart(int32(1+j), Zone, fmt.Sprint("nobody-", j))(p)
		}
		Prefers(100, Expr(Zone, corev1.NodeSelectorOpIn, zones[1]))(p)
	}
	pods := Pods(10, "picky", Requests("cpu", "500m"), picky)
	for name, edit := range tenantPods() {
		t.Run(name, func(t *testing.T) {
			p := schedule.Solve(besideTenant(t, slices.Clone(pods), 40, edit), schedule.DefaultBudget())
			placed := 0
			for i := range p.Launches {
				for _, pod := range p.Launches[i].Pods {
					if pod.Namespace != "other" {
						continue
					}
					placed++
					if zone := p.Launches[i].Requirements.Get(Zone); zone.Has(zones[0]) || !zone.Has(zones[1]) {
						t.Errorf("%s may come up in zone %s, and prefers %s", pod.Name, zones[0], zones[1])
					}
				}
			}
			if placed != len(pods) {
				t.Errorf("%d of %d pods get nodes", placed, len(pods))
			}
		})
	}
}

// The plan names the namespace with pods that took many steps and got no node.
func TestPlanNamesTheNamespaceOfPodsThatCostMuch(t *testing.T) {
	edit := tenantPods()["preferred affinity, required affinity to each other"]
	p := schedule.Solve(besideTenant(t, workload.Diverse(10, 1), 50, edit), schedule.DefaultBudget())
	if len(p.Costly) != 1 || p.Costly[0].Namespace != "tenant" || len(p.Costly[0].Pods) != 50 || p.Costly[0].Steps < 1_000_000 {
		t.Errorf("costly: %+v", p.Costly)
	}
	if p = schedule.Solve(besideTenant(t, workload.Diverse(10, 1), 0, nil), schedule.DefaultBudget()); len(p.Costly) > 0 {
		t.Errorf("ordinary pods are costly: %+v", p.Costly)
	}
}
