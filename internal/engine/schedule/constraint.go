package schedule

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// constraint is a view as explanations see it.
type constraint struct {
	sv *solver
	v  view
}

// Key is the label whose values are the domains.
func (c *constraint) Key() string { return c.v.g.key }

// Spreads reports whether the constraint is topology spread.
func (c *constraint) Spreads() bool { return c.v.g.typ == spread }

// KeepsApart reports whether the constraint is anti-affinity, the pod's own or another's.
func (c *constraint) KeepsApart() bool { return c.v.keepsApart() }

// Selector is the label selector of the pods that count.
func (c *constraint) Selector() string { return c.v.g.selector.String() }

// Domains are those that a node with these requirements could be in.
func (c *constraint) Domains(node requirement.Set) []string { return c.sv.domainsOf(c.v.g, node) }

// Describe describes the constraint, the distribution of its pods, and which domains that leaves.
func (c *constraint) Describe() string {
	v, g := c.v, c.v.g
	s := fmt.Sprintf("%s over %s", g.typ, g.key)
	switch g.typ {
	case spread:
		s += fmt.Sprintf(" with maxSkew %d (pods now: %s)", g.maxSkew, g.distribution(true))
		var allowed []string
		for _, d := range g.universe {
			if v.allows(d) {
				allowed = append(allowed, d)
			}
		}
		switch {
		case len(g.usable) < g.minDomains:
			s += fmt.Sprintf(" allows no more: minDomains is %d, and the pod can use only %d", g.minDomains, len(g.usable))
		case len(allowed) == 0:
			s += " allows no more anywhere"
		default:
			s += " allows only " + wording.List(allowed)
		}
	case affinity:
		s += fmt.Sprintf(" to pods with %s", g.selectorText())
		switch where := g.distribution(false); {
		case g.key == corev1.LabelHostname:
			s += ": a new node has none, and the nodes that have some do not take the pod"
		case where != "":
			s += ", which are in " + where
		case g.undecided > 0:
			s += ", which are on nodes that may yet come up anywhere"
		default:
			s += ": there are none"
		}
	case antiAffinity:
		s += fmt.Sprintf(" to pods with %s, which are or may come up in %s", g.selectorText(), g.distribution(false))
	case inverse:
		s += ", which is or may come up in " + g.distribution(false)
	}
	return s
}

// distribution lists the group's pods by domain: "z1 (2), z2 (1)".
func (g *group) distribution(empty bool) string {
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
