package topology

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Counts reports whether pods on the node count for the group, or may, if it is a claim without an instance.
func (r *Registry) Counts(g *Group, n *Node) bool {
	if n.Unlaunched { // which gets the label under both names
		return g.filter.admitsTaints(n.Taints) && g.filter.hasKeys(n.Labels, r.labels.WellKnown) && r.mayCount(g.filter, n)
	}
	return r.CountsRunning(g, n)
}

// CountsRunning reports whether pods that run on the node count for the group: it will get no other labels.
func (r *Registry) CountsRunning(g *Group, n *Node) bool {
	return !g.isLackedBy(n) && g.filter.admits(n.Labels, n.Taints, nil)
}

// isLackedBy reports whether the node has the group's key only under its other name, so that it is in no domain.
func (g *Group) isLackedBy(n *Node) bool {
	return len(g.lacking) > 0 && slices.Contains(g.lacking, n.Name)
}

// Domain is the only domain of the group that the node is in or can be in.
func (g *Group) Domain(n *Node) (string, bool) {
	if g.isLackedBy(n) {
		return "", false
	}
	return n.Domain(g.key)
}

// AddRunning adds by pods to the count in the node's domain, for good: Undo does not take them back.
func (g *Group) AddRunning(n *Node, by int) {
	if d, ok := g.Domain(n); ok {
		g.addRunning(d, by)
	}
}

func (g *Group) addRunning(domain string, by int) {
	if g.counts[domain] += by; g.counts[domain] == 0 {
		delete(g.counts, domain)
	}
	if g.hosts != nil {
		g.hosts.version = -1
	}
}

// CountOn counts one more pod on the node, if pods there count. A claim that is not launched may come up in one of
// several domains: pods that keep apart avoid all of them.
func (r *Registry) CountOn(g *Group, n *Node) {
	if !r.Counts(g, n) {
		return
	}
	r.touch(g)
	g.endBriefRelease()
	domain, ok := n.Domain(g.key)
	switch {
	case ok:
		g.own()
		g.add(domain, 1, !n.Unlaunched || r.surelyCounts(g.filter, n))
	case !n.Unlaunched: // the node has no such label
	case g.NeedsDomain():
		if len(r.DomainsOf(g, n.Labels)) > 0 {
			g.undecided++
		}
	default:
		g.own()
		for _, d := range r.DomainsOf(g, n.Labels) {
			g.counts[d]++
		}
	}
}

// CountNew counts n pods on the planned node, if pods there count.
func (r *Registry) CountNew(g *Group, at *NewNode, n int) { r.countNew(g, at, n, true) }

// countNew is CountNew; surely is false of pods of DaemonSets that may not come.
func (r *Registry) countNew(g *Group, at *NewNode, n int, surely bool) {
	if !g.filter.admits(at.Labels, at.Pool.Taints, r.labels.WellKnown) {
		return
	}
	r.touch(g)
	if n > 0 {
		g.endBriefRelease()
	}
	if g.OverHosts() {
		g.addOnNew(at.Index, n, surely)
		return
	}
	if d, ok := at.Labels.Get(g.key).Single(); ok {
		g.own()
		g.add(d, n, surely && g.filter.certain(at))
		return
	}
	domains := r.DomainsOf(g, at.Labels)
	// Pods that keep apart must avoid every domain where the node may come up, so they count in all of them. Spread and
	// affinity need to know the domain, so these pods stay undecided.
	if g.NeedsDomain() && r.ambiguous(g, at.Labels, domains) {
		g.undecided += n
		return
	}
	g.own()
	// A spread knows no domains that its pods do not select: a node that may also come up in one of these does not surely count.
	surely = surely && (g.typ != Spread || g.filter.certain(at))
	if g.NeedsDomain() && len(domains) == 1 { // the only one that is left, though the label is not stated
		g.add(domains[0], n, surely && g.filter.certain(at))
		return
	}
	for _, d := range domains {
		g.add(d, n, surely || !g.NeedsDomain())
	}
}

// ambiguous reports whether a new node with these labels may come up in another domain than any single one of those that
// exist. Of a label that no type has and that its requirements leave open, the claim makes up a value.
func (r *Registry) ambiguous(g *Group, node requirement.Set, domains []string) bool {
	open := !r.labels.WellKnown[g.key] && node.Get(g.key).Operator() != corev1.NodeSelectorOpIn
	return len(domains) > 1 || len(domains) == 1 && open
}

// CountLaunched counts one pod on a node that is being launched, where its domain is known or the pod keeps apart. No
// group over hosts counts it, since nothing else can join it.
func (r *Registry) CountLaunched(g *Group, node requirement.Set, pool Pool) {
	if g.OverHosts() || !g.filter.admits(node, pool.Taints, r.labels.WellKnown) {
		return
	}
	domains := r.DomainsOf(g, node)
	if g.NeedsDomain() && r.ambiguous(g, node, domains) {
		return
	}
	r.touch(g)
	g.own()
	for _, d := range domains {
		g.counts[d]++
	}
}

// touch notes that what is known of a group changes. Cost: constant.
func (r *Registry) touch(g *Group) {
	r.changes++
	if !g.touched {
		g.touched = true
		g.before = g.counts
		r.touched = append(r.touched, g)
	}
}

// own gives a touched group its own copy of counts to change. Cost: the number of domains, the first time. Most pods of a plan go to
// planned nodes, which groups over hosts count apart: these, with a domain for each node of the cluster, are rarely copied.
func (g *Group) own() {
	if !g.owned {
		g.owned = true
		g.counts = maps.Clone(g.counts)
	}
}

// Changes counts how often pods were counted or taken back. While it stays the same, so do all counts of planned pods.
func (r *Registry) Changes() int { return r.changes }

// forgetPlanned forgets what is known of planned nodes.
func (g *Group) forgetPlanned() {
	g.uncertain, g.countsByNew, g.undecided, g.touched, g.owned = nil, g.countsByNew[:0], 0, false, false
	g.unsureByNew, g.beside = nil, nil
	if g.arrivals != nil {
		g.arrivals.brought = nil
		if g.arrivals.ofAllPools {
			g.arrivals.ofAllPools, g.arrivals.fewest = false, map[string]int{}
		}
	}
	if g.unreleased != nil {
		g.usable, g.requested, g.unreleased, g.unbrief = g.unreleased.usable, g.unreleased.requested, nil, nil
	}
}

// Undo takes everything back that was counted since the last Undo or Keep.
func (r *Registry) Undo() {
	for _, g := range r.touched {
		g.counts = g.before
		g.forgetPlanned()
	}
	r.touched, r.holding = r.touched[:0], r.holding[:0]
}

// KeptCounts are the counts, and the examples, that a Keep has replaced.
type KeptCounts struct {
	counts   map[*Group]map[string]int
	examples map[*Group][]example
}

// Keep makes what was counted since the last Undo permanent, but for planned nodes. Restore takes it back.
func (r *Registry) Keep() KeptCounts {
	kept := KeptCounts{counts: make(map[*Group]map[string]int, len(r.touched)), examples: r.noted}
	r.noted = nil
	r.hostsVersion++
	for _, g := range r.touched {
		g.own() // AddRunning changes the counts from now on, and not those that Restore brings back
		kept.counts[g] = g.before
		g.forgetPlanned()
	}
	r.touched, r.holding = r.touched[:0], r.holding[:0]
	return kept
}

// Restore takes a Keep back. Later ones must have been taken back before.
func (r *Registry) Restore(kept KeptCounts) {
	r.hostsVersion++
	for g, counts := range kept.counts {
		g.counts = counts
	}
	for g, examples := range kept.examples {
		g.examples = examples
	}
}

// Removals takes existing nodes out of the domains of groups, and brings them back.
type Removals struct {
	r *Registry
	// nodes counts, for groups with domains that only existing nodes provide, the nodes in each of these domains.
	nodes map[*Group]map[string]int
	// lost are the groups that lost domains with removed nodes, as they were before, in the order of the losses.
	lost []LostDomain
}

// LostDomain is a group as it was before it lost a domain.
type LostDomain struct {
	g                         *Group
	universe, usable, foreign []string
}

// Removals prepares the removal of nodes. Cost: groups times nodes.
func (r *Registry) Removals() *Removals {
	m := &Removals{r: r, nodes: map[*Group]map[string]int{}}
	for _, g := range r.groups {
		if !g.OverHosts() {
			m.count(g)
		}
	}
	return m
}

// count counts the nodes without which the group would lack a domain.
func (m *Removals) count(g *Group) {
	launchable := g.offered
	if g.typ != Spread {
		launchable = m.r.launchable(g)
	}
	for _, n := range m.r.nodes {
		if d, ok := m.r.provides(n, g); ok && !slices.Contains(launchable, d) {
			if m.nodes[g] == nil {
				m.nodes[g] = map[string]int{}
			}
			m.nodes[g][d]++
		}
	}
}

// Remove takes the domains away that only this node provides.
func (m *Removals) Remove(n *Node) {
	m.r.removed[n] = true
	m.r.hostsVersion++
	for g, nodes := range m.nodes {
		d, ok := m.r.provides(n, g)
		if !ok || nodes[d] == 0 {
			continue
		}
		if nodes[d]--; nodes[d] == 0 {
			m.lost = append(m.lost, LostDomain{g, g.universe, g.usable, g.foreign})
			without := func(s []string) []string {
				return slices.DeleteFunc(slices.Clone(s), func(x string) bool { return x == d })
			}
			g.usable = without(g.usable)
			if slices.Contains(g.countable, d) {
				g.foreign = union(g.foreign, []string{d})
			} else {
				g.universe = without(g.universe)
			}
		}
	}
}

// Return brings a removed node back. The domains come back with RestoreDomains, before it.
func (m *Removals) Return(n *Node) {
	delete(m.r.removed, n)
	m.r.hostsVersion++
	for g, nodes := range m.nodes {
		if d, ok := m.r.provides(n, g); ok {
			if _, counted := nodes[d]; counted {
				nodes[d]++
			}
		}
	}
}

// RestoreDomains brings the domains of all removed nodes back.
func (m *Removals) RestoreDomains() {
	for _, l := range slices.Backward(m.lost) {
		l.g.universe, l.g.usable, l.g.foreign = l.universe, l.usable, l.foreign
	}
	m.lost = m.lost[:0]
}

// Keep makes the losses so far permanent, and returns them for Reopen.
func (m *Removals) Keep() []LostDomain {
	kept := slices.Clone(m.lost)
	m.lost = m.lost[:0]
	return kept
}

// Reopen adds kept losses to those that RestoreDomains takes back.
func (m *Removals) Reopen(kept []LostDomain) { m.lost = append(m.lost, kept...) }
