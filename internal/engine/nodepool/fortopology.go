package nodepool

import "github.com/dovetail-k8s/dovetail/internal/engine/topology"

// ForTopology returns what topology has to know of nodes of the pool.
func (t *Template) ForTopology() topology.Pool {
	return topology.Pool{Taints: t.Taints(), Labels: t}
}
