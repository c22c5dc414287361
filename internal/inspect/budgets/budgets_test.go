package budgets_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/inspect/budgets"
)

// Monday, in the night.
var now = time.Date(2026, 11, 23, 3, 12, 30, 0, time.UTC)

func window(nodes, schedule string, d time.Duration, reasons ...karpv1.DisruptionReason) karpv1.Budget {
	return karpv1.Budget{Nodes: nodes, Schedule: &schedule, Duration: &metav1.Duration{Duration: d}, Reasons: reasons}
}

func pool(list ...karpv1.Budget) *karpv1.NodePool {
	p := &karpv1.NodePool{}
	p.Spec.Disruption.Budgets = list
	return p
}

func TestText(t *testing.T) {
	tenth := karpv1.Budget{Nodes: "10%"}
	for _, c := range []struct {
		name string
		pool *karpv1.NodePool
		want []string
	}{
		{"defaults", pool(), []string{"3 nodes (10% of 27) at all times"}},
		{"no bound", pool([]karpv1.Budget{}...), []string{"any number of nodes at all times"}},
		{"night", pool(tenth, window("0", "0 22 * * *", 8*time.Hour)), []string{"22:00-06:00 UTC 0 nodes, otherwise 3 nodes (10% of 27)"}},
		{"weekend", pool(tenth, window("5", "@weekly", time.Hour)), []string{"3 nodes (10% of 27) at all times"}},
		{
			"by reason", pool(tenth, window("0", "0 9 * * 1-5", 8*time.Hour, karpv1.DisruptionDrifted)),
			[]string{"3 nodes (10% of 27) at all times", "09:00-17:00 UTC 0 nodes, otherwise 3 nodes (10% of 27)"},
		},
		{
			"overlap", pool(karpv1.Budget{Nodes: "4"}, window("2", "0 10 * * *", 4*time.Hour), window("1", "0 12 * * *", time.Hour)),
			[]string{"10:00-12:00 UTC 2 nodes, 12:00-13:00 UTC 1 node, 13:00-14:00 UTC 2 nodes, otherwise 4 nodes"},
		},
		{"every minute", pool(tenth, window("1", "* * * * *", time.Minute)), []string{"1 node at all times"}},
	} {
		if c.name == "defaults" {
			c.pool.Spec.Disruption.Budgets = nil
		}
		if c.name == "no bound" {
			c.pool.Spec.Disruption.Budgets = []karpv1.Budget{}
		}
		got, err := budgets.Schedules(c.pool, 27, now)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%s: %v, %+v", c.name, err, got)
			continue
		}
		for i, want := range c.want {
			if got[i].Text != want {
				t.Errorf("%s: %q, want %q", c.name, got[i].Text, want)
			}
		}
	}
}

// At every minute of the day the spans state what the engine states.
func TestSpansAgreeWithTheEngine(t *testing.T) {
	p := pool(
		karpv1.Budget{Nodes: "20%"}, window("0", "*/7 8-17 * * 1-5", 3*time.Minute), window("1", "30 21 * * *", 9*time.Hour),
		window("2", "@daily", time.Hour, karpv1.DisruptionEmpty), window("50%", "0 0 1 1 *", 24*time.Hour),
	)
	all, err := budgets.Schedules(p, 11, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, schedule := range all {
		for _, reason := range schedule.Reasons {
			for m := range 24 * 60 {
				at := now.Add(time.Duration(m) * time.Minute)
				want, err := disrupt.Allowed(p, 11, reason, at)
				if err != nil {
					t.Fatal(err)
				}
				found := 0
				for _, s := range schedule.Spans {
					if !at.Before(s.From) && at.Before(s.To) {
						found++
						if s.Allowed != want {
							t.Fatalf("%s at %v: %d, the engine allows %d", reason, at, s.Allowed, want)
						}
					}
				}
				if found != 1 {
					t.Fatalf("%s at %v: in %d spans", reason, at, found)
				}
			}
		}
	}
}

func TestOpens(t *testing.T) {
	s := budgets.For(pool(karpv1.Budget{Nodes: "2"}, window("0", "0 22 * * *", 8*time.Hour)), 10, karpv1.DisruptionEmpty, now)
	if at, ok := s.Opens(0, now); !ok || at.Hour() != 6 {
		t.Errorf("opens at %v, %v", at, ok)
	}
	if at, ok := s.Opens(2, now); ok {
		t.Errorf("opens at %v for a third node", at)
	}
}

func TestInvalid(t *testing.T) {
	bad := pool(karpv1.Budget{Nodes: "many"})
	if _, err := budgets.Schedules(bad, 1, now); err == nil {
		t.Error("no error")
	}
	if budgets.For(bad, 1, karpv1.DisruptionEmpty, now) != nil {
		t.Error("a schedule of an invalid budget")
	}
}
