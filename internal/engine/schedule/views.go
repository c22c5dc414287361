package schedule

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// views are the topology constraints of a pod at this relaxation level. The caller must not modify them.
func (c *constraintClass) views(level *relaxationLevel) []topology.View {
	if level.views == nil {
		level.views = make([]topology.View, 0, len(level.groups)+len(c.blockedBy))
		for _, list := range [...][]*topology.Group{level.groups, c.blockedBy} {
			for _, g := range list {
				level.views = append(level.views, topology.NewView(g, c.pod, level.strict, &c.node))
			}
		}
	}
	return level.views
}

// sortedViews are the level's views by what steps look for. The caller must not modify them.
func (c *constraintClass) sortedViews(level *relaxationLevel) *topology.SortedViews {
	level.sorted.Fill(c.views(level))
	return &level.sorted
}

// forTopology is what topology has to know of nodes of the pool.
func forTopology(t *nodepool.Template) topology.Pool {
	return topology.Pool{Taints: t.Taints(), Labels: t}
}
