package topology

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// requestedDomains are the domains, sorted, that nodes get because the group's pods require them: values of a label that
// no type has, of which a pool leaves the value open. kube-scheduler measures skew over the nodes that exist, so such a
// domain counts once a node is launched for it.
func (r *Registry) requestedDomains(g *Group) []string {
	if g.filter == nil || !g.filter.affinity || r.labels.WellKnown[g.key] {
		return nil
	}
	var out []string
	for _, set := range append(slices.Clip(g.filter.node.Required), g.filter.node.Selector) {
		asked := set.Get(g.key)
		if asked.Operator() != corev1.NodeSelectorOpIn {
			continue
		}
		for _, d := range asked.Values() {
			if reaches(g.filter.node, g.key, d) && !slices.Contains(g.universe, d) && r.gives(g, d) {
				out = append(out, d)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// gives reports whether some pool gives a node the value of the group's key that its pods require.
func (r *Registry) gives(g *Group, d string) bool {
	return slices.ContainsFunc(r.open, func(p Pool) bool { return p.Labels.Gives(g.key, d) && g.filter.admitsTaints(p.Taints) })
}

// minCountWithRequested is minCount for a group with requested domains.
func (g *Group) minCountWithRequested() int {
	var counts []int
	for _, d := range g.usable {
		counts = append(counts, g.SureCount(d))
	}
	for _, d := range g.requested {
		if g.counts[d] > 0 {
			counts = append(counts, g.SureCount(d))
		}
	}
	if len(counts) == 0 || len(counts) < g.minDomains {
		return 0
	}
	return slices.Min(counts)
}

// Exceeds reports whether a domain in which the plan has placed pods has more than skew allows, beside the domains that the planned nodes
// make and not beside those of existing nodes. Spread over domains only.
//
// Cost: existing and planned nodes, for each domain.
func (r *Registry) Exceeds(g *Group, planned []NewNode) bool {
	existing, made := math.MaxInt, math.MaxInt // the fewest pods
	for _, d := range g.usable {
		switch {
		case r.exists(g, d):
			existing = min(existing, g.SureCount(d))
		case !r.isIdle(g, d, planned):
			made = min(made, g.SureCount(d))
		}
	}
	for d, n := range g.counts {
		if n > g.CountBefore(d) && n-g.maxSkew > made && n-g.maxSkew <= existing {
			return true
		}
	}
	return false
}

// Beside notes n pods of the plan at a node with these labels that state the spread and that it does not count.
func (r *Registry) Beside(g *Group, node requirement.Set, n int) {
	domain, ok := node.Get(g.key).Single()
	if !ok {
		return
	}
	r.touch(g)
	if g.beside == nil {
		g.beside = map[string]int{}
	}
	g.beside[domain] += n
}

// mayHave reports whether the domain may have n pods. A requested domain begins to exist with its first node, and from
// then on it lowers the minimum that skew is measured against: no pod that this plan has placed in another domain may be
// too much then.
func (g *Group) mayHave(domain string, n int) bool {
	if len(g.requested) == 0 || g.counts[domain] > 0 || !slices.Contains(g.requested, domain) {
		return true
	}
	for d, other := range g.counts {
		if other > g.CountBefore(d) && other-n > g.maxSkew {
			return false
		}
	}
	for d, pods := range g.beside {
		if pods > 0 && g.counts[d]-n > g.maxSkew {
			return false
		}
	}
	return true
}
