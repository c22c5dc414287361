package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

func nameIn(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// market is a catalog by the name under which benchmarks report it.
func market(tb testing.TB, name string) []*catalog.InstanceType {
	tb.Helper()
	switch name {
	case "ec2-od", "ec2-spot":
		capacityTypes := []string{karpv1.CapacityTypeOnDemand}
		if name == "ec2-spot" {
			capacityTypes = append(capacityTypes, karpv1.CapacityTypeSpot)
		}
		list, err := workload.EC2("us-east-1", capacityTypes...)
		if err != nil {
			tb.Fatal(err)
		}
		return list
	}
	return workload.Synthetic(400, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
}

// workloadWorld is a workload of n pods over a catalog.
func workloadWorld(kind string, n int, seed uint64, list []*catalog.InstanceType, daemons bool) *snapshot.Snapshot {
	pools := []snapshot.Pool{workload.General("general", list)}
	var pods []*corev1.Pod
	var volumes snapshot.Volumes
	switch kind {
	case "diverse":
		pods = workload.Diverse(n, seed)
	case "replicas":
		pods = workload.Replicas(n, seed)
	case "batch":
		pods = workload.Batch(n, seed)
	case "prefs":
		pods = workload.Prefs(n, seed)
	case "volumes":
		pods, volumes = workload.Volumes(n, seed, workload.ZonesOf(list))
	case "multi-pool":
		pools, pods = workload.MultiPool(n, seed, list)
	}
	s := workload.Cluster(pools, pods, daemons)
	s.Volumes = volumes
	return s
}

// BenchmarkSolve reports, besides time and allocations, what plans cost: $/h, that over the lower bound, and both cost
// and time over the first-fit baseline.
func BenchmarkSolve(b *testing.B) {
	for _, c := range []struct {
		kind, market string
		sizes        []int
	}{
		{"diverse", "synthetic-400", []int{1000, 20000}},
		{"diverse", "ec2-od", []int{5000}},
		{"replicas", "ec2-od", []int{5000}},
		{"replicas", "ec2-spot", []int{5000}},
		{"batch", "synthetic-400", []int{5000}},
		{"batch", "ec2-od", []int{5000}},
		{"batch", "ec2-spot", []int{5000}},
		{"prefs", "synthetic-400", []int{4000}},
		{"volumes", "ec2-od", []int{5000}},
		{"volumes", "ec2-spot", []int{5000}},
		{"multi-pool", "ec2-spot", []int{5000}},
	} {
		for _, n := range c.sizes {
			b.Run(fmt.Sprintf("%s-%d/%s", c.kind, n, c.market), func(b *testing.B) {
				list := market(b, c.market)
				s := workloadWorld(c.kind, n, 1, list, true)
				var p schedule.Plan
				b.ReportAllocs()
				for b.Loop() {
					p = schedule.Solve(s, schedule.Budget{})
				}
				perPlan := b.Elapsed().Seconds() / float64(b.N)
				b.ReportMetric(float64(n)/perPlan, "pods/s")
				b.ReportMetric(p.Stats.HourlyCost, "$/h")
				b.ReportMetric(p.Stats.HourlyCost/p.Stats.LowerBound, "cost/bound")
				b.ReportMetric(float64(len(p.Launches)), "nodes")
				b.ReportMetric(float64(len(p.Rejected)), "rejected")
				if n > 5000 {
					return
				}
				start := time.Now()
				cost, _ := baseline(s, workload.ZonesOf(slices.Clone(list)))
				b.ReportMetric(p.Stats.HourlyCost/cost, "cost/first-fit")
				b.ReportMetric(perPlan/time.Since(start).Seconds(), "time/first-fit")
			})
		}
	}
}
