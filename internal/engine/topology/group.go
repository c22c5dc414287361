package topology

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Type is the sort of a topology constraint.
type Type int

// Types of constraints.
const (
	Spread Type = iota
	Affinity
	AntiAffinity
	// Inverse is a required anti-affinity seen from the pods that it keeps out: it counts the pods that declare it.
	Inverse
)

func (t Type) String() string {
	return [...]string{"topology spread", "pod affinity", "pod anti-affinity", "another pod's anti-affinity"}[t]
}

// Group counts pods per domain (a value of one label), for all pods with the same topology constraint. Two groups of one
// Registry never have the same meaning.
type Group struct {
	typ           Type
	key           string
	allNamespaces bool
	namespaces    map[string]bool
	selector      labels.Selector
	// parts are the groups that a joined group consists of; lookup finds them. Other groups have none.
	parts  []*Group
	lookup selectorIndex
	// lacking are the existing nodes that have the key only under its other name, or another key of the same spread: kube-scheduler sees
	// them in no domain.
	lacking []string
	// claim is the volume claim of a group that counts the pods that use it.
	claim string
	// others are the groups of the same affinity over other keys: they count the same pods. Affinity only.
	others []*Group
	// apart is true if the group's pods keep away from pods that are about to be gone; bars are the anti-affinities, by number, by which such
	// pods keep away from them. Affinity only.
	apart bool
	bars  []int
	// pin is the only domain that a first pod may choose; empty if it may choose any.
	pin string
	// foundsLast is true while the first pod must not choose a domain, foundedLast once that was tried, and foundsNever once that was no
	// use: see FoundLast.
	foundsLast, foundedLast, foundsNever bool
	// daemons are the DaemonSets, by number, with pods that the group counts, or that declare it.
	daemons resources.Bitset
	// maxSkew, minDomains and filter: spread only.
	maxSkew, minDomains int
	filter              *filter

	// arrivals are the pods of DaemonSets with which domains begin; nil if the group counts none. Spread only.
	arrivals *arrivals
	// hosts are the existing nodes that count. Spread over hostnames only.
	hosts *hosts

	// counts is the number of pods by domain.
	counts map[string]int
	// examples are running pods that were counted when the group was made: the first of each of the first nodes, by name.
	examples []example
	// uncertain is the part of counts that may turn out not to count, since other labels of their nodes are not known
	// yet.
	uncertain map[string]int
	// unsure is the part of counts that are DaemonSets' pods which may not come to claims without an instance; of an Inverse group, all those
	// that are yet to come, and the pods on nodes that are being deleted.
	unsure map[string]int
	// countsByNew is the number of pods by planned node, for groups over hostnames. Those of DaemonSets that may not come are in
	// unsureByNew, too.
	countsByNew []int
	unsureByNew map[int]int
	// universe is every domain that exists or can be launched, sorted. Unused for hostnames: each new node adds one.
	universe []string
	// usable are the domains of the universe that the pods' own node selection allows, by any alternative. Skew is
	// measured against these. Spread only.
	usable []string
	// offered are the domains of the universe in which nodes could be launched for the group's pods when planning began.
	// Spread only.
	offered []string
	// foreign are the other domains in which nodes that count could be launched then, for other pods. They are usable once
	// CountForeign reports it. Spread only.
	foreign []string
	// countable are foreign and the domains that would be without the nodes that exist there.
	countable []string
	// unreleased are the domains before the first Release since the last Undo or Keep; nil if there was none.
	unreleased *domainsBefore
	// unbrief are those before a Release that lasts until the next pod that counts; nil if there is none.
	unbrief *domainsBefore
	// requested are the domains of the universe that only nodes launched for the group's own pods have: see requested.go.
	// Skew is measured against them once a pod is there. Spread only.
	requested []string
	// beside is the number of the plan's pods by domain that state the spread and that it does not count. Those on existing nodes are left
	// out, since they wait for no node. Spread only.
	beside map[string]int
	// undecided counts pods on planned nodes that have no single domain yet.
	undecided int
	// before are the counts at the last Undo or Keep, once touched is true. They are the same map as counts until owned is true.
	before         map[string]int
	touched, owned bool
}

// Type is the sort of the constraint.
func (g *Group) Type() Type { return g.typ }

// Key is the label with values that are the domains.
func (g *Group) Key() string { return g.key }

// OverHosts reports whether each node is a domain of its own.
func (g *Group) OverHosts() bool { return g.key == corev1.LabelHostname }

// Spreads reports whether the group spreads pods over the values of the label.
func (g *Group) Spreads(key string) bool { return g.typ == Spread && g.key == key }

// NeedsDomain reports whether pods of the group count only where their domain is known: they spread, or others follow
// them. Pods that keep apart count wherever they may come up.
func (g *Group) NeedsDomain() bool { return g.typ == Spread || g.typ == Affinity }

// KeepsApartOnHosts reports whether the group bounds how many of its pods share a host.
func (g *Group) KeepsApartOnHosts() bool {
	return g.OverHosts() && (g.typ == Spread || g.typ == AntiAffinity) && g.claim == ""
}

// MaxSkew is the field of a spread.
func (g *Group) MaxSkew() int { return g.maxSkew }

// MostOnNewHost returns how many pods of a spread over hosts a new node may hold.
func (g *Group) MostOnNewHost() int { return g.maxSkew + g.hostFloor() }

// MinDomains is the field of a spread, 1 by default.
func (g *Group) MinDomains() int { return g.minDomains }

// Universe is every domain that exists or can be launched, sorted. The caller must not change it.
func (g *Group) Universe() []string { return g.universe }

// Usable are the domains of a spread's universe that the pods' own node selection allows. The caller must not change it.
func (g *Group) Usable() []string { return g.usable }

// Undecided is the number of pods on planned nodes that have no single domain yet.
func (g *Group) Undecided() int { return g.undecided }

// Count is the number of pods in the domain.
func (g *Group) Count(domain string) int { return g.counts[domain] }

// SureCount is Count without pods that may turn out not to count.
func (g *Group) SureCount(domain string) int {
	return g.counts[domain] - g.uncertain[domain] - g.unsure[domain]
}

// CountBefore is the number of pods in the domain at the last Undo or Keep.
func (g *Group) CountBefore(domain string) int {
	if g.touched {
		return g.before[domain]
	}
	return g.counts[domain]
}

// EmptyBefore reports whether no pod was counted anywhere at the last Undo or Keep.
func (g *Group) EmptyBefore() bool {
	counts := g.counts
	if g.touched {
		counts = g.before
	}
	for _, n := range counts {
		if n != 0 {
			return false
		}
	}
	return true
}

// Selector is the label selector of the pods that count, as text. Joined terms and shared claims have none.
func (g *Group) Selector() string { return g.selector.String() }

// NodeLabels are the labels of nodes by which the group distinguishes  which pods count: its key, and what a filter queries.
func (g *Group) NodeLabels() []string { return append([]string{g.key}, g.filter.labelKeys()...) }

// Selects reports whether the pod counts for the group, wherever it is.
func (g *Group) Selects(pod *corev1.Pod) bool { return g.selects(pod) }

// selects is Selects.
func (g *Group) selects(pod *corev1.Pod) bool {
	switch {
	case g.typ == Spread && g.selector.Empty():
		return false // as kube-scheduler does: see countPodsMatchSelector
	case len(g.parts) > 0:
		return g.lookup.find(pod.Labels, func(i int) bool { return g.parts[i].selects(pod) })
	case g.claim != "":
		return g.usedBy(pod)
	}
	return (g.allNamespaces || g.namespaces[pod.Namespace]) && g.selector.Matches(labels.Set(pod.Labels))
}

// usedBy reports whether the pod has a volume of the group's claim.
func (g *Group) usedBy(pod *corev1.Pod) bool {
	return g.namespaces[pod.Namespace] && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		name, ok := snapshot.ClaimName(pod, &v)
		return ok && name == g.claim
	})
}

// indexed reports whether the selector states by labels alone which pods may count.
func (g *Group) indexed() bool { return len(g.parts) == 0 && g.claim == "" }

// reachable are the domains of the universe that the pods' own node selection allows, but for those of nodes for other pods.
func (g *Group) reachable() []string {
	var out []string
	for _, d := range g.universe {
		selected := g.filter == nil || !g.filter.affinity || reaches(g.filter.node, g.key, d)
		if selected && !slices.Contains(g.foreign, d) && !slices.Contains(g.requested, d) {
			out = append(out, d)
		}
	}
	return out
}

// add counts n pods in a domain.
func (g *Group) add(domain string, n int, sure bool) {
	g.counts[domain] += n
	if !sure {
		if g.uncertain == nil {
			g.uncertain = map[string]int{}
		}
		g.uncertain[domain] += n
	}
}

func (g *Group) addOnNew(index, n int, surely bool) {
	if !surely {
		if g.unsureByNew == nil {
			g.unsureByNew = map[int]int{}
		}
		g.unsureByNew[index] += n
	}
	for index >= len(g.countsByNew) {
		g.countsByNew = append(g.countsByNew, 0)
	}
	g.countsByNew[index] += n
}

func (g *Group) countOnNew(index int) int {
	if index < len(g.countsByNew) {
		return g.countsByNew[index]
	}
	return 0
}

// minCount is the lowest count among the domains that the pods may use: the global minimum of the skew.
func (g *Group) minCount() int {
	if g.arrivals != nil {
		return g.minCountBeside("")
	}
	if len(g.requested) > 0 {
		return g.minCountWithRequested()
	}
	if len(g.usable) == 0 || len(g.usable) < g.minDomains {
		return 0
	}
	lowest := g.SureCount(g.usable[0])
	for _, d := range g.usable[1:] {
		lowest = min(lowest, g.SureCount(d))
	}
	return lowest
}

// full reports whether each domain that the requirement allows has a pod of the group. At least one has.
func (g *Group) full(allowed requirement.Requirement) bool {
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

// Empty reports whether no pod is counted anywhere. The anti-affinity of an unscheduled pod must not bind others: if
// that pod is scheduled later, it keeps away from them itself.
func (g *Group) Empty() bool {
	for _, n := range g.counts {
		if n != 0 {
			return false
		}
	}
	return g.undecided == 0 && !slices.ContainsFunc(g.countsByNew, func(n int) bool { return n != 0 })
}
