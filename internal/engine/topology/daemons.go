package topology

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// A DaemonSet's pod comes with a node before the pods that the node is launched for. So it counts for spreads, and for affinity
// and anti-affinity in both directions, on planned nodes and on nodes in flight. Which DaemonSets run where is not known
// here: nodes state it by numbers, in the order of AddDaemon.

// daemon is a DaemonSet.
type daemon struct {
	name string // with its namespace
	pod  *corev1.Pod
	// alternatives are what its pods require of nodes, one of which must hold.
	alternatives []requirement.Set
	// follows are the affinity groups that count its pods; apart are the groups of anti-affinity that do, and its own,
	// Inverse ones. Spreads are those that count its pods.
	follows, apart, spreads []*Group
	// keepers are the groups of anti-affinity over whole domains that keep its pods out; contested is true if other DaemonSets have some of
	// its host ports, and are not its rivals.
	keepers   []*Group
	contested bool
}

// groups are all that the daemon's pods matter to.
func (d *daemon) groups() [3][]*Group { return [3][]*Group{d.follows, d.apart, d.spreads} }

// ComingDaemon is a DaemonSet's pod that will run on a node, and is not there yet.
type ComingDaemon struct {
	Number int
	// Surely is false where it depends on what the node becomes.
	Surely bool
	// KeptOff is true where the anti-affinity of a running pod keeps it off: no spread counts it there.
	KeptOff bool
	// Rivals are the other DaemonSets, by number, that want its host port on the node: the pod of just one of them comes. SureRivals are
	// those that run there whatever the node becomes.
	Rivals, SureRivals resources.Bitset
}

// Among reports whether the pod counts among those of DaemonSets of which a group counts the pods: not, if that of a rival counts in its
// place, by whichever number is lower. Surely is true if the pod comes, or another one that counts does.
func (c *ComingDaemon) Among(of resources.Bitset) (counts, surely bool) {
	counts, surely = true, c.Surely
	for _, rival := range c.Rivals.Members() {
		in := of.Has(rival)
		counts, surely = counts && !(in && rival < c.Number), surely && in
	}
	return counts, surely
}

// AddDaemon adds a DaemonSet, before groups are made. Its pods require one of the alternatives of nodes. Contested is true if others want
// its host ports that do not want each other's: then it is not known which of them come.
func (r *Registry) AddDaemon(name string, pod *corev1.Pod, alternatives []requirement.Set, contested bool) {
	r.daemons = append(r.daemons, daemon{name: name, pod: pod, alternatives: alternatives, contested: contested})
}

// domainsOf are those of the group's domains that a node with these labels may end up in with a pod of the DaemonSet, as far as the label
// of the domain decides; all is true if these are all that it may end up in. The caller must not change them.
func (d *daemon) domainsOf(r *Registry, g *Group, node requirement.Set) (domains []string, all bool) {
	known := r.DomainsOf(g, node)
	runs := func(domain string) bool {
		return slices.ContainsFunc(d.alternatives, func(alt requirement.Set) bool { return alt.Get(g.key).Has(domain) })
	}
	if !slices.ContainsFunc(known, func(domain string) bool { return !runs(domain) }) {
		return known, true
	}
	return slices.DeleteFunc(slices.Clone(known), func(domain string) bool { return !runs(domain) }), false
}

// with is the labels that a node with these has if it has a pod of the DaemonSet, as far as the group needs to know; false if it has none.
func (d *daemon) with(r *Registry, g *Group, node requirement.Set) (requirement.Set, bool) {
	domains, all := d.domainsOf(r, g, node)
	if all {
		return node, true
	}
	return node.With(requirement.In(g.key, domains...)), len(domains) > 0
}

// countComing counts the pods that are still to come to nodes for a new group.
func (r *Registry) countComing(g *Group) {
	if g.claim != "" || g.typ == Inverse {
		return
	}
	for _, n := range r.nodes {
		for _, c := range n.Coming {
			if g.selects(r.daemons[c.Number].pod) && r.Counts(g, n) {
				r.addComing(g, n, c, 1)
			}
		}
	}
}

// declareDaemons makes the groups of the anti-affinity that DaemonSets declare, and counts the pods to come for them.
func (r *Registry) declareDaemons() {
	for i := range r.daemons {
		r.daemons[i].apart = r.Apart(Inverse, r.daemons[i].pod)
	}
	for _, n := range r.nodes {
		for _, c := range n.Coming {
			for _, g := range r.daemons[c.Number].apart {
				r.addComing(g, n, c, 1)
			}
		}
	}
}

// addComing counts a pod to come in the domains of its node, times by. Of a claim without an instance, pods that keep
// apart avoid each domain that it may come up in.
func (r *Registry) addComing(g *Group, n *Node, c ComingDaemon, by int) {
	counts, surely := c.Among(r.selectedRivals(g, &c))
	if g.typ == Affinity && !surely || g.typ == Spread && (!counts || c.KeptOff) {
		return
	}
	if domain, single := n.Domain(g.key); single {
		g.AddRunning(n, by)
		if g.typ == Inverse || g.typ == Spread && (!surely || n.Unlaunched && !r.surelyCounts(g.filter, n)) {
			g.addUnsure(domain, by)
		}
		return
	}
	if n.Unlaunched && !g.NeedsDomain() {
		domains, _ := r.daemons[c.Number].domainsOf(r, g, n.Labels)
		for _, d := range domains {
			g.addRunning(d, by)
			g.addUnsure(d, by)
		}
	}
}

// addUnsure notes that by pods of DaemonSets that count in the domain may not come.
func (g *Group) addUnsure(domain string, by int) {
	if g.unsure == nil {
		g.unsure = map[string]int{}
	}
	g.unsure[domain] += by
}

// selectedRivals are the rivals with pods that the group selects.
func (r *Registry) selectedRivals(g *Group, c *ComingDaemon) (out resources.Bitset) {
	for _, number := range c.Rivals.Members() {
		if g.selects(r.daemons[number].pod) {
			out.Add(number)
		}
	}
	return out
}

// AddComing counts the pods that are still to come to the node, times by: for nodes that are removed, and return.
func (r *Registry) AddComing(n *Node, by int) {
	for _, c := range n.Coming {
		r.addComingOf(n, c, by)
	}
}

// indexDaemons finds the groups that DaemonSets' pods matter to.
func (r *Registry) indexDaemons() {
	for i := range r.daemons {
		d := &r.daemons[i]
		own := slices.DeleteFunc(slices.Clone(d.apart), func(g *Group) bool { return g.typ != Inverse })
		d.follows, d.apart, d.spreads = nil, own, nil
		counting, _ := r.Find(d.pod)
		for _, g := range counting {
			switch {
			case g.claim != "":
			case g.typ == Spread:
				d.spreads = append(d.spreads, g)
			case g.typ == Affinity:
				d.follows = append(d.follows, g)
			default:
				d.apart = append(d.apart, g)
			}
		}
		for _, list := range d.groups() {
			for _, g := range list {
				g.daemons.Add(i)
				if g.typ == Spread && g.arrivals == nil {
					g.arrivals = newArrivals(r)
				}
			}
		}
		if len(d.follows)+len(d.spreads) > 0 || slices.ContainsFunc(d.apart, func(g *Group) bool { return !g.OverHosts() }) {
			r.counted.Add(i)
		}
	}
}

// CountedDaemons are the DaemonSets, by number, with pods on a planned node that matter to pods on other nodes, or to
// which groups.
func (r *Registry) CountedDaemons() resources.Bitset { return r.counted }

// CountedDaemon is a group that counts the pod of a DaemonSet on a planned node.
type CountedDaemon struct {
	Group *Group
	// Surely is false if the pod may not come.
	Surely bool
	// labels are those of the node if it comes.
	labels requirement.Set
}

// CountDaemon counts the pod of a DaemonSet that comes with the planned node, and returns the groups that do. Pods
// that follow it need to know that it comes, whatever the node is launched as; pods that keep apart avoid it where it
// may, and spreads need to know both. Those that keep apart on the node itself do so by the choice of types.
func (r *Registry) CountDaemon(c ComingDaemon, at *NewNode) []CountedDaemon {
	d, out := &r.daemons[c.Number], []CountedDaemon(nil)
	r.SeeKeepers(&c, at)
	displaced := c.KeptOff && r.someComes(c.SureRivals, at)
	add := func(g *Group, surely bool, labels requirement.Set) {
		counted := CountedDaemon{g, surely, labels}
		r.countDaemon(counted, at, 1)
		out = append(out, counted)
	}
	for _, g := range d.follows {
		if _, surely := c.Among(g.daemons); surely {
			add(g, true, at.Labels)
		}
	}
	for _, g := range d.apart {
		if g.OverHosts() || displaced {
			continue
		}
		if labels, some := d.with(r, g, at.Labels); some {
			add(g, true, labels)
		}
	}
	for _, g := range d.spreads {
		if counts, surely := c.Among(g.daemons); counts && !c.KeptOff {
			add(g, surely, at.Labels)
		}
	}
	return out
}

// UncountDaemon takes back what CountDaemon counted for a group.
func (r *Registry) UncountDaemon(c CountedDaemon, at *NewNode) { r.countDaemon(c, at, -1) }

func (r *Registry) countDaemon(c CountedDaemon, at *NewNode, n int) {
	node := *at
	node.Labels = c.labels
	r.countNew(c.Group, &node, n, c.Surely)
	c.Group.bring(&node, n)
}

// CountLaunchedDaemon is CountDaemon for a node that is being launched.
func (r *Registry) CountLaunchedDaemon(d ComingDaemon, node requirement.Set, pool Pool) {
	r.SeeKeepers(&d, &NewNode{Labels: node, Pool: pool})
	for _, list := range r.daemons[d.Number].groups() {
		for _, g := range list {
			counts, surely := d.Among(g.daemons)
			switch {
			case !g.NeedsDomain():
				if labels, some := r.daemons[d.Number].with(r, g, node); some {
					r.CountLaunched(g, labels, pool)
				}
			case surely, counts && g.typ == Spread && !d.KeptOff:
				r.CountLaunched(g, node, pool)
			}
		}
	}
}

// DaemonName is the name of a DaemonSet, with its namespace.
func (r *Registry) DaemonName(number int) string { return r.daemons[number].name }

// Daemons are the DaemonSets, by number, with pods that the group counts, or that declare it.
func (g *Group) Daemons() resources.Bitset { return g.daemons }

// Daemons are the DaemonSets, by number, with pods that matter to the view: those that the pod follows or keeps away from,
// or that keep it away, or that its spread counts.
func (v *View) Daemons() resources.Bitset { return v.g.daemons }

// LacksDomain reports whether a new node with these labels has no domain of the key.
func (r *Registry) LacksDomain(key string, node requirement.Set) bool {
	return key != corev1.LabelHostname &&
		(!node.Defines(key) && !r.labels.WellKnown[key] || node.Get(key).Operator() == corev1.NodeSelectorOpDoesNotExist)
}
