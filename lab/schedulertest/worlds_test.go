package schedulertest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/lab/schedulertest"
)

// worlds is how many worlds of each kind a test run generates. DOVETAIL_WORLDS=first,count generates others.
const worlds = 200

func worldRange(t *testing.T) (first, count uint64) {
	t.Helper()
	first, count = 0, worlds
	if v := os.Getenv("DOVETAIL_WORLDS"); v != "" {
		if _, err := fmt.Sscanf(v, "%d,%d", &first, &count); err != nil {
			t.Fatalf("DOVETAIL_WORLDS=%s: %v", v, err)
		}
	}
	return first, count
}

func seeded(seed uint64) func() byte {
	r := rand.New(rand.NewPCG(seed, 3))
	return func() byte { return byte(r.Uint32()) }
}

// disagreement is what kube-scheduler would not do of the world's plan; empty if nothing.
func disagreement(t *testing.T, s *snapshot.Snapshot, plan schedule.Plan, seed uint64) string {
	t.Helper()
	scheduler, err := schedulertest.ForWorld(s)
	if err != nil {
		t.Fatal(err)
	}
	defer scheduler.Stop()
	return propertytest.Disagreement(s, plan, scheduler.OfWorld, seeded(seed))
}

// TestKubeSchedulerAcceptsPlans carries plans out under kube-scheduler's own filters.
func TestKubeSchedulerAcceptsPlans(t *testing.T) {
	first, count := worldRange(t)
	placed, rejected, failed := 0, 0, 0
	for seed := first; seed < first+count; seed++ {
		s := propertytest.SchedulerWorld(seeded(3_000_000 + seed))
		plan := schedule.Solve(s, schedule.Budget{})
		placed, rejected = placed+len(s.Pods)-len(plan.Rejected), rejected+len(plan.Rejected)
		why := disagreement(t, s, plan, seed)
		if why == "" {
			continue
		}
		if failed++; failed > 3 {
			t.Errorf("world %d: %s", seed, why)
			continue
		}
		kind, _, _ := strings.Cut(why, ":")
		small := propertytest.Shrink(s, func(w *snapshot.Snapshot) bool {
			return len(w.Pools) > 0 && strings.HasPrefix(disagreement(t, w, schedule.Solve(w, schedule.Budget{}), seed), kind+":")
		})
		smallPlan := schedule.Solve(small, schedule.Budget{})
		t.Errorf("world %d: %s\nshrunk: %s\n%s%s", seed, why, disagreement(t, small, smallPlan, seed),
			propertytest.Show(small), propertytest.Describe(smallPlan))
	}
	t.Logf("%d pods placed, %d rejected, %d of %d worlds differ", placed, rejected, failed, count)
}
