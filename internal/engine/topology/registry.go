package topology

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Registry has all groups of a snapshot.
//
// Nodes and pools are added first, then groups are made, and last the groups are indexed (CountDeclared, Index). From
// then on, groups stay and counts change.
type Registry struct {
	labels     requirement.Labels
	now        time.Time
	namespaces map[string]map[string]string
	pending    map[types.UID]bool
	nodes      []*Node
	pools      []Pool // all of them
	open       []Pool // those with limits that allow another node
	groups     []*Group
	byID       map[string]*Group
	// universes are the domains of groups that count all nodes, by key.
	universes map[string][]string
	selectors selectorIndex       // finds the groups that count a pod
	running   *runningPods        // made on first use
	declared  map[string][]*Group // of running pods with many terms
	lacked    map[string]bool     // labels that some type lacks: see lackedBySomeType
	known     map[string][]string // see knownValues
	static    []snapshot.Pool     // those with replicas
	removed   map[*Node]bool      // by Removals
	// hostsVersion counts the changes to what nodes exist, and to the pods on them. Launched are the nodes of applied plans, lowered the
	// groups that count on less than exists: see hosts.
	hostsVersion int
	launched     []NewNode
	lowered      []*Group
	// holding are the spreads that hold back new nodes: see HoldsBack.
	holding  []*Group
	pdbs     []*policyv1.PodDisruptionBudget
	budgets  []snapshot.Budget // made on first use
	daemons  []daemon
	counted  resources.Bitset     // see CountedDaemons
	keepsOff bool                 // something may keep pods of DaemonSets off new nodes
	touched  []*Group             // since the last Undo or Keep
	noted    map[*Group][]example // of groups as they were before the first NoteMoved since the last Keep
	changes  int                  // see Changes
	steps    int
	endSoon  []runningPod // see almostGone; nil until it is needed
	bars     []bar        // those of all pods that are about to be gone; nil until they are needed
	// choiceSteps are the steps of Choices.
	choiceSteps int
}

// NewRegistry is the registry of a snapshot without nodes and pools. Pending pods are those that are being placed: they
// do not count where they run.
func NewRegistry(s *snapshot.Snapshot, pending map[types.UID]bool) *Registry {
	return &Registry{
		labels: s.Labels, now: s.Now, namespaces: s.Namespaces, pending: pending, byID: map[string]*Group{}, universes: map[string][]string{},
		declared: map[string][]*Group{}, lacked: map[string]bool{}, known: map[string][]string{}, removed: map[*Node]bool{},
		pdbs:   s.PDBs,
		static: slices.DeleteFunc(slices.Clone(s.Pools), func(p snapshot.Pool) bool { return p.NodePool.Spec.Replicas == nil }),
	}
}

// AddNode adds an existing node.
func (r *Registry) AddNode(n *Node) { r.nodes = append(r.nodes, n) }

// AddPool adds a pool. If its limits are exhausted, it provides no domains.
func (r *Registry) AddPool(p Pool, exhausted bool) {
	r.pools = append(r.pools, p)
	if !exhausted {
		r.open = append(r.open, p)
	}
}

// Groups are all groups, in the order in which they were made. The caller must not change the list.
func (r *Registry) Groups() []*Group { return r.groups }

// TakeSteps returns how much work was done since the last call: pods and groups that were compared.
func (r *Registry) TakeSteps() int {
	n := r.steps
	r.steps = 0
	return n
}

// CountDeclared counts the required anti-affinity of pods that are bound already.
func (r *Registry) CountDeclared() {
	for _, n := range r.nodes {
		for _, pod := range n.Pods {
			if r.pending[pod.UID] || snapshot.Terminal(pod) {
				continue
			}
			for _, g := range r.declaredBy(pod) {
				if domain, ok := g.Domain(n); ok && r.CountsPod(g, n, pod) {
					g.counts[domain]++
					g.note(pod, n)
					if n.Deleting { // which the pod leaves
						g.addUnsure(domain, 1)
					}
				}
			}
		}
	}
	r.declareDaemons()
}

// Index prepares Find for the groups that there are.
func (r *Registry) Index() {
	r.selectors = selectorIndex{}
	for i, g := range r.groups {
		if !g.indexed() {
			r.selectors.any = append(r.selectors.any, i) // such groups have their own index
			continue
		}
		r.selectors.add(i, g.selector)
	}
	r.indexDaemons()
	r.findKeepers()
}

// Find lists the groups that count the pod, and the inverse groups that keep it out, each in the order of Groups.
//
// Cost: the groups with selectors that share a label with the pod.
func (r *Registry) Find(pod *corev1.Pod) (counting, blocking []*Group) {
	var found []int
	r.selectors.find(pod.Labels, func(i int) bool {
		r.steps++
		if r.groups[i].selects(pod) {
			found = append(found, i)
		}
		return false
	})
	slices.Sort(found)
	for _, i := range slices.Compact(found) {
		if g := r.groups[i]; g.typ == Inverse {
			blocking = append(blocking, g)
		} else {
			counting = append(counting, g)
		}
	}
	return counting, blocking
}

// universe lists the values of the group's key on existing nodes and on nodes that can be launched.
func (r *Registry) universe(g *Group) []string {
	if g.filter == nil && len(g.lacking) == 0 {
		known, ok := r.universes[g.key]
		if !ok {
			known = r.findUniverse(g)
			r.universes[g.key] = known
		}
		return known
	}
	return r.findUniverse(g)
}

// findUniverse is universe; for spreads without what can be launched, which depends on their pods: see addOffered.
func (r *Registry) findUniverse(g *Group) []string {
	var out []string
	if g.typ != Spread {
		out = r.launchable(g)
	}
	for _, n := range r.nodes {
		if v, ok := r.provides(n, g); ok {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// provides is the domain of the group that the node is in, if it counts.
func (r *Registry) provides(n *Node, g *Group) (string, bool) {
	v, ok := n.Domain(g.key)
	return v, ok && (!n.Deleting || g.typ == Spread && r.staysFor(n)) && r.Counts(g, n)
}

// staysFor reports whether a node that is being deleted stays for as long as the plan needs to know: none of its pods
// are planned, so that this plan is not what empties it. kube-scheduler counts its domains until it is gone.
func (r *Registry) staysFor(n *Node) bool {
	return !n.Unlaunched && !slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool { return r.pending[pod.UID] })
}

// launchable lists the group's domains on nodes that can be launched.
func (r *Registry) launchable(g *Group) []string {
	var out []string
	for _, p := range r.open {
		if g.filter.admitsTaints(p.Taints) {
			out = append(out, p.Labels.Values(g.key)...)
		}
	}
	return out
}

// DomainsOf lists the domains of the group that a node with these labels may end up in. The caller must not change it.
func (r *Registry) DomainsOf(g *Group, node requirement.Set) []string {
	own := node.Get(g.key)
	if !node.Defines(g.key) && !r.labels.WellKnown[g.key] {
		return nil
	}
	switch own.Operator() {
	case corev1.NodeSelectorOpIn:
		return own.Values()
	case corev1.NodeSelectorOpDoesNotExist:
		return nil
	}
	var out []string
	for _, d := range g.universe {
		if own.Has(d) {
			out = append(out, d)
		}
	}
	return out
}

// NoDomainLeft reports whether no new node can be in any domain that the pod's views and its requirements queried allow,
// since each domain has a pod to keep away from. A new node has a domain unless a pod or pool requires that it has
// none: absent states of which labels one does. It is false where queried allows no domain that exists.
func (r *Registry) NoDomainLeft(views []View, asked requirement.Set, absent func(key string) bool) bool {
	return slices.ContainsFunc(views, func(v View) bool {
		return v.KeepsApart() && !v.OverHosts() && r.labels.WellKnown[v.g.key] && !absent(v.g.key) &&
			!r.lackedBySomeType(v.g.key) && v.g.full(asked.Get(v.g.key))
	})
}

// lackedBySomeType reports whether the nodes of some type do not have the label.
func (r *Registry) lackedBySomeType(key string) bool {
	lacked, known := r.lacked[key]
	if !known {
		lacked = slices.ContainsFunc(r.pools, func(p Pool) bool { return p.Labels.Lacks(key) })
		r.lacked[key] = lacked
	}
	return lacked
}
