package validate_test

import (
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// BenchmarkCheck checks plans for 5,000 pods on EC2's types.
func BenchmarkCheck(b *testing.B) {
	types, err := workload.EC2Types("us-east-1", karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
	if err != nil {
		b.Fatal(err)
	}
	pools := []snapshot.Pool{workload.GeneralPool("general", types)}
	for name, s := range map[string]*snapshot.Snapshot{
		"diverse-5000":  workload.Snapshot(pools, workload.Diverse(5000, 1), true),
		"replicas-5000": workload.Snapshot(pools, workload.Replicas(5000, 1), true),
	} {
		b.Run(name, func(b *testing.B) {
			p := schedule.Solve(s, schedule.Budget{})
			for b.Loop() {
				if err := validate.Plan(s, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
