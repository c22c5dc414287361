package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
)

// requestedDomains are the domains, sorted, that nodes get because the group's pods require them: values of a label that
// no type has, of which a pool leaves the value open. kube-scheduler measures skew over the nodes that exist, so such a
// domain counts once a node is launched for it.
func (sv *solver) requestedDomains(g *group) []string {
	if g.filter == nil || !g.filter.affinity || sv.s.Labels.WellKnown[g.key] {
		return nil
	}
	var out []string
	for _, set := range append(slices.Clip(g.filter.node.Required), g.filter.node.Selector) {
		r := set.Get(g.key)
		if r.Operator() != corev1.NodeSelectorOpIn {
			continue
		}
		for _, d := range r.Values() {
			if reaches(g.filter.node, g.key, d) && !slices.Contains(g.universe, d) && sv.gives(g, d) {
				out = append(out, d)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// gives reports whether some pool gives a node the value of the group's key that its pods require.
func (sv *solver) gives(g *group, d string) bool {
	return slices.ContainsFunc(sv.pools.All(), func(t *nodepool.Template) bool {
		return t.Requirements().Defines(g.key) && !t.DefinesLabel(g.key) && t.Requirements().Get(g.key).Has(d) && !t.LimitsExhausted() &&
			g.filter.admitsTaints(t.Taints())
	})
}

// minCountWithRequested is minCount for a group with requested domains.
func (g *group) minCountWithRequested() int {
	var counts []int
	for _, d := range g.usable {
		counts = append(counts, g.counts[d]-g.uncertain[d])
	}
	for _, d := range g.requested {
		if g.counts[d] > 0 {
			counts = append(counts, g.counts[d]-g.uncertain[d])
		}
	}
	if len(counts) == 0 || len(counts) < g.minDomains {
		return 0
	}
	return slices.Min(counts)
}
