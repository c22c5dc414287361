package wording

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// topology is which constraints leave no domain.
func (s Style) topology(t *rejection.Domains) Clause {
	parts := make([]string, len(t.Constraints))
	for i := range t.Constraints {
		parts[i] = s.constraint(&t.Constraints[i])
	}
	text := strings.Join(parts, ", and ")
	switch {
	case t.Pool != nil:
		return Clause{Text: text}.but(s.label(*t.Pool))
	case len(t.Possible.First) > 0:
		text += "; a node of this pool for it can only be in " + names(t.Possible) + brought(t)
	}
	return Clause{Text: text}
}

// over is the domains of a label.
func (s Style) over(key string) string {
	switch {
	case s == LabelWords && key == corev1.LabelTopologyZone:
		return "over zones"
	case s == LabelWords && key == corev1.LabelHostname:
		return "over nodes"
	}
	return "over " + key
}

// constraint is one constraint, how its pods are distributed, and which domains that leaves.
func (s Style) constraint(c *rejection.Constraint) string {
	over := s.over(c.Key)
	switch c.Kind {
	case rejection.KindSpread:
		if len(c.DaemonSets) > 0 && c.Hosts {
			return fmt.Sprintf("topology spread %s with maxSkew %d counts the pods of DaemonSets, too: %s one on each new node that would suit",
				over, c.MaxSkew, daemonSets(c.DaemonSets, " runs", " run"))
		}
		return fmt.Sprintf("topology spread %s with maxSkew %d (pods now: %s)%s", over, c.MaxSkew, counts(c.Pods), allowed(c))
	case rejection.KindAffinity:
		return "pod affinity " + over + " to pods with " + selector(c) + followed(c)
	case rejection.KindApart:
		text := "pod anti-affinity " + over + " to pods with " + selector(c)
		if len(c.DaemonSets) == 0 {
			return text + apart(c, ", which are or may come up in ")
		}
		text += fmt.Sprintf(": %s a pod on each new node that would suit", daemonSets(c.DaemonSets, " runs such", " run such"))
		if c.Hosts {
			return text // a new node is none of the hosts that have such pods
		}
		return text + apart(c, ", and such pods are or may come up in ")
	}
	if len(c.DaemonSets) > 0 {
		return fmt.Sprintf("the required anti-affinity %s of %s a pod on each new node that would suit", over,
			daemonSets(c.DaemonSets, ", which runs", ", which run"))
	}
	return "another pod's anti-affinity " + over + apart(c, ", which is or may come up in ")
}

// selector is the pods that count.
func selector(c *rejection.Constraint) string {
	switch {
	case c.Claim != "":
		return fmt.Sprintf("volume claim %q", c.Claim)
	case c.Selectors > 0:
		return fmt.Sprintf("any of %d selectors", c.Selectors)
	}
	return c.Selector
}

// followed returns where the pods are that others must follow.
func followed(c *rejection.Constraint) string {
	const others = ", and the nodes that have some do not take the pod"
	switch {
	case c.Hosts && c.Elsewhere:
		return fmt.Sprintf(": a new node has none, since %s not run there", daemonSets(c.DaemonSets, " does", " do")) + others
	case c.Hosts:
		return ": a new node has none" + others
	case len(c.Pods.First) > 0:
		return ", which are in " + counts(c.Pods) + example(c)
	case c.Undecided > 0:
		return ", which are on nodes that may yet come up anywhere"
	}
	return ": there are none"
}

// apart returns where the pods are that others keep away from; empty if there are none.
func apart(c *rejection.Constraint, lead string) string {
	if len(c.Pods.First) == 0 {
		return ""
	}
	return lead + counts(c.Pods) + example(c)
}

// daemonSets names DaemonSets with the verb for one or for several.
func daemonSets(names []string, one, several string) string {
	if len(names) == 1 {
		return "DaemonSet " + names[0] + one
	}
	return "DaemonSets " + List(names) + several
}

// example names a running pod that counts, and its node. Where each node is a domain, the domains name it.
func example(c *rejection.Constraint) string {
	if c.Example == nil || c.Hosts {
		return ""
	}
	text := fmt.Sprintf(": %s runs on node %s", c.Example.Pod, c.Example.Node)
	if c.Example.Terminating {
		text += " until it has terminated"
	}
	return text
}

// allowed is which domains a spread leaves.
func allowed(c *rejection.Constraint) string {
	switch {
	case c.Usable < c.MinDomains:
		return fmt.Sprintf(" allows no more: minDomains is %d, and the pod can use only %d", c.MinDomains, c.Usable)
	case len(c.Allowed.First) == 0:
		return " allows no more anywhere"
	}
	return " allows only " + names(c.Allowed)
}

// brought is which DaemonSets' pods come with a node of the pool to a domain that a spread allows, and are too many there.
func brought(t *rejection.Domains) string {
	for i := range t.Constraints {
		c := &t.Constraints[i]
		allowed := func(d string) bool { return slices.Contains(c.Allowed.First, d) }
		if c.Kind == rejection.KindSpread && len(c.DaemonSets) > 0 && slices.ContainsFunc(t.Possible.First, allowed) {
			return fmt.Sprintf(", where %s a pod that counts, too", daemonSets(c.DaemonSets, " runs", " run"))
		}
	}
	return ""
}

// names joins the first names of a list.
func names(n rejection.Names) string { return listed(n.First, n.More) }

// counts lists pods by domain: "z1 (2), z2 (1)".
func counts(n rejection.DomainCounts) string {
	out := make([]string, len(n.First))
	for i, d := range n.First {
		out[i] = fmt.Sprintf("%s (%d)", d.Domain, d.Pods)
	}
	return listed(out, n.More)
}
