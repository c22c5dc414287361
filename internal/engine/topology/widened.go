package topology

import "slices"

// Widened makes groups as if nodes of a pool could be in all domains of the pool. The zero value is ready. It remembers the domains of
// groups with equal ones: an explanation requests each term of a pod under each waiver, and a label such as the instance type has
// hundreds of domains. It is of use while the domains of the groups do not change.
type Widened struct {
	universes map[widenedKey][]string
}

// widenedKey identifies a list of domains by its place in memory, and the labels of a pool.
type widenedKey struct {
	first  *string
	n      int
	labels PoolLabels
	key    string
}

// Group is the group with the domains of the pool. It is g itself where that changes nothing.
//
// Cost: constant for all but the first of the groups that share their domains, as those of affinity over one key do; linear in the
// domains for spreads.
func (w *Widened) Group(g *Group, p Pool) *Group {
	if g.OverHosts() || !g.filter.admitsTaints(p.Taints) {
		return g
	}
	universe := w.universe(g, p)
	if g.typ != Spread && len(universe) == len(g.universe) {
		return g
	}
	out := *g
	out.universe = universe
	if g.typ == Spread { // the others count no skew
		out.usable = out.reachable()
	}
	return &out
}

// universe is the domains of the group and of the pool, sorted.
func (w *Widened) universe(g *Group, p Pool) []string {
	k := widenedKey{n: len(g.universe), labels: p.Labels, key: g.key}
	if k.n > 0 {
		k.first = &g.universe[0]
	}
	known, ok := w.universes[k]
	if !ok {
		known = slices.Clip(union(g.universe, p.Labels.Values(g.key))) // groups share it
		if w.universes == nil {
			w.universes = map[widenedKey][]string{}
		}
		w.universes[k] = known
	}
	return known
}
