package scale

import (
	"bytes"
	_ "embed"
	"fmt"
	"text/template"
)

//go:embed workload.yaml
var workloadText string

var workloadTemplate = template.Must(template.New("workload").Parse(workloadText))

// weights are the sizes of the pods on a node, which repeat.
func weights() []int { return []int{1, 2, 4} }

const (
	// daemons run on each node: the EBS CSI driver, and an agent.
	daemons = 2
	// nodeMilliCPU is what the Deployments get of a node with 16 CPUs. It leaves less than the smallest pod requests, so that there is
	// nothing to consolidate.
	nodeMilliCPU = 15600
	// kindsPerSlot is how many Deployments have a pod in a slot of some node.
	kindsPerSlot = 3
)

// Workload is a Deployment, as the template has it.
type Workload struct {
	Name     string
	MilliCPU int
	MiB      int
	// Spread, Apart: the pods spread over zones, or prefer to be on separate nodes.
	Spread, Apart bool
}

// workloads are the Deployments of which a node runs podsPerNode, without daemons. Workload i fits slot i modulo podsPerNode.
func workloads(podsPerNode int) []Workload {
	sum := 0
	for slot := range podsPerNode {
		sum += weights()[slot%len(weights())]
	}
	var out []Workload
	for i := range podsPerNode * kindsPerSlot {
		share := nodeMilliCPU * weights()[i%podsPerNode%len(weights())] / sum
		out = append(out, Workload{
			Name: fmt.Sprintf("app-%02d", i), MilliCPU: share, MiB: share, Spread: i%3 == 1, Apart: i%9 == 2,
		})
	}
	return out
}

// bursts are the Deployments with pods that become pending at once.
func bursts() []Workload {
	return []Workload{
		{Name: "burst-0", MilliCPU: 250, MiB: 512},
		{Name: "burst-1", MilliCPU: 500, MiB: 1024},
		{Name: "burst-2", MilliCPU: 1000, MiB: 2048, Spread: true},
		{Name: "burst-3", MilliCPU: 500, MiB: 2048},
		{Name: "burst-4", MilliCPU: 2000, MiB: 4096, Spread: true},
		{Name: "burst-5", MilliCPU: 750, MiB: 1024},
	}
}

// manifest is the YAML of Deployments with this many replicas.
func manifest(all []Workload, replicas int) ([]byte, error) {
	var out bytes.Buffer
	err := workloadTemplate.Execute(&out, struct {
		Workloads []Workload
		Replicas  int
	}{all, replicas})
	return out.Bytes(), err
}
