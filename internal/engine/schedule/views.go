package schedule

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// forTopology is what topology has to know of nodes of the pool.
func forTopology(t *nodepool.Template) topology.Pool {
	return topology.Pool{Taints: t.Taints(), Labels: t}
}
