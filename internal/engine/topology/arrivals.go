package topology

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// A DaemonSet's pod that a spread counts is on a new node before the pods that the node is launched for. So a domain with
// nodes only once one is launched there begins with such pods: kube-scheduler never sees it without them.

// arrivals are the pods of DaemonSets with which domains of a spread begin.
type arrivals struct {
	r *Registry
	// fewest counts how many a first node in a domain surely brings, by domain. A new host begins with those of "".
	fewest map[string]int
	// ofAllPools is true if those of pools with taints that keep the spread's own pods out count, leavesOut if such a pool was left out.
	ofAllPools, leavesOut bool
	// brought are the pods of DaemonSets that planned nodes bring to domains; foreseen is how many they brought in an attempt to plan
	// in which these were too many for pods that had come before, foresights how often that was.
	brought, foreseen map[string]int
	foresights        int
	// standing are the domains of existing nodes that count, as of a version of what exists.
	standing map[string]bool
	version  int
}

func newArrivals(r *Registry) *arrivals {
	return &arrivals{r: r, fewest: map[string]int{}, version: -1}
}

// CountsDaemons reports whether the group is a spread that counts pods of DaemonSets.
func (g *Group) CountsDaemons() bool { return g.arrivals != nil }

// withFirstNode is how many pods of DaemonSets the first new node in the domain surely brings, whatever pool it is of that takes the
// spread's pods; zero where nodes exist. A node for other pods may bring fewer: see Intruders.
//
// Cost: constant; the nodes, after a change to what exists, and the pools, for a domain that is requested the first time.
func (a *arrivals) withFirstNode(g *Group, domain string) int {
	if a.stands(g, domain) {
		return 0
	}
	return a.onNew(g, domain)
}

// stands reports whether existing nodes that count are in the domain.
func (a *arrivals) stands(g *Group, domain string) bool {
	if a.version != a.r.hostsVersion {
		a.version, a.standing = a.r.hostsVersion, map[string]bool{}
		a.r.steps += len(a.r.nodes)
		for _, n := range a.r.nodes {
			if d, ok := a.r.provides(n, g); ok && !a.r.removed[n] {
				a.standing[d] = true
			}
		}
	}
	return a.standing[domain]
}

// onNew returns how many of them a new node in the domain surely brings. A new host has the domain "".
func (a *arrivals) onNew(g *Group, domain string) int {
	n, known := a.fewest[domain]
	if known {
		return n
	}
	found, counted := false, g.nodesIn(domain)
	for _, p := range a.r.open {
		if !g.filter.admitsTaints(p.Taints) || domain != "" && !slices.Contains(p.Labels.Values(g.key), domain) {
			continue
		}
		if !a.ofAllPools && g.isKeptOut(p) {
			a.leavesOut = true
			continue
		}
		here, some := p.Labels.Arriving(g.daemons, a.r.certainIn(g.daemons, p, g.key, domain), counted)
		if some && (!found || here < n) {
			n, found = here, true
		}
	}
	a.r.steps += len(a.r.open)
	a.fewest[domain] = n
	return n
}

// least is the fewest pods that kube-scheduler can find in the domain, once a node is there.
func (g *Group) least(domain string) int {
	if g.arrivals == nil {
		return g.SureCount(domain)
	}
	return max(g.SureCount(domain), g.arrivals.withFirstNode(g, domain))
}

// minCountBeside is minCount for pods that join the domain, which then exists: with as many of them as skew allows, it is above the
// others, however many of its pods count for sure.
func (g *Group) minCountBeside(domain string) int {
	known, exist, lowest := 0, 0, math.MaxInt/2
	note := func(d string) {
		known++
		if g.minDomains > 1 && (d == domain || g.counts[d] > 0 || g.arrivals.stands(g, d)) {
			exist++
		}
		if d != domain {
			lowest = min(lowest, g.least(d))
		}
	}
	for _, d := range g.usable {
		note(d)
	}
	for _, d := range g.requested {
		if g.counts[d] > 0 || d == domain {
			note(d)
		}
	}
	if known == 0 && domain != "" {
		note(domain)
	}
	if known == 0 || known < g.minDomains || g.minDomains > 1 && exist < g.minDomains { // the others do not begin without pods
		return 0
	}
	return lowest
}

// KeepsSkewWith reports whether a new node may bring so many pods of DaemonSets to the domain, as far as the pods of the spread
// are concerned that the plan has placed there.
func (g *Group) KeepsSkewWith(domain string, more int) bool {
	return g.counts[domain]+more-g.minCountBeside(domain) <= g.maxSkew
}

// Coming counts how many pods of DaemonSets come with a new node in a domain; surely is how many of them do whatever the node
// becomes. A new host has the domain "".
type Coming func(domain string) (may, surely int)

// SetComing states which pods of DaemonSets come with the planned node at hand and are not counted in its domain yet. Spread
// only.
func (v *View) SetComing(coming Coming) { v.coming = coming }

// CountsIn reports whether nodes of the pool count for the view, as far as their taints are concerned.
func (v *View) CountsIn(p Pool) bool { return v.g.filter.admitsTaints(p.Taints) }

// HasComing reports whether SetComing has stated some.
func (v *View) HasComing() bool { return v.coming != nil }

// comingTo returns how many pods of DaemonSets come to the domain with the planned node at hand.
func (v *View) comingTo(domain string) (may, surely int) {
	if v.g.arrivals == nil {
		return 0, 0
	}
	if v.g.key == corev1.LabelHostname {
		domain = ""
	}
	if v.coming != nil {
		may, surely = v.coming(domain)
	}
	return max(may, v.g.arrivals.foreseen[domain]-v.g.arrivals.brought[domain]), surely
}

// bring notes that a planned node brings n more pods of DaemonSets to its domain.
func (g *Group) bring(at *NewNode, n int) {
	if g.arrivals == nil || g.OverHosts() {
		return
	}
	if d, ok := at.Labels.Get(g.key).Single(); ok {
		if g.arrivals.brought == nil {
			g.arrivals.brought = map[string]int{}
		}
		g.arrivals.brought[d] += n
	}
}

// maxForesights limits how often an attempt to plan is repeated for one spread, since nodes brought too many pods of DaemonSets. One more
// is made with nodes held back that would bring such pods: see HoldsBack.
const maxForesights = 3

// PlannedPods are the pods on planned nodes in a domain: those that the spread spreads, those that it counts, and those of both.
type PlannedPods struct{ Spread, Counted, Both int }

// Foresee has a spread over domains count the pods of DaemonSets that planned nodes bring from the start, where they are too many beside
// pods that the plan has placed before. It returns whether it did; then planning is to be repeated. ResetForesight takes it back.
func (r *Registry) Foresee(g *Group, on map[string]PlannedPods) (repeat bool) {
	a := g.arrivals
	if a.foresights > maxForesights {
		return false
	}
	for d, brought := range a.brought {
		before := g.CountBefore(d)
		elsewhere := g.counts[d] - before - brought - on[d].Counted // on existing nodes
		n := before + brought + elsewhere + on[d].Both
		if on[d].Spread+elsewhere > 0 && n-g.minCountBeside(d) > g.maxSkew && brought > a.foreseen[d] {
			if a.foreseen == nil {
				a.foreseen = map[string]int{}
			}
			a.foreseen[d], repeat = brought, true
		}
	}
	if repeat {
		a.foresights++
	}
	return repeat
}

// ForgetForesight lets spreads go on without the pods of DaemonSets that they have counted from the start, where nodes bring fewer. From
// then on, the last attempt but one holds back nodes that would bring more. ForgetForesight returns whether it changes anything.
func (r *Registry) ForgetForesight() (changed bool) {
	for _, g := range r.groups {
		if g.arrivals == nil || g.arrivals.foresights > maxForesights { // the last attempt keeps to what the others have found
			continue
		}
		forgotten := false
		for d, n := range g.arrivals.foreseen {
			if brought := g.arrivals.brought[d]; brought < n {
				g.arrivals.foreseen[d], forgotten = brought, true
				r.changes++
			}
		}
		if changed = changed || forgotten; forgotten && g.arrivals.foresights == maxForesights && !slices.Contains(r.holding, g) {
			r.holding = append(r.holding, g)
		}
	}
	for _, g := range r.groups {
		if g.foundsLast && g.Empty() {
			g.foundsLast, changed = false, true
			r.changes++
		}
	}
	return changed
}

// HoldsBack reports whether new nodes of a pool are held back from pods that lack one of the spreads which have forgotten their foresight:
// some of these nodes bring a DaemonSet's pod that the spread counts. Pods with the spread look for themselves. Those that are held back
// had no node before, and follow pods that have one since; they wait for the next plan, which finds these bound.
func (r *Registry) HoldsBack(p Pool, own []*Group, runs func(resources.Bitset) bool) bool {
	return slices.ContainsFunc(r.holding, func(g *Group) bool {
		return !slices.Contains(own, g) && g.filter.admitsTaints(p.Taints) && runs(g.daemons)
	})
}

// FoundLast has the first pod of a set choose a domain only once nothing else lets a pod be placed: nodes for other pods bring DaemonSets'
// pods to another domain, and it can be scheduled only there. If such nodes are still planned then, it waits for the next plan, which knows
// what they have become. It returns whether that is new. ResetForesight takes it back.
func (r *Registry) FoundLast(g *Group) (changed bool) {
	switch {
	case !g.foundedLast:
		g.foundsLast, g.foundedLast = true, true
	case !g.foundsNever:
		g.foundsNever = true
	default:
		return false
	}
	return true
}

// ResetForesight lets spreads count the pods of DaemonSets as nodes bring them again.
func (r *Registry) ResetForesight() {
	for _, g := range r.groups {
		g.foundsLast, g.foundedLast, g.foundsNever = false, false, false
		if g.arrivals != nil {
			g.arrivals.foreseen, g.arrivals.foresights = nil, 0
		}
	}
}
