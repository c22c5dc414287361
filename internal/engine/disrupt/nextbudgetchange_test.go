package disrupt

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Until the next change of a budget, all allow the same; in cron schedules, windows begin and end at full minutes here.
func TestBudgetsAllowTheSameUntilTheirNextChange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	changes := 0
	for range 300 {
		pool := &karpv1.NodePool{}
		for range 1 + random.IntN(3) {
			b := always(fmt.Sprint(random.IntN(9)))
			if random.IntN(4) > 0 {
				b = scheduled(b.Nodes, fmt.Sprintf("*/%d %d * * *", 5+random.IntN(40), random.IntN(3)), time.Duration(1+random.IntN(90))*time.Minute)
			}
			pool.Spec.Disruption.Budgets = append(pool.Spec.Disruption.Budgets, b)
		}
		now := sunday.Add(time.Duration(random.IntN(4*3600)) * time.Second)
		s := &snapshot.Snapshot{Now: now, Pools: []snapshot.Pool{{NodePool: pool}}}
		next := NextBudgetChange(s)
		want, _ := Allowed(pool, 100, karpv1.DisruptionEmpty, now)
		for at := now; at.Before(now.Add(2*time.Hour)) && (next.IsZero() || at.Before(next)); at = at.Truncate(time.Minute).Add(time.Minute) {
			if got, _ := Allowed(pool, 100, karpv1.DisruptionEmpty, at); got != want {
				t.Fatalf("at %v %d are allowed, at %v %d, and nothing changes before %v: %+v", now, want, at, got, next, pool.Spec.Disruption.Budgets)
			}
		}
		if got, _ := Allowed(pool, 100, karpv1.DisruptionEmpty, next); !next.IsZero() && got != want {
			changes++
		}
	}
	if changes < 50 {
		t.Errorf("%d changes at the instants found: that proves little", changes)
	}
}

func TestBudgetsWithoutWindowsNeverChange(t *testing.T) {
	for _, budgets := range [][]karpv1.Budget{
		nil, {always("10%")}, {scheduled("0", "@every 1h", time.Hour)}, {scheduled("0", "0 0 30 2 *", time.Hour)},
	} {
		pool := &karpv1.NodePool{}
		pool.Spec.Disruption.Budgets = budgets
		open, closed := []snapshot.Pool{{NodePool: pool}}, []*karpv1.NodePool{pool}
		for _, s := range []*snapshot.Snapshot{{Now: sunday, Pools: open}, {Now: sunday, Closed: closed}} {
			if at := NextBudgetChange(s); !at.IsZero() {
				t.Errorf("%+v change at %v", budgets, at)
			}
		}
	}
}
