package consolidate_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A pod that requests one CPU runs alone on a node with eight. Find replaces the node by a smaller one.
func ExampleFind() {
	types := []*catalog.InstanceType{
		Type("m.medium", 0.10, "cpu", "2", "memory", "8Gi"),
		Type("m.xlarge", 0.40, "cpu", "8", "memory", "32Gi"),
	}
	s := World([]snapshot.Pool{Pool("general", types, Require(Capacity, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand))})
	s.Nodes = []snapshot.Node{Node("node-1", "general", func(n *snapshot.Node) {
		n.Labels[corev1.LabelInstanceTypeStable] = "m.xlarge"
		n.Pods = []*corev1.Pod{Bound(Pod("web", Requests("cpu", "1")), n.Name)}
	})}

	view := disrupt.NewView(s)
	budgets := disrupt.Allowances(s, karpv1.DisruptionUnderutilized)
	totals := consolidate.PoolTotals(s, view.Candidates, nil)
	found := consolidate.Find(
		consolidate.Input{Problem: consolidate.Compile(s), Snapshot: s, Candidates: view.Candidates, Budgets: budgets, Totals: totals},
		consolidate.Settings{},
	)
	for i := range found.Commands {
		for _, line := range consolidate.Explain(&found.Commands[i]) {
			fmt.Println(line)
		}
	}
	// Output:
	// terminate node-1 (saves $0.3000/h)
	// launch m.medium or one of 0 other types at $0.1000/h for default/web
}
