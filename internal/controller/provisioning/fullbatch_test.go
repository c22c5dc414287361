package provisioning

import (
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// 30,000 pods of which a full batch is planned first, and then the others, which arrive meanwhile, cost at most 1 % more than all at once,
// even if the others do not use the room that the first have left. The bound has a percent to spare, for other versions of the engine.
func TestCostOfFullBatch(t *testing.T) {
	list := workload.SyntheticTypes(400, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
	for _, kind := range []string{"diverse", "batch", "replicas"} {
		t.Run(kind, func(t *testing.T) {
			s, err := workload.Named(workload.Spec{Kind: kind, Pods: 30_000, Seed: 7, Types: list})
			if err != nil {
				t.Fatal(err)
			}
			whole := schedule.Solve(s, schedule.Budget{})
			first, others := *s, *s
			first.Pods, others.Pods = s.Pods[:fullBatch], s.Pods[fullBatch:]
			one, two := schedule.Solve(&first, schedule.Budget{}), schedule.Solve(&others, schedule.Budget{})
			sum, launched := one.Stats.HourlyCost+two.Stats.HourlyCost, launchedPods(one.Launches)+launchedPods(two.Launches)
			t.Logf("at once $%.2f/h, in two plans $%.2f/h", whole.Stats.HourlyCost, sum)
			if launched != launchedPods(whole.Launches) {
				t.Errorf("%d pods get a node, %d at once", launched, launchedPods(whole.Launches))
			}
			if sum > 1.02*whole.Stats.HourlyCost {
				t.Errorf("two plans cost $%.2f/h, all at once $%.2f/h: more than 2 %% apart", sum, whole.Stats.HourlyCost)
			}
		})
	}
}
