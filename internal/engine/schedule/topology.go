package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// groupType is the sort of a topology constraint.
type groupType int

const (
	spread groupType = iota
	affinity
	antiAffinity
	// inverse is a required anti-affinity seen from the pods that it keeps out: it counts the pods that declare it.
	inverse
)

func (k groupType) String() string {
	return [...]string{"topology spread", "pod affinity", "pod anti-affinity", "another pod's anti-affinity"}[k]
}

// group counts pods per domain (a value of one label), for all pods with the same topology constraint.
type group struct {
	typ           groupType
	key           string
	allNamespaces bool
	namespaces    map[string]bool
	selector      labels.Selector
	// parts are the groups that a joined group consists of; lookup finds them. Other groups have none.
	parts  []*group
	lookup selectorIndex
	// claim is the volume claim of a group that counts the pods that use it.
	claim string
	// maxSkew, minDomains and filter: spread only.
	maxSkew, minDomains int
	filter              *nodeFilter

	// counts is the number of pods by domain.
	counts map[string]int
	// uncertain is the part of counts that may turn out not to count, since other labels of their nodes are not known
	// yet.
	uncertain map[string]int
	// countsByBin is the number of pods by bin, for groups over hostnames.
	countsByBin []int
	// universe is every domain that exists or can be launched, sorted. Unused for hostnames: each new node adds one.
	universe []string
	// usable are the domains of the universe that the pods' own node selection allows, by any alternative. Skew is
	// measured against these. Spread only.
	usable []string
	// requested are the domains of the universe that only nodes launched for the group's own pods have: see
	// requestedDomains. Skew is measured against them once a pod is there. Spread only.
	requested []string
	// undecided counts pods in bins that have no single domain yet.
	undecided int
	// before are the counts at the start of a run, once the run has touched them.
	before  map[string]int
	touched bool
}

// nodeFilter decides which nodes a spread constraint counts (nodeAffinityPolicy and nodeTaintsPolicy).
type nodeFilter struct {
	node        requirement.Pod
	affinity    bool
	tolerations []corev1.Toleration
	taints      bool
}

func (g *group) selects(pod *corev1.Pod) bool {
	switch {
	case len(g.parts) > 0:
		return g.anyPartSelects(pod)
	case g.claim != "":
		return g.usedBy(pod)
	}
	return (g.allNamespaces || g.namespaces[pod.Namespace]) && g.selector.Matches(labels.Set(pod.Labels))
}

// admitsTaints reports whether a node with these taints counts. As in kube-scheduler, only taints that keep pods off
// exclude a node: those with effect PreferNoSchedule do not.
func (f *nodeFilter) admitsTaints(taints []corev1.Taint) bool {
	if f == nil || !f.taints {
		return true
	}
	_, found := snapshot.UntoleratedHard(f.tolerations, taints)
	return !found
}

// admits reports whether a node with these labels counts; undefined are labels that it may still get.
func (f *nodeFilter) admits(node requirement.Set, taints []corev1.Taint, undefined map[string]bool) bool {
	if !f.admitsTaints(taints) {
		return false
	}
	if f == nil || !f.affinity {
		return true
	}
	if !node.Compatible(f.node.Selector, undefined) {
		return false
	}
	return len(f.node.Required) == 0 ||
		slices.ContainsFunc(f.node.Required, func(t requirement.Set) bool { return node.Compatible(t, undefined) })
}

// certain reports whether every node with these labels counts, as far as affinity is concerned. Types of the template
// may still add known labels; without a template they add none.
func (f *nodeFilter) certain(node requirement.Set, t *nodepool.Template, known map[string]bool) bool {
	if f == nil || !f.affinity {
		return true
	}
	certain := func(set requirement.Set) bool {
		return !slices.ContainsFunc(set.All(), func(r requirement.Requirement) bool {
			if key := r.Key(); !node.Defines(key) {
				missing := !known[key] && (t == nil || !t.DefinesLabel(key))
				return !missing || !r.AllowsAbsent()
			}
			have := node.Get(r.Key())
			return !have.Equal(have.Intersect(r.WithMinValues(0)))
		})
	}
	return certain(f.node.Selector) && (len(f.node.Required) == 0 || slices.ContainsFunc(f.node.Required, certain))
}

// Add counts n pods in a domain.
func (g *group) add(domain string, n int, sure bool) {
	g.counts[domain] += n
	if !sure {
		if g.uncertain == nil {
			g.uncertain = map[string]int{}
		}
		g.uncertain[domain] += n
	}
}

// reaches reports whether a pod may run in a domain by any of its alternatives, considering only the label of the
// domain.
func reaches(pod requirement.Pod, key, domain string) bool {
	return pod.Selector.Get(key).Has(domain) &&
		(len(pod.Required) == 0 || slices.ContainsFunc(pod.Required, func(t requirement.Set) bool { return t.Get(key).Has(domain) }))
}

func compileSelector(s *metav1.LabelSelector, pod *corev1.Pod, match, mismatch []string) labels.Selector {
	if s == nil {
		return labels.Nothing()
	}
	s = s.DeepCopy()
	for i, keys := range [][]string{match, mismatch} {
		for _, k := range keys {
			if v, ok := pod.Labels[k]; ok {
				op := [...]metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn}[i]
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
			}
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func (sv *solver) spreadGroup(pod *corev1.Pod, node requirement.Pod, c *corev1.TopologySpreadConstraint) *group {
	g := &group{
		typ: spread, key: sv.s.Labels.Normalize(c.TopologyKey), maxSkew: int(c.MaxSkew), minDomains: 1,
		namespaces: map[string]bool{pod.Namespace: true},
		selector:   compileSelector(c.LabelSelector, pod, c.MatchLabelKeys, nil),
		filter: &nodeFilter{
			node: node, tolerations: sv.tolerations(pod),
			affinity: c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
			taints:   c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
		},
	}
	if c.MinDomains != nil {
		g.minDomains = int(*c.MinDomains)
	}
	filter := ""
	if g.filter.affinity {
		filter = g.filter.node.Selector.Key() // String abbreviates long lists of values
		for _, t := range g.filter.node.Required {
			filter += "|" + t.Key()
		}
	}
	if g.filter.taints {
		if t, err := json.Marshal(g.filter.tolerations); err == nil {
			filter += string(t)
		}
	}
	return sv.internGroup(g, filter)
}

func (sv *solver) affinityGroup(typ groupType, pod *corev1.Pod, t *corev1.PodAffinityTerm) *group {
	return sv.internGroup(sv.affinityTerm(typ, pod, t), "")
}

// affinityTerm is the term as a group that counts nothing yet.
func (sv *solver) affinityTerm(typ groupType, pod *corev1.Pod, t *corev1.PodAffinityTerm) *group {
	g := &group{
		typ: typ, key: sv.s.Labels.Normalize(t.TopologyKey),
		selector:   compileSelector(t.LabelSelector, pod, t.MatchLabelKeys, t.MismatchLabelKeys),
		namespaces: map[string]bool{},
	}
	for _, ns := range t.Namespaces {
		g.namespaces[ns] = true
	}
	switch {
	case t.NamespaceSelector != nil:
		selector := compileSelector(t.NamespaceSelector, pod, nil, nil)
		g.allNamespaces = selector.Empty()
		for ns, l := range sv.s.Namespaces {
			if selector.Matches(labels.Set(l)) {
				g.namespaces[ns] = true
			}
		}
	case len(t.Namespaces) == 0:
		g.namespaces[pod.Namespace] = true
	}
	return g
}

// internGroup returns the one group with this meaning. It counts the running pods of a new group.
func (sv *solver) internGroup(g *group, filter string) *group {
	// The selector of all pods and that of none both print as the empty string.
	id := fmt.Sprintf("%d|%s|%v|%v|%v|%s|%d|%d|%s", g.typ, g.key, g.allNamespaces, slices.Sorted(maps.Keys(g.namespaces)),
		g.selector.Empty(), g.selector.String(), g.maxSkew, g.minDomains, filter)
	if known, ok := sv.groupByID[id]; ok {
		return known
	}
	g.counts = map[string]int{}
	if g.key != corev1.LabelHostname {
		g.universe = sv.universe(g)
		g.usable = g.reachable()
		if g.requested = sv.requestedDomains(g); len(g.requested) > 0 {
			g.universe = slices.Sorted(slices.Values(slices.Concat(g.universe, g.requested)))
		}
	}
	if g.typ != inverse {
		sv.countRunningPods(g)
	}
	sv.groupByID[id] = g
	sv.groups = append(sv.groups, g)
	return g
}

// reachable are the domains of the universe that the pods' own node selection allows.
func (g *group) reachable() []string {
	var out []string
	for _, d := range g.universe {
		if (g.filter == nil || !g.filter.affinity || reaches(g.filter.node, g.key, d)) && !slices.Contains(g.requested, d) {
			out = append(out, d)
		}
	}
	return out
}

// counts reports whether pods on the node count for the group. A claim without an instance may still get any well-known
// label.
func (sv *solver) counts(g *group, n *node) bool {
	var undefined map[string]bool
	if n.src.Claim != "" && !n.src.Launched {
		undefined = sv.s.Labels.WellKnown
	}
	return g.filter.admits(n.labels, n.src.Taints, undefined)
}

// countDeclared counts the required anti-affinity of pods that are bound already.
func (sv *solver) countDeclared() {
	for _, n := range sv.nodes {
		for _, pod := range n.src.Pods {
			if sv.pending[pod.UID] || snapshot.Terminal(pod) {
				continue
			}
			for _, g := range sv.declaredGroups(pod) {
				if domain, ok := n.domain(g.key); ok {
					g.counts[domain]++
				}
			}
		}
	}
}

// universe lists the values of the group's key on existing nodes and on nodes that can be launched.
func (sv *solver) universe(g *group) []string {
	if g.filter == nil {
		known, ok := sv.universes[g.key]
		if !ok {
			known = sv.findUniverse(g)
			sv.universes[g.key] = known
		}
		return known
	}
	return sv.findUniverse(g)
}

func (sv *solver) findUniverse(g *group) []string {
	out := sv.launchableDomains(g)
	for _, n := range sv.nodes {
		if v, ok := sv.domainProvided(n, g); ok {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// domainProvided is the domain of the group that the node is in, if it counts.
func (sv *solver) domainProvided(n *node, g *group) (string, bool) {
	v, ok := n.domain(g.key)
	return v, ok && !n.src.Deleting && sv.counts(g, n)
}

// launchableDomains lists the group's domains on nodes that can be launched.
func (sv *solver) launchableDomains(g *group) []string {
	var out []string
	for _, t := range sv.pools.All() {
		if !t.LimitsExhausted() && g.filter.admitsTaints(t.Taints()) {
			out = append(out, t.Values(g.key)...)
		}
	}
	return out
}

func (g *group) addInBin(index, n int) {
	for index >= len(g.countsByBin) {
		g.countsByBin = append(g.countsByBin, 0)
	}
	g.countsByBin[index] += n
}

func (g *group) countInBin(index int) int {
	if index < len(g.countsByBin) {
		return g.countsByBin[index]
	}
	return 0
}

// domainsOf lists the domains of key that a node with these requirements may end up in.
func (sv *solver) domainsOf(g *group, reqs requirement.Set) []string {
	r := reqs.Get(g.key)
	if !reqs.Defines(g.key) && !sv.s.Labels.WellKnown[g.key] {
		return nil
	}
	switch r.Operator() {
	case corev1.NodeSelectorOpIn:
		return r.Values()
	case corev1.NodeSelectorOpDoesNotExist:
		return nil
	}
	var out []string
	for _, d := range g.universe {
		if r.Has(d) {
			out = append(out, d)
		}
	}
	return out
}

// minCount is the lowest count among the domains that the pods may use: the global minimum of the skew.
func (g *group) minCount() int {
	if len(g.requested) > 0 {
		return g.minCountWithRequested()
	}
	if len(g.usable) == 0 || len(g.usable) < g.minDomains {
		return 0
	}
	lowest := g.counts[g.usable[0]] - g.uncertain[g.usable[0]]
	for _, d := range g.usable[1:] {
		lowest = min(lowest, g.counts[d]-g.uncertain[d])
	}
	return lowest
}

// view is a topology group from the perspective of a pod.
type view struct {
	g    *group
	self bool // the pod counts itself
	pod  requirement.Requirement
	// node is the pod's node selection with all alternatives.
	node *requirement.Pod
	// ownUndecided is how many of the group's undecided pods are in the bin at hand.
	ownUndecided int
}

// views are the topology constraints of a pod at this relaxation level. The caller must not modify them.
func (c *constraintClass) views(level *relaxationLevel) []view {
	if level.views == nil {
		level.views = make([]view, 0, len(level.groups)+len(c.blockedBy))
		for _, g := range level.groups {
			level.views = append(
				level.views,
				view{g: g, self: g.typ != inverse && g.selects(c.pod), pod: level.strict.Get(g.key), node: &c.node},
			)
		}
		for _, g := range c.blockedBy {
			level.views = append(level.views, view{g: g, pod: level.strict.Get(g.key), node: &c.node})
		}
	}
	return level.views
}

// sortedViews are those of a level's views that some steps look for. A pod can have thousands of views of other pods'
// anti-affinity, and these steps run for each pair of pod and new node.
type sortedViews struct {
	made bool
	// own are those of groups that count the pods themselves, domains those that follow or avoid pods in domains larger
	// than a host.
	own, domains []view
	// affinities are indexes of the views that follow pods.
	affinities []int
}

// sortedViews are the level's views by what steps look for. The caller must not modify them.
func (c *constraintClass) sortedViews(level *relaxationLevel) *sortedViews {
	l := &level.sorted
	if !l.made {
		l.made = true
		for i, v := range c.views(level) {
			if v.self {
				l.own = append(l.own, v)
			}
			if v.g.typ == affinity {
				l.affinities = append(l.affinities, i)
			}
			if v.g.typ != spread && v.g.key != corev1.LabelHostname {
				l.domains = append(l.domains, v)
			}
		}
	}
	return l
}

// keepsApart reports whether the view is of an anti-affinity.
func (v view) keepsApart() bool { return v.g.typ == antiAffinity || v.g.typ == inverse }

// countsUndecided reports whether what the view allows depends on the undecided pods in the bin: see bootstrap.
func (v *view) countsUndecided() bool { return v.g.typ == affinity && v.g.undecided > 0 }

// bootstrap reports whether the first pod of a self-affine set may choose its domain freely: no member is anywhere the
// pod could follow it to. The volume of a shared claim is where the first of its pods is, whoever can follow.
func (v view) bootstrap() bool {
	if !v.self || v.g.undecided > v.ownUndecided {
		return false
	}
	populated, reachable := false, false
	for d, n := range v.g.counts {
		if n > 0 {
			populated = true
			reachable = reachable || reaches(*v.node, v.g.key, d)
		}
	}
	for i, n := range v.g.countsByBin {
		if n > 0 {
			populated = true
			reachable = reachable || reaches(*v.node, v.g.key, hostName(i))
		}
	}
	return !populated || !reachable && v.g.claim == ""
}

// allows reports whether the pod may join the domain.
func (v *view) allows(domain string) bool {
	return v.allowsCount(domain, v.g.counts[domain])
}

// allowsBin reports whether the pod may join the host that a bin will be.
func (v *view) allowsBin(index int) bool {
	n := v.g.countInBin(index)
	switch v.g.typ {
	case spread:
		return n+btoi(v.self) <= v.g.maxSkew
	case affinity:
		return v.allowsCount(hostName(index), n)
	}
	return n == 0
}

func (v *view) allowsCount(domain string, n int) bool {
	switch v.g.typ {
	case spread:
		floor := 0
		if v.g.key != corev1.LabelHostname {
			if _, known := slices.BinarySearch(v.g.universe, domain); !known {
				return false
			}
			floor = v.g.minCount()
		}
		if v.self {
			n++
		}
		return n-floor <= v.g.maxSkew
	case affinity:
		return v.pod.Has(domain) && (n > 0 || v.bootstrap())
	default:
		return n == 0
	}
}

// empty reports whether no pod is counted anywhere. The anti-affinity of an unscheduled pod must not bind others: if
// that pod is scheduled later, it keeps away from them itself.
func (g *group) empty() bool {
	for _, n := range g.counts {
		if n != 0 {
			return false
		}
	}
	return g.undecided == 0 && !slices.ContainsFunc(g.countsByBin, func(n int) bool { return n != 0 })
}

// noDomainLeft reports whether no new node can be in any domain that the level allows, since each domain has a pod to
// keep away from. A new node has a domain unless a pod requires that it has none. A level that allows no domain that
// exists is left to placeInNewBin, which remembers it.
func (sv *solver) noDomainLeft(c *class, level *relaxationLevel) bool {
	return slices.ContainsFunc(c.views(level), func(v view) bool {
		return v.keepsApart() && v.g.key != corev1.LabelHostname && sv.s.Labels.WellKnown[v.g.key] && !sv.pools.RequiresAbsent(v.g.key) &&
			!sv.pools.AbsentOnSomeType(v.g.key) && v.g.full(level.full.Get(v.g.key))
	})
}

// full reports whether each domain that the requirement allows has a pod of the group. At least one has.
func (g *group) full(allowed requirement.Requirement) bool {
	taken := false
	for _, d := range g.universe {
		switch {
		case !allowed.Has(d):
		case g.counts[d] == 0:
			return false
		default:
			taken = true
		}
	}
	return taken
}

// choice narrows a new node to domains.
type choice []requirement.Requirement

// permanent reports whether what the view forbids now stays forbidden: pods are never taken off a host.
func (v view) permanent() bool { return v.g.key == corev1.LabelHostname && v.g.typ != affinity }

// maxChoices bounds how many combinations of domains are tried for one pod on one new node. Three topology keys with
// four zones each give 64.
const maxChoices = 64

// choices lists the ways in which a new node with these requirements can respect the views, best first. Without views
// it is one choice that narrows nothing. The second result is the view that leaves none.
func (sv *solver) choices(views []view, reqs requirement.Set, bin int, price func(requirement.Set) float64) ([]choice, *view) {
	byKey := map[string][]view{}
	for i, v := range views {
		if v.g.key == corev1.LabelHostname {
			if !v.allowsBin(bin) {
				return nil, &views[i]
			}
			continue
		}
		if v.keepsApart() &&
			(!reqs.Defines(v.g.key) && !sv.s.Labels.WellKnown[v.g.key] || reqs.Get(v.g.key).Operator() == corev1.NodeSelectorOpDoesNotExist) {
			continue // the node will have no such label, so no domain and no neighbors
		}
		if v.g.typ == inverse && v.g.empty() || v.keepsApart() && len(v.g.universe) == 0 && !reqs.Defines(v.g.key) {
			continue // no pod that declares it is scheduled, or no node has the label
		}
		byKey[v.g.key] = append(byKey[v.g.key], v)
	}
	out := []choice{nil}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		options, blocked := sv.options(byKey[key], reqs, price)
		if blocked != nil {
			return nil, blocked
		}
		var next []choice
		for _, prefix := range out {
			for _, o := range options {
				if len(next) < maxChoices {
					next = append(next, append(slices.Clone(prefix), o))
				}
			}
		}
		out = next
	}
	return out, nil
}

// rankedDomain is a domain with what decides between domains: the pods of spreads there, then the price.
type rankedDomain struct {
	domain string
	count  int
	price  float64
}

// options lists what the requirement on one key may become under views that share the key.
func (sv *solver) options(views []view, reqs requirement.Set, price func(requirement.Set) float64) ([]requirement.Requirement, *view) {
	key := views[0].g.key
	domains := slices.Clone(sv.domainsOf(views[0].g, reqs))
	spreads, first := false, false
	// Pods that keep apart may also use a node without the label, if some types have none.
	apart := sv.pools.AbsentOnSomeType(key) && !slices.ContainsFunc(views, func(v view) bool { return !v.keepsApart() })
	for i, v := range views {
		left := domains[:0]
		for _, d := range domains {
			if v.allows(d) {
				left = append(left, d)
			}
		}
		domains = left
		if len(domains) == 0 && apart && len(v.g.universe) > 0 {
			return []requirement.Requirement{requirement.NotIn(key, v.g.universe...)}, nil
		}
		if len(domains) == 0 {
			return nil, &views[i]
		}
		// Spread needs a single domain, and so does the first pod of an affinity that others will follow.
		spreads = spreads || v.g.typ == spread
		first = first || v.g.typ == affinity && !slices.ContainsFunc(domains, func(d string) bool { return v.g.counts[d] > 0 })
	}
	if !spreads && !first {
		out := []requirement.Requirement{requirement.In(key, domains...)}
		if apart && len(views[0].g.universe) > 0 {
			out = append(out, requirement.NotIn(key, views[0].g.universe...))
			slices.SortStableFunc(out, func(a, b requirement.Requirement) int { return cmp.Compare(price(reqs.With(a)), price(reqs.With(b))) })
		}
		return out, nil
	}
	order := make([]rankedDomain, len(domains))
	for i, d := range domains {
		order[i] = rankedDomain{domain: d}
		for _, v := range views {
			if v.g.typ == spread {
				order[i].count += v.g.counts[d]
			}
		}
		if len(domains) > 1 {
			order[i].price = price(reqs.With(requirement.In(key, d)))
		}
	}
	slices.SortFunc(order, func(a, b rankedDomain) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.price, b.price), cmp.Compare(a.domain, b.domain))
	})
	out := make([]requirement.Requirement, len(order))
	for i, o := range order {
		out[i] = requirement.In(key, o.domain)
	}
	if !spreads && len(domains) > 1 && reqs.HasMinValues() {
		// No single domain may have as many values as minValues requires. Others can follow onto the node itself.
		out = append(out, requirement.In(key, domains...))
	}
	return out, nil
}
