package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/cover"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// uniformBins identifies bins that can become the same types and hold pods of one class.
type uniformBins struct {
	cands *nodepool.Candidates
	c     *podclass.Class
}

// coverExactly replaces bins that hold pods of one class only and can become the same types. How many nodes of which
// type hold n equal pods at the least price is an unbounded covering knapsack, which dynamic programming solves
// exactly. This is the common case of a single workload that scales up, where few nodes are launched and the last one
// matters.
func (r *run) coverExactly() {
	hostGroups := r.hostGroupsInUse()
	bins := map[uniformBins][]*bin.Bin{}
	var order []uniformBins
	for _, b := range r.bins.All() {
		c := b.OnlyClass()
		if c == nil || !r.interchangeable(c, hostGroups) {
			continue
		}
		k := uniformBins{b.Candidates(), c}
		if bins[k] == nil {
			order = append(order, k)
		}
		bins[k] = append(bins[k], b)
	}
	replaced := map[*bin.Bin]bool{}
	var fresh []*bin.Bin
	for _, k := range order {
		if better := r.exactCover(k.cands, k.c, bins[k]); better != nil {
			fresh = append(fresh, better...)
			for _, b := range bins[k] {
				replaced[b] = true
			}
		}
	}
	r.bins.Replace(replaced, fresh)
}

// interchangeable reports whether no rule over hosts, and no reservation, makes a difference between nodes for the pods.
func (r *run) interchangeable(c *podclass.Class, hostGroups map[*topology.Group]bool) bool {
	onHosts := func(g *topology.Group) bool { return hostGroups[g] }
	return r.slots.Len() == 0 && !slices.ContainsFunc(c.Matches(), onHosts) &&
		!slices.ContainsFunc(c.Declares(), onHosts) && !slices.ContainsFunc(c.BlockedBy(), onHosts)
}

// hostGroupsInUse are the groups over hostnames that pods of this run keep to. Those of preferences that all pods have
// given up do not count.
//
// Cost: linear in relaxation levels and their groups.
func (r *run) hostGroupsInUse() map[*topology.Group]bool {
	out := map[*topology.Group]bool{}
	use := func(groups []*topology.Group) {
		for _, g := range groups {
			if g.OverHosts() {
				out[g] = true
			}
		}
	}
	for _, c := range r.classes {
		use(c.Declares())
		use(c.BlockedBy())
		for i, level := range c.Levels() {
			if c.attempts[i].placed > 0 || i == len(c.Levels())-1 {
				use(level.Groups())
			}
		}
	}
	return out
}

// exactCover returns bins for the pods of the old ones, if these are better; nil otherwise.
//
// Invariant: under a plain strategy no replacement costs more than the old bins, since plain plans are what all plans
// are compared with.
func (r *run) exactCover(cands *nodepool.Candidates, c *podclass.Class, old []*bin.Bin) []*bin.Bin {
	var pods []*corev1.Pod
	cost := 0.0
	for _, b := range old {
		cost += b.Cost()
		pods = append(pods, b.Pods()...)
	}
	holders := cover.Holders(cands, c.Requests(), len(pods))
	exact, price := cover.Cheapest(cands, holders, len(pods), 0)
	// Of plans within similarCost of the cheapest, it prefers the one with fewer nodes: a charge per node that adds up
	// to the difference.
	slack := (similarCost - 1) * price
	fewer, dearer := cover.Cheapest(cands, holders, len(pods), slack/float64(max(1, len(exact))))
	if len(fewer) < len(exact) {
		exact, price = fewer, dearer
	}
	r.steps += len(pods) * len(holders)
	if r.how.plain() && price > cost {
		return nil // plain plans are the reference for all plans
	}
	if price > cost*(1-1e-9) && len(exact) >= len(old) || price > cost*similarCost || len(exact) > len(old) && cost <= price*similarCost {
		return nil
	}
	out := make([]*bin.Bin, 0, len(exact))
	for i, h := range exact {
		n := min(h.Pods, len(pods))
		out = append(out, r.bins.Cover(old[min(i, len(old)-1)], c, slices.Clone(pods[:n])))
		pods = pods[n:]
	}
	return out
}
