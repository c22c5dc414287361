package assess

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// PodUse describes what the containers of a pod use together, as metrics-server measured it: cores and bytes.
type PodUse struct{ CPU, Memory float64 }

// maxWorkloads limits how many workloads are listed: as many as a team can look at.
const maxWorkloads = 10

// gibPerCore states what a core costs on EC2, in GiB of memory: m7i, c7i and r7i of one size differ only in memory and price, and
// a core costs as much as 9 GiB by their on-demand prices in us-east-1. It weighs what workloads leave unused.
const gibPerCore = 9

// UsageOf compares what the running pods of a view request with what they use. It leaves out pods without a measurement.
func UsageOf(view *inspect.View, used map[types.NamespacedName]PodUse) *Usage {
	out := &Usage{Workloads: []WorkloadUsage{}}
	at := map[string]*WorkloadUsage{}
	for i := range view.Snapshot.Nodes {
		for _, p := range view.Snapshot.Nodes[i].Pods {
			use, measured := used[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
			if !measured || snapshot.Terminal(p) {
				continue
			}
			requests := snapshot.Requests(p)
			cpu, memory := requests.Cpu().AsApproximateFloat64(), requests.Memory().AsApproximateFloat64()
			out.Pods++
			out.RequestedCPU, out.UsedCPU = out.RequestedCPU+cpu, out.UsedCPU+use.CPU
			out.RequestedMemory, out.UsedMemory = out.RequestedMemory+memory, out.UsedMemory+use.Memory
			name := workload(p)
			w := at[name]
			if w == nil {
				w = &WorkloadUsage{Workload: name}
				at[name] = w
			}
			w.Pods++
			w.RequestedCPU, w.UsedCPU = w.RequestedCPU+cpu, w.UsedCPU+use.CPU
			w.RequestedMemory, w.UsedMemory = w.RequestedMemory+memory, w.UsedMemory+use.Memory
		}
	}
	for _, w := range at {
		if w.unused() > 0 {
			out.Workloads = append(out.Workloads, *w)
		}
	}
	slices.SortFunc(out.Workloads, func(a, b WorkloadUsage) int {
		return cmp.Or(cmp.Compare(b.unused(), a.unused()), cmp.Compare(a.Workload, b.Workload))
	})
	out.Workloads = out.Workloads[:min(len(out.Workloads), maxWorkloads)]
	return out
}

// unused returns what a workload requests and does not use, in cores.
func (w *WorkloadUsage) unused() float64 {
	return max(0, w.RequestedCPU-w.UsedCPU) + max(0, w.RequestedMemory-w.UsedMemory)/(gibPerCore<<30)
}
