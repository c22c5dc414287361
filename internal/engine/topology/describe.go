package topology

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Describe is the constraint, the distribution of its pods, and which domains that leaves. Daemons are the DaemonSets, by number,
// that run on the new nodes in question.
func (r *Registry) Describe(v *View, daemons []int) rejection.Constraint {
	g := v.g
	out := rejection.Constraint{
		Kind: g.typ.kind(), Key: g.key, Hosts: g.OverHosts(), Claim: g.claim, Selectors: len(g.parts), Undecided: g.undecided,
	}
	if g.claim == "" && len(g.parts) == 0 && g.selector != nil {
		out.Selector = g.selector.String()
	}
	if g.typ == Spread {
		out.MaxSkew, out.MinDomains, out.Usable = g.maxSkew, g.minDomains, len(g.usable)
		out.Pods, out.Allowed = g.distribution(true), rejection.NamesOf(v.leaves())
		if !g.OverHosts() && len(out.Allowed.First) == 0 {
			return out // no more is allowed with or without them
		}
		for _, number := range daemons {
			out.DaemonSets = append(out.DaemonSets, r.daemons[number].name)
		}
		return out
	}
	out.Pods, out.Example = g.distribution(false), g.example()
	if g.typ == Affinity { // DaemonSets matter where they run such pods on other nodes alone
		out.Elsewhere = g.OverHosts() && len(g.daemons) > 0 && len(daemons) == 0
		if daemons = nil; out.Elsewhere {
			daemons = g.daemons.Members()
		}
	}
	for _, number := range daemons {
		out.DaemonSets = append(out.DaemonSets, r.daemons[number].name)
	}
	return out
}

// kind is the type in the data of rejections.
func (t Type) kind() rejection.ConstraintKind {
	return [...]rejection.ConstraintKind{rejection.KindSpread, rejection.KindAffinity, rejection.KindApart, rejection.KindInverse}[t]
}

// example is one of the running pods that a group counts.
type example struct {
	pod  *corev1.Pod
	node *Node
}

// maxExamples limits how many nodes have an example. A simulation removes nodes, and those that are left name the first of theirs.
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

// example is a running pod of the group, and where it runs; nil on hosts, where the domains state enough.
func (g *Group) example() *rejection.Example {
	i := slices.IndexFunc(g.examples, func(e example) bool { return !e.node.Removed })
	if i < 0 || g.OverHosts() {
		return nil
	}
	e := g.examples[i]
	return &rejection.Example{Pod: e.pod.Namespace + "/" + e.pod.Name, Node: e.node.Name, Terminating: snapshot.Terminating(e.pod)}
}

// leaves are the domains that a spread leaves.
func (v *View) leaves() []string {
	var out []string
	for _, d := range v.g.universe {
		if v.Allows(d) {
			out = append(out, d)
		}
	}
	return out
}

// distribution lists the group's pods by domain. It includes domains without pods if empty is true.
func (g *Group) distribution(empty bool) (out rejection.DomainCounts) {
	domains := slices.Collect(maps.Keys(g.counts))
	if empty {
		domains = append(domains, g.universe...)
	}
	slices.Sort(domains)
	for _, d := range slices.Compact(domains) {
		switch n := g.counts[d]; {
		case n == 0 && !empty:
		case len(out.First) < rejection.MaxNames:
			out.First = append(out.First, rejection.DomainCount{Domain: d, Pods: n})
		default:
			out.More++
		}
	}
	return out
}
