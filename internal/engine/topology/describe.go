package topology

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Describe describes the constraint, the distribution of its pods, and which domains that leaves, in the words of a
// message.
func (v *View) Describe() string {
	g := v.g
	s := fmt.Sprintf("%s over %s", g.typ, g.key)
	switch g.typ {
	case Spread:
		s += fmt.Sprintf(" with maxSkew %d (pods now: %s)", g.maxSkew, g.distribution(true)) + v.describeAllowed()
	case Affinity:
		s += fmt.Sprintf(" to pods with %s", g.selectorText())
		switch where := g.distribution(false); {
		case g.OverHosts():
			s += ": a new node has none, and the nodes that have some do not take the pod"
		case where != "":
			s += ", which are in " + where
		case g.undecided > 0:
			s += ", which are on nodes that may yet come up anywhere"
		default:
			s += ": there are none"
		}
	case AntiAffinity:
		s += fmt.Sprintf(" to pods with %s, which are or may come up in %s", g.selectorText(), g.distribution(false))
	case Inverse:
		s += ", which is or may come up in " + g.distribution(false)
	}
	return s
}

// describeAllowed says which domains a spread leaves.
func (v *View) describeAllowed() string {
	var allowed []string
	for _, d := range v.g.universe {
		if v.Allows(d) {
			allowed = append(allowed, d)
		}
	}
	switch {
	case len(v.g.usable) < v.g.minDomains:
		return fmt.Sprintf(" allows no more: minDomains is %d, and the pod can use only %d", v.g.minDomains, len(v.g.usable))
	case len(allowed) == 0:
		return " allows no more anywhere"
	}
	return " allows only " + wording.List(allowed)
}

// distribution lists the group's pods by domain: "z1 (2), z2 (1)". It includes domains without pods if empty is true.
func (g *Group) distribution(empty bool) string {
	domains := slices.Collect(maps.Keys(g.counts))
	if empty {
		domains = append(domains, g.universe...)
	}
	slices.Sort(domains)
	var out []string
	for _, d := range slices.Compact(domains) {
		if n := g.counts[d]; n > 0 || empty {
			out = append(out, fmt.Sprintf("%s (%d)", d, n))
		}
	}
	return wording.List(out)
}

// selectorText describes the pods that the group selects.
func (g *Group) selectorText() string {
	switch {
	case g.claim != "":
		return fmt.Sprintf("volume claim %q", g.claim)
	case len(g.parts) > 0:
		return fmt.Sprintf("any of %d selectors", len(g.parts))
	}
	return g.selector.String()
}
