package topology

import (
	"math"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// kube-scheduler measures skew over hosts against the node with the fewest pods. So does a plan, with the nodes and the
// pods that exist when it begins: a host may then have maxSkew pods more than the existing host with the fewest. A new
// host begins without pods. The pods of a plan fit in any order in which nodes come up and pods are bound if, at its
// end, no host that it uses has more than maxSkew pods more than any other: the host with the fewest at that moment
// always accepts its next pod, or it has all of its pods, and then the minimum is one that the plan counts on. That
// needs two things. No planned node that counts has too few pods at the end, as a node for other pods has: the search
// finds out, and repeats with a lower minimum (LowerHostFloors). And the pods wait for nothing else: if they also
// spread over zones, state, the host may need its pod first and the zone another one (CountNoHosts).
//
// Without existing hosts, or with a single one, pods are not put together, although kube-scheduler would: those who
// spread over hosts want more than one.

// hosts are the existing nodes that count for a spread over hostnames.
type hosts struct {
	r *Registry
	// found is true once staying and leaving are known: the nodes that count, and those of them that are being deleted.
	found            bool
	staying, leaving []*Node
	// lowest is the fewest pods on a host that stays, as of a version of what exists. It is zero where nothing may
	// count on it.
	lowest, version int
	// alone is true if a single host stays.
	alone bool
	// empty is the index of the host that had no pods last time: it probably still has none.
	empty int
	// limit is the most that the current attempt to plan counts on.
	limit int
}

func newHosts(r *Registry) *hosts { return &hosts{r: r, version: -1, limit: math.MaxInt} }

// hostFloor is the number of pods that skew over hosts is measured against. It stays the same in a run.
func (g *Group) hostFloor() int {
	if g.hosts == nil || g.hosts.limit == 0 {
		return 0
	}
	return min(g.hosts.limit, g.hosts.floor(g))
}

// floor is hostFloor without a limit.
//
// Cost: constant; the nodes, after a change to what exists, if each has a pod.
func (h *hosts) floor(g *Group) int {
	if h.version == h.r.hostsVersion {
		return h.lowest
	}
	h.find(g)
	h.version = h.r.hostsVersion
	if h.lowest = h.fewest(g); h.lowest > 0 && !h.settled(g) {
		h.lowest = 0
	}
	return h.lowest
}

// find lists the nodes that count, or may.
func (h *hosts) find(g *Group) {
	if h.found {
		return
	}
	h.found = true
	h.r.steps += len(h.r.nodes)
	for _, n := range h.r.nodes {
		if _, ok := n.Domain(g.key); !ok || n.Deleting && n.Unlaunched || !h.r.Counts(g, n) {
			continue
		}
		if n.Deleting {
			h.leaving = append(h.leaving, n)
		} else {
			h.staying = append(h.staying, n)
		}
	}
}

// fewest is the fewest pods on a host that stays; zero if there are none, or fewer than minDomains.
func (h *hosts) fewest(g *Group) int {
	count := func(n *Node) int {
		d, _ := n.Domain(g.key)
		return g.CountBefore(d) - g.unsure[d]
	}
	if h.empty < len(h.staying) && !h.r.removed[h.staying[h.empty]] && count(h.staying[h.empty]) == 0 {
		return 0
	}
	h.r.steps += len(h.staying)
	lowest, left := math.MaxInt, 0
	for i, n := range h.staying {
		if h.r.removed[n] {
			continue
		}
		left++
		c := count(n)
		if c == 0 {
			h.empty = i
			return 0
		}
		lowest = min(lowest, c)
	}
	h.alone = left == 1
	if left == 0 && g.arrivals != nil && g.minDomains == 1 {
		return g.arrivals.onNew(g, "")
	}
	if left == 0 || left < g.minDomains {
		return 0
	}
	return lowest
}

// settled reports whether the minimum of the hosts that stay is that of kube-scheduler soon enough. A node that leaves
// counts until it is gone, with fewer and fewer pods. Where its pods can be evicted together, others wait for that, and
// not for each other. A budget that lets them go one by one would wait for a pod that waits for the rest. A launch of
// an applied plan is a host of which the pods are not known.
func (h *hosts) settled(g *Group) bool {
	for _, l := range h.r.launched {
		if g.filter.admits(l.Labels, l.Pool.Taints, h.r.labels.WellKnown) {
			return false
		}
	}
	evicted := map[*policyv1.PodDisruptionBudget]int{}
	for _, n := range h.leaving {
		if !h.r.leavesAtOnce(g, n, evicted) {
			return false
		}
	}
	if len(h.r.removed) == 0 {
		return true
	}
	for _, n := range h.staying {
		if h.r.removed[n] && !h.r.leavesAtOnce(g, n, evicted) {
			return false
		}
	}
	return true
}

// leavesAtOnce reports whether nothing holds the node up, and its pods that the group counts can be evicted at once,
// besides those that were before. Evicted counts these by budget.
func (r *Registry) leavesAtOnce(g *Group, n *Node, evicted map[*policyv1.PodDisruptionBudget]int) bool {
	if r.budgets == nil {
		r.budgets = snapshot.Budgets(r.pdbs)
	}
	for _, pod := range n.Pods {
		if snapshot.DaemonOwned(pod) || !snapshot.Active(pod) {
			continue
		}
		if !snapshot.Disruptable(pod, r.now) {
			return false
		}
		r.steps += len(r.budgets)
		for _, b := range r.budgets {
			if !b.Selects(pod) {
				continue
			}
			if g.selects(pod) {
				evicted[b.PodDisruptionBudget]++
			}
			if b.Blocks(pod) || evicted[b.PodDisruptionBudget] > int(b.Status.DisruptionsAllowed) {
				return false
			}
		}
	}
	return true
}

// AddLaunched adds a node that an applied plan launches, and returns how many there were. TruncateLaunched takes back
// all but so many.
func (r *Registry) AddLaunched(node requirement.Set, pool Pool) {
	r.launched = append(r.launched, NewNode{Labels: node, Pool: pool})
	r.hostsVersion++
}

// Launched returns how many nodes applied plans launch.
func (r *Registry) Launched() int { return len(r.launched) }

// TruncateLaunched takes back all but the first n.
func (r *Registry) TruncateLaunched(n int) {
	r.launched = r.launched[:n]
	r.hostsVersion++
}

// ResetHostFloors lets spreads over hosts count on the hosts that exist again.
func (r *Registry) ResetHostFloors() {
	for _, g := range r.lowered {
		g.hosts.limit = math.MaxInt
	}
	r.lowered = r.lowered[:0]
}

// CountNoHosts has a spread over hosts count on no pods of existing hosts, until ResetHostFloors.
func (r *Registry) CountNoHosts(g *Group) {
	if g.hosts.limit > 0 {
		g.hosts.limit = 0
		r.lowered = append(r.lowered, g)
	}
}

// SpreadsOverHosts reports whether the group is a spread over hosts.
func (g *Group) SpreadsOverHosts() bool { return g.hosts != nil }

// CountsOnHosts reports whether the group is a spread over hosts that counts on the pods of existing hosts in this run.
func (g *Group) CountsOnHosts() bool {
	return g.hosts != nil && g.hosts.limit > 0 && g.hosts.version == g.hosts.r.hostsVersion && g.hosts.lowest > 0
}

// LowerHostFloors lowers what the group counts on, if planned nodes have too few of its pods for that: first to what
// they have, then to one, which every node for the group's pods has, then to nothing. It returns whether it did.
//
// Cost: planned and existing nodes.
func (r *Registry) LowerHostFloors(g *Group, planned []NewNode) bool {
	fewest, most := math.MaxInt, 0
	for i := range planned {
		if at := &planned[i]; g.filter.admits(at.Labels, at.Pool.Taints, r.labels.WellKnown) {
			n := g.countOnNew(at.Index)
			fewest, most = min(fewest, n-g.unsureByNew[at.Index]), max(most, n)
		}
	}
	if fewest == math.MaxInt {
		return false
	}
	for d, n := range g.counts {
		if n > g.CountBefore(d) {
			most = max(most, n)
		}
	}
	if most <= g.maxSkew+fewest {
		return false
	}
	if g.hosts.limit == math.MaxInt {
		r.lowered = append(r.lowered, g)
	} else {
		fewest = min(fewest, 1)
	}
	g.hosts.limit = min(fewest, g.hostFloor()-1)
	return true
}
