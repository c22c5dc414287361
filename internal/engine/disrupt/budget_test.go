package disrupt

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// sunday is a Sunday, 00:00 UTC.
var sunday = time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC)

func scheduled(nodes, schedule string, lasts time.Duration, reasons ...karpv1.DisruptionReason) karpv1.Budget {
	return karpv1.Budget{Nodes: nodes, Schedule: &schedule, Duration: &metav1.Duration{Duration: lasts}, Reasons: reasons}
}

func always(nodes string, reasons ...karpv1.DisruptionReason) karpv1.Budget {
	return karpv1.Budget{Nodes: nodes, Reasons: reasons}
}

func TestAllowed(t *testing.T) {
	const empty, drifted, underutilized = karpv1.DisruptionEmpty, karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized
	mixed := []karpv1.Budget{
		always("10%"),
		always("100"),
		always("100%"),
		always("15", drifted, underutilized),
		always("5", drifted),
		always("4", empty),
	}
	tests := []struct {
		name    string
		budgets []karpv1.Budget
		nodes   int
		reason  karpv1.DisruptionReason
		now     time.Time
		want    int
		fails   bool
	}{
		{"not given: a tenth, rounded up", nil, 11, empty, sunday, 2, false},
		{"an empty list is no bound", []karpv1.Budget{}, 10, empty, sunday, Unlimited, false},
		{"a date that never comes", []karpv1.Budget{scheduled("0", "0 0 30 2 *", time.Hour)}, 10, empty, sunday, Unlimited, false},
		{"no intervals", []karpv1.Budget{scheduled("5", "@every 1h", time.Hour)}, 10, empty, sunday, 0, true},
		{"no zones but UTC", []karpv1.Budget{scheduled("5", "CRON_TZ=Asia/Tokyo 0 0 * * *", time.Hour)}, 10, empty, sunday, 0, true},
		{"10 % of 1 is 1", []karpv1.Budget{always("10%")}, 1, empty, sunday, 1, false},
		{"20 % of 19 is 4", []karpv1.Budget{always("20%")}, 19, empty, sunday, 4, false},
		{"30 % of 10 is 3", []karpv1.Budget{always("30%")}, 10, empty, sunday, 3, false},
		{"0 % is 0", []karpv1.Budget{always("0%")}, 10, empty, sunday, 0, false},
		{"of several budgets the least counts: empty", mixed, 100, empty, sunday, 4, false},
		{"of several budgets the least counts: drifted", mixed, 100, drifted, sunday, 5, false},
		{"of several budgets the least counts: underutilized", mixed, 100, underutilized, sunday, 10, false},
		{
			"an explicitly empty list of reasons matches nothing",
			[]karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{}}},
			10,
			empty,
			sunday,
			Unlimited,
			false,
		},
		{"all schedules inactive", []karpv1.Budget{scheduled("0", "0 12 * * *", time.Hour)}, 10, empty, sunday, Unlimited, false},
		{
			"a window longer than its period is always open",
			[]karpv1.Budget{scheduled("1", "@daily", 48*time.Hour)},
			10,
			empty,
			sunday.Add(17 * time.Hour),
			1,
			false,
		},
		{"before the hit", []karpv1.Budget{scheduled("0", "30 6 * * SUN", 6*time.Hour)}, 10, empty, sunday, Unlimited, false},
		{
			"at the hit",
			[]karpv1.Budget{scheduled("0", "30 6 * * SUN", 6*time.Hour)},
			10,
			empty,
			sunday.Add(6*time.Hour + 30*time.Minute),
			0,
			false,
		},
		{
			"just before the end",
			[]karpv1.Budget{scheduled("0", "30 6 * * SUN", 6*time.Hour)},
			10,
			empty,
			sunday.Add(12*time.Hour + 29*time.Minute),
			0,
			false,
		},
		{
			"at the end",
			[]karpv1.Budget{scheduled("0", "30 6 * * SUN", 6*time.Hour)},
			10,
			empty,
			sunday.Add(12*time.Hour + 30*time.Minute),
			Unlimited,
			false,
		},
		{
			"a clock in another zone",
			[]karpv1.Budget{scheduled("0", "0 1 * * *", time.Hour)},
			10, empty,
			sunday.Add(90 * time.Minute).In(time.FixedZone("east", 5*3600)), 0, false,
		},
		{"an invalid schedule", []karpv1.Budget{scheduled("5", "0 0 * * tue-mon", time.Hour)}, 10, empty, sunday, 0, true},
		{"an unknown macro", []karpv1.Budget{scheduled("5", "@wrongly", time.Hour)}, 10, empty, sunday, 0, true},
		{"an invalid number", []karpv1.Budget{always("1000a%")}, 10, empty, sunday, 0, true},
		{
			"a broken budget for another reason counts all the same",
			[]karpv1.Budget{always("7"), always("x", drifted)},
			10,
			empty,
			sunday,
			0,
			true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool := &karpv1.NodePool{}
			pool.Spec.Disruption.Budgets = tt.budgets
			got, err := Allowed(pool, tt.nodes, tt.reason, tt.now)
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("allowed %d, error %v; want %d, error %v", got, err, tt.want, tt.fails)
			}
		})
	}
}

func TestAllowances(t *testing.T) {
	node := func(change func(n *snapshot.Node)) snapshot.Node {
		n := snapshot.Node{Pool: "p", Claim: "c", Launched: true, Registered: true, Initialized: true, Ready: true}
		change(&n)
		return n
	}
	ready := func(*snapshot.Node) {}
	notReady := func(n *snapshot.Node) { n.Ready = false }
	deleting := func(n *snapshot.Node) { n.Deleting = true }
	many := func(n int, change func(*snapshot.Node)) (out []snapshot.Node) {
		for i := range n {
			v := node(change)
			v.Name = fmt.Sprint(i)
			out = append(out, v)
		}
		return out
	}
	tests := []struct {
		name      string
		nodes     []snapshot.Node
		budget    string
		available int
		repair    int
	}{
		{"100 %, two of ten not ready", append(many(8, ready), many(2, notReady)...), "100%", 8, 10},
		{"10 %, all deleting: never negative", many(10, deleting), "10%", 0, 0},
		// Case 11 of Karpenter 1.15.
		{"10 nodes, all NotReady, budget 10 %", many(10, notReady), "10%", 0, 1},
		{
			"uninitialized, unmanaged and terminating nodes are not in the total",
			append(many(10, ready),
				node(func(n *snapshot.Node) { n.Initialized = false }),
				node(func(n *snapshot.Node) { n.Claim = "" }),
				node(func(n *snapshot.Node) { n.Deleting, n.InstanceTerminating = true, true })),
			"10%", 1, 1,
		},
		{"30 % of ten", many(10, ready), "30%", 3, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			pool.Spec.Disruption.Budgets = []karpv1.Budget{always(tt.budget)}
			s := &snapshot.Snapshot{Now: sunday, Pools: []snapshot.Pool{{NodePool: pool}}, Nodes: tt.nodes}
			if got := Allowances(s, karpv1.DisruptionEmpty)[0].Available(); got != tt.available {
				t.Errorf("available %d, want %d", got, tt.available)
			}
			if got := Allowances(s, karpv1.DisruptionUnhealthy)[0].Available(); got != tt.repair {
				t.Errorf("available to repair %d, want %d", got, tt.repair)
			}
		})
	}
}
