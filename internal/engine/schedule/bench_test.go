package schedule_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

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

// catalogNamed is a catalog by the name that benchmarks report.
func catalogNamed(tb testing.TB, name string) []*catalog.InstanceType {
	tb.Helper()
	switch name {
	case "ec2-od", "ec2-spot":
		capacityTypes := []string{karpv1.CapacityTypeOnDemand}
		if name == "ec2-spot" {
			capacityTypes = append(capacityTypes, karpv1.CapacityTypeSpot)
		}
		list, err := workload.EC2Types("us-east-1", capacityTypes...)
		if err != nil {
			tb.Fatal(err)
		}
		return list
	}
	return workload.SyntheticTypes(400, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
}

// workloadSnapshot is a workload of n pods over a catalog.
func workloadSnapshot(kind string, n int, seed uint64, list []*catalog.InstanceType, daemons bool) *snapshot.Snapshot {
	s, err := workload.Named(workload.Spec{Kind: kind, Pods: n, Seed: seed, Types: list, Daemons: daemons})
	if err != nil {
		panic(err) // a test that names no workload
	}
	return s
}

// fullBaseline is the number of pods up to which the simple first-fit packer runs over a whole workload. Beyond it, it
// would take minutes. Ratios of larger plans are relative to this many pods of the same workload, per pod.
const fullBaseline = 5000

// BenchmarkSolve reports, besides time and allocations, what plans cost: $/h, that over the lower bound, and both cost and
// time over the plain first-fit baseline in the same run; of the largest, the peak of resident memory.
func BenchmarkSolve(b *testing.B) {
	for _, c := range []struct {
		kind, market string
		sizes        []int
	}{
		{"diverse", "synthetic-400", []int{1000, 5000, 20000, 50000, 100000}},
		{"diverse", "ec2-od", []int{5000}},
		{"replicas", "ec2-od", []int{5000, 30000, 100000}},
		{"replicas", "ec2-spot", []int{5000}},
		{"batch", "ec2-od", []int{5000, 30000, 100000}},
		{"batch", "ec2-spot", []int{5000}},
		{"prefs", "synthetic-400", []int{4000, 30000}},
		{"volumes", "ec2-od", []int{5000, 30000}},
		{"volumes", "ec2-spot", []int{5000}},
		{"multi-pool", "ec2-spot", []int{5000, 30000}},
	} {
		for _, n := range c.sizes {
			b.Run(fmt.Sprintf("%s-%d/%s", c.kind, n, c.market), func(b *testing.B) { solve(b, c.kind, c.market, n) })
		}
	}
}

func solve(b *testing.B, kind, name string, n int) {
	list := catalogNamed(b, name)
	s := workloadSnapshot(kind, n, 1, list, true)
	runtime.GC()
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
	if rss, ok := peakRSS(); ok && n >= 100000 {
		b.ReportMetric(rss, "peak-MiB")
	}
	comparable, ours, cost := s, perPlan, p.Stats.HourlyCost
	if n > fullBaseline {
		comparable = workloadSnapshot(kind, fullBaseline, 1, list, true)
		start := time.Now()
		cost = schedule.Solve(comparable, schedule.Budget{}).Stats.HourlyCost
		ours = time.Since(start).Seconds()
	}
	start := time.Now()
	theirs, _ := baseline(comparable, workload.ZonesOf(list))
	b.ReportMetric(cost/theirs, "cost/first-fit")
	b.ReportMetric(ours/time.Since(start).Seconds(), "time/first-fit")
}

// peakRSS is the peak resident memory of the process in MiB, if the system reports it.
func peakRSS() (mebi float64, known bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kibi, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kibi / 1024, err == nil
		}
	}
	return 0, false
}

// BenchmarkFirstLaunch is the time until the first claim of 30,000 pods can be created: until then the whole plan is
// computed.
func BenchmarkFirstLaunch(b *testing.B) {
	for _, c := range []struct{ kind, market string }{
		{"diverse", "synthetic-400"},
		{"replicas", "ec2-od"},
		{"batch", "ec2-spot"},
		{"prefs", "synthetic-400"},
		{"volumes", "ec2-spot"},
		{"multi-pool", "ec2-spot"},
	} {
		b.Run(fmt.Sprintf("%s-30000/%s", c.kind, c.market), func(b *testing.B) {
			s := workloadSnapshot(c.kind, 30000, 1, catalogNamed(b, c.market), true)
			for b.Loop() {
				if p := schedule.Solve(s, schedule.Budget{}); len(p.Launches) == 0 {
					b.Fatal("nothing to launch")
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s-to-first-launch")
		})
	}
}
