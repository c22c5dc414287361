package topology

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// View is a topology group from the perspective of a pod.
type View struct {
	g    *Group
	self bool // the pod counts itself
	pod  requirement.Requirement
	// node is the pod's node selection with all alternatives.
	node *requirement.Pod
	// ownUndecided counts how many of the group's undecided pods are on the planned node at hand. Of a spread, they are in the domain that
	// the node gets.
	ownUndecided int
	// coming are the DaemonSets' pods that come with the planned node at hand, if they are not counted yet; nil if there are none.
	coming Coming
}

// NewView is the view of a pod that requires the labels, with the node selection node.
func NewView(g *Group, pod *corev1.Pod, asked requirement.Set, node *requirement.Pod) View {
	return View{g: g, self: g.typ != Inverse && g.selects(pod), pod: asked.Get(g.key), node: node}
}

// In is the view of another group with the same constraint, for a pod that requires these labels.
func (v View) In(g *Group, asked requirement.Set) View {
	v.g, v.pod = g, asked.Get(g.key)
	return v
}

// Anywhere is the view of a pod that requires nothing of the domain, and only that it has one.
func (v View) Anywhere() View {
	v.pod = requirement.Exists(v.g.key)
	return v
}

// Group is the group.
func (v *View) Group() *Group { return v.g }

// Key is the label with values that are the domains.
func (v *View) Key() string { return v.g.key }

// Type is the sort of the constraint.
func (v *View) Type() Type { return v.g.typ }

// Self reports whether the pod counts for its own constraint.
func (v *View) Self() bool { return v.self }

// OverHosts reports whether each node is a domain of its own.
func (v *View) OverHosts() bool { return v.g.key == corev1.LabelHostname }

// KeepsApart reports whether the view is of an anti-affinity.
func (v *View) KeepsApart() bool { return v.g.typ == AntiAffinity || v.g.typ == Inverse }

// Permanent reports whether what the view forbids now stays forbidden: pods are never taken off a host.
func (v *View) Permanent() bool { return v.g.key == corev1.LabelHostname && v.g.typ != Affinity }

// CountsUndecided reports whether what the view allows depends on the undecided pods on the planned node: see bootstrap.
func (v *View) CountsUndecided() bool { return v.g.typ == Affinity && v.g.undecided > 0 }

// SeesUndecided reports whether undecided pods on the planned node at hand matter: see SetUndecided.
func (v *View) SeesUndecided() bool { return v.g.undecided > 0 && v.g.NeedsDomain() }

// DependsOnNode reports whether planned nodes with equal labels may differ in what the view allows.
func (v *View) DependsOnNode() bool {
	return v.CountsUndecided() || v.ownUndecided > 0 || v.coming != nil
}

// SetUndecided states how many of the group's undecided pods are on the planned node at hand.
func (v *View) SetUndecided(n int) { v.ownUndecided = n }

// Reaches reports whether the pod may run in the domain by any of its alternatives.
func (v *View) Reaches(domain string) bool { return reaches(*v.node, v.g.key, domain) }

// MostOnHost returns how many pods one node may hold of those that declare the constraint and are counted by it; zero if the
// view is of no such rule over hosts.
func (v *View) MostOnHost() int {
	if v.g.key != corev1.LabelHostname || !v.self || v.g.claim != "" {
		return 0
	}
	switch v.g.typ {
	case Spread:
		return v.g.maxSkew + v.g.hosts.floor(v.g)
	case AntiAffinity:
		return 1
	}
	return 0
}

// Allows reports whether the pod may join the domain.
func (v *View) Allows(domain string) bool {
	return v.allowsCount(domain, v.g.counts[domain])
}

// Excluded reports whether the pod may run in some domain, but join none of them.
func (v *View) Excluded() bool {
	reached := false
	for _, d := range v.g.universe {
		if !v.Reaches(d) {
			continue
		}
		if v.Allows(d) {
			return false
		}
		reached = true
	}
	return reached
}

// MayAllow is Allows for any planned node: what an affinity allows may depend on the undecided pods there.
func (v *View) MayAllow(domain string) bool {
	return v.CountsUndecided() || v.Allows(domain)
}

// AllowsNew reports whether the pod may join the host that a planned node will be.
func (v *View) AllowsNew(index int) bool {
	n := v.g.countOnNew(index)
	switch v.g.typ {
	case Spread:
		if v.self {
			n++
		}
		may, _ := v.comingTo("")
		return n+may <= v.g.MostOnNewHost()
	case Affinity:
		return v.allowsCount(HostName(index), n)
	}
	return n == 0
}

func (v *View) allowsCount(domain string, n int) bool {
	switch v.g.typ {
	case Spread:
		floor := 0
		if v.g.OverHosts() {
			if floor = v.g.hostFloor(); v.g.hosts.alone {
				floor = 0
			}
		} else {
			if _, known := slices.BinarySearch(v.g.universe, domain); !known {
				return false
			}
			floor = v.g.minCount()
		}
		return v.keepsSkew(domain, n, floor)
	case Affinity:
		return v.pod.Has(domain) && (n > 0 || (v.g.pin == "" || v.g.pin == domain) && v.bootstrap())
	default:
		return n == 0
	}
}

// keepsSkew reports whether the pod may join a domain that has n pods, where the global minimum is floor. Spread only.
func (v *View) keepsSkew(domain string, n, floor int) bool {
	if v.self {
		n++
	}
	n += v.ownUndecided
	unsure := 0
	if v.g.arrivals != nil && !v.OverHosts() {
		may, surely := v.comingTo(domain)
		n, unsure, floor = n+may, may-surely, v.g.minCountBeside(domain)
	}
	return n-floor <= v.g.maxSkew && v.g.mayHave(domain, n-unsure-v.maybeLater())
}

// maybeLater is one if kube-scheduler may find the pod's domain without the pod: another spread may have it wait for those that the domain
// is to make room for. Spread only.
func (v *View) maybeLater() int {
	return btoi(v.self && len(v.g.filter.present) > 0)
}

// allowed returns those of the domains that the pod may join. The result is in the memory of the argument.
func (v *View) allowed(domains []string) []string {
	left := domains[:0]
	if v.g.typ != Spread || v.OverHosts() {
		for _, d := range domains {
			if v.Allows(d) {
				left = append(left, d)
			}
		}
		return left
	}
	floor := v.g.minCount() // of all domains at once: there may be as many as instance types
	for _, d := range domains {
		if _, known := slices.BinarySearch(v.g.universe, d); known && v.keepsSkew(d, v.g.counts[d], floor) {
			left = append(left, d)
		}
	}
	return left
}

// domainsPerStep sets how many domains are compared in one step.
const domainsPerStep = 16

// steps returns what one check of the view costs: a spread compares the domain with all others.
func (v *View) steps() int {
	if v.g.typ != Spread || v.OverHosts() {
		return 1
	}
	return 1 + len(v.g.usable)/domainsPerStep
}

// SortedViews are the views of a pod's views that some steps look for. A pod can have thousands of views of other pods'
// anti-affinity, and these steps run for each pair of pod and new node. The zero value is not filled yet.
type SortedViews struct {
	filled       bool
	own, domains []View
	undecided    []int
	steps        int
	daemons      []int
}

// Fill sorts the views, unless that is done already.
func (s *SortedViews) Fill(views []View) {
	if s.filled {
		return
	}
	s.filled = true
	for i, v := range views {
		s.steps += v.steps()
		if v.self {
			s.own = append(s.own, v)
		}
		if v.g.NeedsDomain() && !v.OverHosts() {
			s.undecided = append(s.undecided, i)
		}
		if len(v.g.daemons) > 0 {
			s.daemons = append(s.daemons, i)
		}
		if v.g.typ != Spread && v.g.key != corev1.LabelHostname {
			s.domains = append(s.domains, v)
		}
	}
}

// Steps returns what it costs to check all of the views for one node.
func (s *SortedViews) Steps() int { return s.steps }

// Own are the views of groups that count the pods themselves.
func (s *SortedViews) Own() []View { return s.own }

// Domains are the views that follow or avoid pods in domains larger than a host.
func (s *SortedViews) Domains() []View { return s.domains }

// WithDaemons are the indexes of the views that DaemonSets' pods matter to.
func (s *SortedViews) WithDaemons() []int { return s.daemons }

// WithUndecided are the indexes of the views to which undecided pods on the node at hand matter.
func (s *SortedViews) WithUndecided() []int { return s.undecided }
