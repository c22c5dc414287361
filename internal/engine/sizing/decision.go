package sizing

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
)

// decision describes what Choose decided last, with all that it depends on. Queues have long runs of equal pods, and bins that are
// opened one after the other for them mostly become the same.
//
// Invariant: holds gives what Choose would decide again.
type decision struct {
	run   int // zero for none
	first *PackingClass
	// cands and from are the candidates of the new bin and the first of them that holds the pod.
	cands *nodepool.Candidates
	from  int
	// prices identifies the prices, matching are the patterns that could be followed.
	prices   int
	matching []int
	// offered are the demands that the bin could be filled with, quotas the bounds that some of them share.
	offered []offeredDemand
	quotas  []int
	size    Size
}

// offeredDemand is a demand as it was when the bin was sized.
type offeredDemand struct {
	class *PackingClass
	cands *nodepool.Candidates
	n     int
	quota int
	// most limits how many pods any of the packings took.
	most int
	// coarse is true if n decided how many pods a packing took in one turn.
	coarse bool
}

// allows reports whether the packings would take the same pods of the demand as it is now. Where they took fewer than
// there were, they were limited by room, quotas or balance.
func (o *offeredDemand) allows(d *demand) bool {
	return o.class == d.pods.packing && o.cands == d.cands && o.quota == d.quota &&
		(o.n == d.n || d.n > o.most && (!o.coarse || o.n/maxTurns == d.n/maxTurns))
}

// holds reports whether the last decision holds for a new bin as well.
//
// Cost: one comparison per demand, where the decision takes a packing per entry of the shortlist.
func (s *Sizer) holds(queue []demand, o *Opening) bool {
	was := &s.last
	if was.run != s.run || was.first != o.First.packing || was.cands != o.Growth.Candidates() || was.from != o.Growth.First() ||
		was.prices != s.rankings.prices || len(was.offered) != len(queue) || !slices.Equal(was.quotas, s.quotas.most) ||
		!slices.Equal(was.matching, s.market.Program().MatchingPatterns(o.First.number)) {
		return false
	}
	// Demands are compared by position: both lists are in the order of the queue, without classes that can add nothing.
	for k := range queue {
		if !was.offered[k].allows(&queue[k]) {
			return false
		}
	}
	return true
}

// begin records what a decision depends on. Limits and reservations change with each bin, so that no decision holds for
// another bin where there are any.
func (s *Sizer) begin(queue []demand, o *Opening) {
	now := &s.last
	now.run, now.first, now.cands, now.from = s.run, o.First.packing, o.Growth.Candidates(), o.Growth.First()
	now.prices = s.rankings.prices
	if now.cands.Template().HasLimits() || s.c.Slots.Len() > 0 {
		now.run = 0
	}
	now.matching = append(now.matching[:0], s.market.Program().MatchingPatterns(o.First.number)...)
	now.offered, now.quotas = now.offered[:0], append(now.quotas[:0], s.quotas.most...)
	for k := range queue {
		d := &queue[k]
		d.coarse = false
		now.offered = append(now.offered, offeredDemand{class: d.pods.packing, cands: d.cands, n: d.n, quota: d.quota})
	}
}

// addPacking records what one packing took: pods of the touched demands.
func (was *decision) addPacking(queue []demand, touched []int32) {
	for _, k := range touched {
		was.offered[k].most = max(was.offered[k].most, queue[k].taken)
	}
}

// finish records the decision.
func (was *decision) finish(queue []demand, size Size) {
	for k := range queue { // only now, since any of the packings may have set it
		was.offered[k].coarse = queue[k].coarse
	}
	was.size = size
}
