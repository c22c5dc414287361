package propertytest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/catalogfile"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/decisiontext"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// benchmarks are the workloads of docs/performance.md. They have its seed, pool and catalog.
var benchmarks = []workload.Benchmark{
	{Kind: "diverse", Pods: 1000},
	{Kind: "diverse", Pods: 5000},
	{Kind: "diverse", Pods: 20000},
	{Kind: "replicas", Pods: 5000},
	{Kind: "batch", Pods: 5000},
	{Kind: "prefs", Pods: 4000},
	{Kind: "volumes", Pods: 5000},
}

// largeBenchmarks are the others. They take 25 s of CPU time, so that only DOVETAIL_LARGE_PLANS=1 and -update plan them.
var largeBenchmarks = []workload.Benchmark{
	{Kind: "diverse", Pods: 50000}, {Kind: "diverse", Pods: 100000}, {Kind: "diverse", Pods: 200000},
}

// writeBenchmark writes the plan for a workload.
func writeBenchmark(t *testing.T, w io.Writer, b workload.Benchmark, types []*catalog.InstanceType) {
	b.Pool, b.Seed = "general", 7
	list, err := b.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	var pools []snapshot.Pool
	for _, item := range list.Items {
		if pod, is := item.(*corev1.Pod); is {
			pods = append(pods, pod)
			continue
		}
		data, err := json.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, enginetest.Pool("default", types, func(np *karpv1.NodePool) {
			if err := json.Unmarshal(data, np); err != nil {
				t.Fatal(err)
			}
		}))
	}
	p := schedule.Solve(workload.Snapshot(pools, pods, false), schedule.Budget{})
	decisiontext.Plan(w, &p)
}

// linearTypes is the catalog of docs/performance.md.
func linearTypes(t *testing.T) []*catalog.InstanceType {
	t.Helper()
	data, err := json.Marshal(workload.LinearCatalog(400))
	if err != nil {
		t.Fatal(err)
	}
	types, err := catalogfile.Decode(data, requirement.CoreLabels())
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// compareBenchmarks compares the plans for workloads with those of a file.
func compareBenchmarks(t *testing.T, file string, list []workload.Benchmark) {
	t.Helper()
	types := linearTypes(t)
	lines := make([]string, 0, len(list))
	for _, b := range list {
		lines = append(lines, digestLine(t, fmt.Sprintf("%s-%d", b.Kind, b.Pods), func(w io.Writer) { writeBenchmark(t, w, b, types) }))
	}
	compareDigests(t, file, lines)
}

// The workloads of docs/performance.md get the plans that they got.
func TestDecisionsOfBenchmarks(t *testing.T) {
	compareBenchmarks(t, "decisions-benchmarks.txt", benchmarks)
}

// So do the large ones, with DOVETAIL_LARGE_PLANS=1.
func TestDecisionsOfLargeBenchmarks(t *testing.T) {
	if os.Getenv("DOVETAIL_LARGE_PLANS") == "" && !*update {
		t.Log("DOVETAIL_LARGE_PLANS=1 compares them")
		return
	}
	compareBenchmarks(t, "decisions-large.txt", largeBenchmarks)
}

// fleet is a fragmented cluster, and how many nodes consolidation may disrupt at a time.
type fleet struct {
	nodes         int
	budget        string
	capacityTypes []string
}

// decide writes what consolidation finds in the fleet.
func (f fleet) decide(t *testing.T, w io.Writer) {
	types, err := workload.EC2Types("us-east-1", f.capacityTypes...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := workload.RunningCluster(f.nodes, 0.35, 1, types)
	if err != nil {
		t.Fatal(err)
	}
	s.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: f.budget}}
	v := disrupt.NewView(s)
	found := consolidate.Find(consolidate.Input{
		Problem: consolidate.Compile(s), Snapshot: s, Candidates: v.Candidates,
		Budgets: disrupt.Allowances(s, karpv1.DisruptionUnderutilized), Totals: consolidate.PoolTotals(s, v.Candidates, nil),
	}, consolidate.Settings{SpotToSpot: true})
	if len(found.Commands) == 0 {
		t.Errorf("no command for %d nodes proves nothing", f.nodes)
	}
	writeFound(w, &found)
}

// Consolidation decides for fleets of EC2's instance types what it decided.
func TestDecisionsOfFleets(t *testing.T) {
	var lines []string
	for name, f := range map[string]fleet{
		"fleet-200":         {200, "100%", []string{karpv1.CapacityTypeOnDemand}},
		"fleet-2000":        {2000, "100%", []string{karpv1.CapacityTypeOnDemand}},
		"fleet-200-spot-5%": {200, "5%", []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot}},
	} {
		lines = append(lines, digestLine(t, name, func(w io.Writer) { f.decide(t, w) }))
	}
	slices.Sort(lines)
	compareDigests(t, "decisions-fleets.txt", lines)
}
