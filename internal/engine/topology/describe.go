package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Describe describes the constraint, the distribution of its pods, and which domains that leaves, in the words of a
// message. Daemons are the DaemonSets, by number, that run on the new nodes in question.
func (r *Registry) Describe(v *View, daemons []int) string {
	g := v.g
	s := fmt.Sprintf("%s over %s", g.typ, g.key)
	switch g.typ {
	case Spread:
		return s + fmt.Sprintf(" with maxSkew %d (pods now: %s)", g.maxSkew, g.distribution(true)) + v.describeAllowed()
	case Affinity:
		return s + " to pods with " + g.selectorText() + r.describeFollowed(g, daemons)
	case AntiAffinity:
		s += " to pods with " + g.selectorText()
		if len(daemons) > 0 {
			s += fmt.Sprintf(": %s a pod on each new node that would suit", r.daemonSets(daemons, " runs such", " run such"))
			if g.OverHosts() {
				return s // a new node is none of the hosts that have such pods
			}
			return s + g.describeApart(", and such pods are or may come up in ")
		}
		return s + g.describeApart(", which are or may come up in ")
	}
	if len(daemons) > 0 {
		return fmt.Sprintf("the required anti-affinity over %s of %s a pod on each new node that would suit", g.key,
			r.daemonSets(daemons, ", which runs", ", which run"))
	}
	return s + g.describeApart(", which is or may come up in ")
}

// describeFollowed says where the pods are that others must follow.
func (r *Registry) describeFollowed(g *Group, daemons []int) string {
	switch where := g.distribution(false); {
	case g.OverHosts() && len(g.daemons) > 0 && len(daemons) == 0:
		return fmt.Sprintf(": a new node has none, since %s not run there, and the nodes that have some do not take the pod",
			r.daemonSets(g.daemons.Members(), " does", " do"))
	case g.OverHosts():
		return ": a new node has none, and the nodes that have some do not take the pod"
	case where != "":
		return ", which are in " + where + g.describeExample()
	case g.undecided > 0:
		return ", which are on nodes that may yet come up anywhere"
	}
	return ": there are none"
}

// describeApart says where the pods are that others keep away from; empty if there are none.
func (g *Group) describeApart(lead string) string {
	where := g.distribution(false)
	if where == "" {
		return ""
	}
	return lead + where + g.describeExample()
}

// daemonSets names DaemonSets with the verb for one or for several.
func (r *Registry) daemonSets(daemons []int, one, several string) string {
	var names []string
	for _, number := range daemons {
		names = append(names, r.daemons[number].name)
	}
	if len(names) == 1 {
		return "DaemonSet " + names[0] + one
	}
	return "DaemonSets " + wording.List(names) + several
}

// example is one of the running pods that a group counts.
type example struct {
	pod  *corev1.Pod
	node *Node
}

// maxExamples is how many nodes have an example. A simulation removes nodes, and those that are left name the first of theirs.
const maxExamples = 8

// note keeps the pod as the example of its node if it comes first by name, and the first nodes by name.
func (g *Group) note(pod *corev1.Pod, n *Node) {
	byNode := func(e example, name string) int { return cmp.Compare(e.node.Name, name) }
	i, found := slices.BinarySearchFunc(g.examples, n.Name, byNode)
	switch {
	case found:
		if e := g.examples[i].pod; cmp.Or(cmp.Compare(pod.Namespace, e.Namespace), cmp.Compare(pod.Name, e.Name)) < 0 {
			g.examples[i].pod = pod
		}
	case i < maxExamples:
		g.examples = slices.Insert(g.examples[:min(len(g.examples), maxExamples-1)], i, example{pod, n})
	}
}

// NoteMoved makes a pod that has moved to the node an example of the group, if the group counts it there, until the Keep that comes next
// is taken back.
func (r *Registry) NoteMoved(g *Group, n *Node, pod *corev1.Pod) {
	if _, has := n.Domain(g.key); !has || !r.Counts(g, n) {
		return
	}
	if _, noted := r.noted[g]; !noted {
		if r.noted == nil {
			r.noted = map[*Group][]example{}
		}
		r.noted[g] = g.examples
		g.examples = slices.Clone(g.examples)
	}
	g.note(pod, n)
}

// describeExample names a running pod of the group, and where it runs. On hosts, the domains say enough.
func (g *Group) describeExample() string {
	i := slices.IndexFunc(g.examples, func(e example) bool { return !e.node.Removed })
	if i < 0 || g.OverHosts() {
		return ""
	}
	e := g.examples[i]
	s := fmt.Sprintf(": %s/%s runs on node %s", e.pod.Namespace, e.pod.Name, e.node.Name)
	if snapshot.Terminating(e.pod) {
		s += " until it has terminated"
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
