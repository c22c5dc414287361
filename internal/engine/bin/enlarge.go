package bin

import "github.com/dovetail-k8s/dovetail/internal/engine/resources"

// enlargeWindow sets how many of the last bins may be enlarged instead of opening another. Older bins have been passed
// over by all pods since, and checking all of them would make a plan quadratic in nodes.
const enlargeWindow = 8

// Enlarge looks for a bin that can hold the content of the fresh one as well, given as the total of requests, for no more
// than both cost apart: fewer nodes at the same price. It returns the growth of that bin with the pod; nil if there is none.
//
// Invariant: a bin that cannot be enlarged keeps its ceiling and target. Cost: at most enlargeWindow walks along a
// price list.
func (s *Set) Enlarge(fresh Opening, total resources.Vec) (*Bin, Growth) {
	price := fresh.Growth.Cheapest().Price
	if fresh.Bin.target.Type >= 0 {
		price = fresh.Bin.ceiling
	}
	for k := len(s.all) - 1; k >= max(0, len(s.all)-enlargeWindow); k-- {
		b := s.all[k]
		if b.t != fresh.Bin.t || b.cands.HasMinValues() {
			continue
		}
		cands := b.cands.Narrow(fresh.Level.InternedFull())
		if cands == nil {
			continue
		}
		if cands = s.withFirstDevices(b, fresh.Class, cands); cands == nil {
			continue
		}
		limit := (b.cands.List()[b.first].Price + price) * (1 + 1e-9)
		for _, cand := range cands.List() {
			if cand.Price > limit {
				break
			}
			if !total.FitsBeside(b.total, b.t.TypeOf(cand).Room()) || !s.reservationAllows(b, cand, BelowCeiling) {
				continue
			}
			ceiling, target, room, roomVersion := b.ceiling, b.target, b.room, b.roomVersion
			b.ceiling, b.target, b.room = max(ceiling, cand.Price), cand, nil
			if grown, why := s.Grow(b, fresh.Class, fresh.Level, BelowCeiling); why == nil {
				return b, grown
			}
			b.ceiling, b.target, b.room, b.roomVersion = ceiling, target, room, roomVersion
			s.noteRoom(b)
			break
		}
	}
	return nil, Growth{}
}
