package topology

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// kube-scheduler measures skew over the domains of nodes that exist and that the policies of the constraint admit. A
// plan adds the domains in which nodes could be launched for the pods: they are to be spread over these, too. A domain
// in which none can be launched, or none is in the end, holds no pods back.

// SpreadPod is a pod with spreads that are made groups: with its node selection and its tolerations, which decide what
// nodes its spreads count.
type SpreadPod struct {
	Pod         *corev1.Pod
	Node        requirement.Pod
	Tolerations []corev1.Toleration
	// Launchable lists the values, sorted, of a label on nodes that could be launched for pods like this one now and
	// that have the other labels, too. Nil means all values that pools have, as far as the policies of the constraint
	// admit them.
	Launchable func(key string, present []string) []string
	// Countable lists the values, sorted, of a label on nodes that could be launched now for any pod, and that are counted for
	// spreads of pods like this one: those that the pod may select, if affinity is true, with taints that it tolerates, if taints is
	// true. Nil means none besides.
	Countable func(key string, affinity, taints bool) []string
}

// Spread is the group of a topology spread constraint of the pod.
func (r *Registry) Spread(p SpreadPod, c *corev1.TopologySpreadConstraint) *Group {
	g := &Group{
		typ: Spread, key: r.labels.Normalize(c.TopologyKey), maxSkew: int(c.MaxSkew), minDomains: 1,
		namespaces: map[string]bool{p.Pod.Namespace: true},
		selector:   compileSelector(c.LabelSelector, p.Pod, c.MatchLabelKeys, nil),
		filter: &filter{
			node: p.Node, tolerations: p.Tolerations, present: r.otherKeys(p.Pod, c),
			affinity: c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
			taints:   c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
		},
	}
	if len(r.labels.Lacking) > 0 {
		for _, key := range spreadKeys(p.Pod, c.WhenUnsatisfiable) {
			g.lacking = slices.Concat(g.lacking, r.labels.Lacking[key])
		}
	}
	if c.MinDomains != nil {
		g.minDomains = int(*c.MinDomains)
	}
	g = r.intern(g, g.filter.key()+r.launchKey(p, g.filter))
	if !g.OverHosts() {
		r.addOffered(g, p)
	}
	return g
}

// HardSpreadKeys are the topology keys of the pod's constraints with DoNotSchedule.
func HardSpreadKeys(pod *corev1.Pod) []string { return spreadKeys(pod, corev1.DoNotSchedule) }

// spreadKeys are the topology keys of the pod's constraints of one sort.
func spreadKeys(pod *corev1.Pod, sort corev1.UnsatisfiableConstraintAction) (keys []string) {
	for i := range pod.Spec.TopologySpreadConstraints {
		if c := &pod.Spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == sort {
			keys = append(keys, c.TopologyKey)
		}
	}
	return keys
}

// maxSoftKeys is with how many constraints those that may be given up still depend on each other. Each of them has the
// keys of all others, so that thousands would take the square of their number.
const maxSoftKeys = 32

// otherKeys are the topology keys of the pod's other constraints of the same sort, sorted. A node that lacks one of
// them counts for none: see nodeLabelsMatchSpreadConstraints of kube-scheduler. Every node has a host name.
func (r *Registry) otherKeys(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) []string {
	n := len(pod.Spec.TopologySpreadConstraints)
	if n == 1 || n > maxSoftKeys && c.WhenUnsatisfiable == corev1.ScheduleAnyway {
		return nil
	}
	var out []string
	own := r.labels.Normalize(c.TopologyKey)
	for i := range pod.Spec.TopologySpreadConstraints {
		o := &pod.Spec.TopologySpreadConstraints[i]
		key := r.labels.Normalize(o.TopologyKey)
		if o.WhenUnsatisfiable == c.WhenUnsatisfiable && key != own && key != corev1.LabelHostname {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// launchKey is equal for pods with one filter for which the same nodes can be launched, as far as pools' labels and
// taints decide.
func (r *Registry) launchKey(p SpreadPod, f *filter) string {
	var out strings.Builder
	if !f.affinity {
		out.WriteString(p.Node.Selector.Key())
		for _, t := range p.Node.Required {
			out.WriteString("|" + t.Key())
		}
	}
	if slices.ContainsFunc(r.pools, func(p Pool) bool { return len(p.Taints) > 0 }) {
		for _, pool := range r.pools {
			_, blocked := snapshot.UntoleratedHard(p.Tolerations, pool.Taints)
			out.WriteByte("01"[btoi(blocked)])
		}
	}
	return out.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// addOffered adds the domains in which nodes can be launched for the pod to those of the group: pods of one group may
// have other volumes and request more.
func (r *Registry) addOffered(g *Group, p SpreadPod) {
	var offered []string
	if p.Launchable == nil {
		offered = r.launchable(g)
	} else {
		if offered = p.Launchable(g.key, g.filter.present); len(offered) == 0 && len(g.filter.present) > 0 {
			offered = p.Launchable(g.key, nil) // then the other constraint is what keeps the pods out
		}
	}
	var foreign []string
	if p.Countable != nil {
		foreign = p.Countable(g.key, g.filter.affinity, g.filter.taints)
	}
	newTo := func(known []string) func(string) bool {
		return func(d string) bool { return !slices.Contains(known, d) }
	}
	if !slices.ContainsFunc(offered, newTo(g.offered)) && !slices.ContainsFunc(foreign, newTo(union(g.offered, g.countable))) {
		return
	}
	g.offered = union(g.offered, offered)
	g.requested = slices.DeleteFunc(g.requested, func(d string) bool { return slices.Contains(g.offered, d) })
	existing := r.findUniverse(g)
	g.countable = slices.DeleteFunc(union(g.countable, foreign), func(d string) bool {
		return slices.Contains(g.offered, d) || slices.Contains(g.requested, d)
	})
	g.foreign = slices.DeleteFunc(slices.Clone(g.countable), func(d string) bool { return slices.Contains(existing, d) })
	g.universe = union(union(g.universe, offered), g.foreign)
	g.usable = g.reachable()
}

// union is the sorted union of two lists without repetitions.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// Release lets the domains go of a spread in which no node is, existing or among the planned ones: nothing can be
// launched there after all, and kube-scheduler does not know them. If a node for the group's pods is planned there
// later, its domain counts again. It returns whether that changes what is allowed. Undo takes it back.
//
// Invariant: no pod that the plan has placed has too many beside it when such a domain comes to exist: see mayHave.
func (r *Registry) Release(g *Group, planned []NewNode) bool {
	if g.typ != Spread || g.OverHosts() {
		return false
	}
	idle := func(d string) bool { return r.isIdle(g, d, planned) }
	if !slices.ContainsFunc(g.usable, idle) {
		return false
	}
	r.touch(g)
	before := g.minCount()
	domains := &domainsBefore{g.usable, g.requested}
	g.requested = slices.Clone(g.requested)
	for _, d := range g.usable {
		if idle(d) {
			g.requested = append(g.requested, d)
		}
	}
	slices.Sort(g.requested)
	g.usable = slices.DeleteFunc(slices.Clone(g.usable), idle)
	if g.unreleased == nil {
		g.unreleased = domains
	}
	if g.minCount() != before {
		return true
	}
	// Where domains begin with pods of DaemonSets, each may be held back by the others, whatever the minimum is: see minCountBeside. The first
	// pod takes one of them then, and the others count again for the next.
	if g.arrivals != nil && g.unbrief == nil {
		g.unbrief = domains
		return true
	}
	return false
}

// isIdle reports whether no node is in the domain, existing or among the planned ones.
func (r *Registry) isIdle(g *Group, d string, planned []NewNode) bool {
	return g.counts[d] == 0 && (slices.Contains(g.offered, d) || g.isForeign(d)) && !r.exists(g, d) &&
		!slices.ContainsFunc(planned, func(n NewNode) bool { return r.mayBeIn(g, &n, d) })
}

// endBriefRelease has domains count again that were let go for one pod.
func (g *Group) endBriefRelease() {
	if g.unbrief != nil {
		g.usable, g.requested, g.unbrief = g.unbrief.usable, g.unbrief.requested, nil
	}
}

// FillsUp reports whether pods of the plan on existing nodes, which wait for no node, are too many in a domain for pods of the spread on
// planned nodes there. Of what the spread counts there, onPlanned are on planned nodes, and spread of these have the spread themselves:
// kube-scheduler binds them one after the other. Spread only.
func (g *Group) FillsUp(domain string, onPlanned, spread int) bool {
	if g.arrivals != nil {
		onPlanned += g.arrivals.brought[domain]
	}
	n := g.counts[domain] - onPlanned
	return n > g.CountBefore(domain) && n+spread-g.minCount() > g.maxSkew
}

// mayBeIn reports whether the planned node counts for the group and may come up in the domain.
func (r *Registry) mayBeIn(g *Group, n *NewNode, domain string) bool {
	if !g.filter.admits(n.Labels, n.Pool.Taints, r.labels.WellKnown) || !slices.Contains(r.DomainsOf(g, n.Labels), domain) {
		return false
	}
	if n.Outcomes == nil {
		return true
	}
	return n.Outcomes.MaySatisfy(g.nodesIn(domain))
}

// domainsBefore are the domains of a group before a Release.
type domainsBefore struct{ usable, requested []string }

// exists reports whether some existing node is in the domain and counts.
func (r *Registry) exists(g *Group, domain string) bool {
	r.steps += len(r.nodes)
	return slices.ContainsFunc(r.nodes, func(n *Node) bool {
		d, ok := r.provides(n, g)
		return ok && d == domain && !r.removed[n]
	})
}
