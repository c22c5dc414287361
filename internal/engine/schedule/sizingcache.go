package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
)

// sizedBin is what chooseSize decided last, with all that the decision depends on. Queues have long runs of equal pods, and
// bins that are opened one after the other for them mostly become the same.
//
// Invariant: reused gives what chooseSize would decide again.
type sizedBin struct {
	disabled bool // for tests
	run      int
	first    *packingClass
	// cands and from are the candidates of the new bin and the first of them that holds the pod.
	cands *nodepool.Candidates
	from  int
	// solvedFor identifies the solution of the LP: the value of the pods that it was solved for. matching are the
	// patterns that can be followed.
	solvedFor float64
	matching  []int
	// offered are the demands that the bin could be filled with, quotas the bounds that some of them share.
	offered []offeredDemand
	quotas  []int
	sizing
}

// offeredDemand is a demand as it was when the bin was sized.
type offeredDemand struct {
	class *packingClass
	cands *nodepool.Candidates
	n     int
	quota int
	// most is how many pods any of the packings took.
	most int
	// coarse is true if n decided how many pods a packing took in one turn.
	coarse bool
}

// allows reports whether the packings would take the same pods of the demand as it is now. Where they took fewer than
// there were, they were limited by room, quotas or balance.
func (o *offeredDemand) allows(d *demand) bool {
	return o.class == d.class.packingClass && o.cands == d.cands && o.quota == d.quota &&
		(o.n == d.n || d.n > o.most && (!o.coarse || o.n/maxTurns == d.n/maxTurns))
}

// reuseSizing reports whether the last decision holds for a new bin as well.
//
// Cost: one comparison per demand, where the decision takes a packing per entry of the shortlist.
func (sv *solver) reuseSizing(queue []demand, first *class, g bin.Growth) bool {
	s := &sv.sized
	if s.disabled || s.run != sv.run || s.first != first.packingClass || s.cands != g.Candidates() || s.from != g.First() ||
		s.solvedFor != sv.prices.lastValue || len(s.offered) != len(queue) || !slices.Equal(s.quotas, sv.quotas.most) ||
		!slices.Equal(s.matching, sv.prices.market.Program().MatchingPatterns(first.lpPods)) {
		return false
	}
	for k := range queue {
		if !s.offered[k].allows(&queue[k]) {
			return false
		}
	}
	return true
}

// startSizing records what a decision depends on. Limits and reservations change with each bin, so that nothing is
// reused where there are any.
func (sv *solver) startSizing(queue []demand, first *class, g bin.Growth) {
	s := &sv.sized
	s.run, s.first, s.cands, s.from, s.solvedFor = sv.run, first.packingClass, g.Candidates(), g.First(), sv.prices.lastValue
	if g.Candidates().Template().HasLimits() || sv.slots.Len() > 0 {
		s.run = 0
	}
	s.matching = append(s.matching[:0], sv.prices.market.Program().MatchingPatterns(first.lpPods)...)
	s.offered, s.quotas = s.offered[:0], append(s.quotas[:0], sv.quotas.most...)
	for k := range queue {
		d := &queue[k]
		d.coarse = false
		s.offered = append(s.offered, offeredDemand{class: d.class.packingClass, cands: d.cands, n: d.n, quota: d.quota})
	}
}

// addPacking records what one packing took: pods of the touched demands.
func (s *sizedBin) addPacking(queue []demand, touched []int32) {
	for _, k := range touched {
		s.offered[k].most = max(s.offered[k].most, queue[k].taken)
	}
}

// finish records the decision.
func (s *sizedBin) finish(queue []demand, size sizing) {
	for k := range queue {
		s.offered[k].coarse = queue[k].coarse
	}
	s.sizing = size
}
