package schedule

import (
	"slices"
)

// enlargeWindow is how many of the last bins may be enlarged instead of opening another. Older bins have been passed
// over by all pods since, and checking all of them would make a plan quadratic in nodes.
const enlargeWindow = 8

// enlarge looks for a bin that can hold the content of the new one as well, for no more than both cost apart: fewer
// nodes at the same price. It returns the growth of that bin with the pod.
//
// Invariant: a bin that cannot be enlarged keeps its ceiling and target. Cost: at most enlargeWindow walks along a
// price list.
func (sv *solver) enlarge(fresh *bin, g growth, a binRequest, content []plannedPods) (*bin, growth) {
	price := g.cands.List()[g.first].Price
	total := slices.Clone(a.c.requests)
	for _, p := range content {
		for i, r := range p.class.classes[0].requests {
			total[i] += r * int64(p.n)
		}
	}
	if fresh.target.Type >= 0 {
		price = fresh.ceiling
	}
	for k := len(sv.bins) - 1; k >= max(0, len(sv.bins)-enlargeWindow); k-- {
		b := sv.bins[k]
		if b.t != fresh.t || b.cands.HasMinValues() {
			continue
		}
		cands := b.cands.Narrow(a.level.InternedFull())
		if cands == nil {
			continue
		}
		if cands = sv.withFirstDevices(b, a.c, cands); cands == nil {
			continue
		}
		limit := (b.cands.List()[b.first].Price + price) * (1 + 1e-9)
		for _, cand := range cands.List() {
			if cand.Price > limit {
				break
			}
			if !total.FitsBeside(b.total, b.t.TypeOf(cand).Room()) || !sv.reservationAllows(b, cand, ceilingEnforced) {
				continue
			}
			ceiling, target, room, roomVersion := b.ceiling, b.target, b.room, b.roomVersion
			b.ceiling, b.target, b.room = max(ceiling, cand.Price), cand, nil
			if grown, why := sv.grow(b, a.c, a.level, ceilingEnforced); why == nil {
				return b, grown
			}
			b.ceiling, b.target, b.room, b.roomVersion = ceiling, target, room, roomVersion
			sv.noteRoom(b)
			break
		}
	}
	return nil, growth{}
}
