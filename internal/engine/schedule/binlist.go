package schedule

import "slices"

// binList is the bins that may still take a pod of one class at one relaxation level, in the order in which they were
// opened.
//
// Invariant: a bin before next that no list has can never again take such a pod. A bin is on at most one list, and each
// list is sorted.
type binList struct {
	// next is the first bin that has not been checked.
	next int
	// lists are bins that refused for a reason that may pass, by that reason.
	lists []waitingBins
}

// waitingBins are bins that refused for the same reason: one of the class's views does not allow the only domain that
// they can be in. They are not checked again before it does. Bins that refused for any other reason have an empty
// domain, and are checked again for each pod.
type waitingBins struct {
	view   int // index of the view
	domain string
	bins   []int32
}

// find is the index of the list for a reason.
func (l *binList) find(why *refusal) int {
	for k := range l.lists {
		if w := &l.lists[k]; w.view == why.view && w.domain == why.domain {
			return k
		}
	}
	l.lists = append(l.lists, waitingBins{view: why.view, domain: why.domain})
	return len(l.lists) - 1
}

// insert puts a bin on a list.
func (l *binList) insert(list int, bin int32) {
	bins := &l.lists[list].bins
	at, _ := slices.BinarySearch(*bins, bin)
	*bins = slices.Insert(*bins, at, bin)
}

// binWalk is a walk along one list. The bins before kept stay on the list, those from kept to read have left it.
type binWalk struct {
	list       int
	bins       []int32
	read, kept int
}

// rest is the list after the walk. It closes the gap that dropped bins have left by moving the bins before the gap and
// not those behind it, of which there are more.
func (w *binWalk) rest() []int32 {
	gap := w.read - w.kept
	copy(w.bins[gap:w.read], w.bins[:w.kept])
	return w.bins[gap:]
}

// movedBin is a bin that goes to another list, since it now refuses for another reason.
type movedBin struct {
	list int
	bin  int32
}

// binSearch is a search for the first waiting bin that takes a pod at a relaxation level.
type binSearch struct {
	q     *queuedPod
	level int
	list  *binList
	mode  ceilingMode
}

// addFound puts the pod into the bin that the search has found. Above its ceiling, the bin gets another.
func (sv *solver) addFound(b *bin, s binSearch, g growth) {
	if s.mode == ceilingIgnored {
		b.ceiling, b.room = max(b.ceiling, g.cands.List()[g.first].Price), nil
	}
	sv.addToBin(b, s.q.class, s.q.pod, g)
}

// placeInWaitingBin puts the pod into the first waiting bin that takes it.
//
// Invariant: bins are checked in the order in which they were opened. Cost: one check per list, and one per bin of the
// open lists up to the one that takes the pod.
func (sv *solver) placeInWaitingBin(s binSearch) bool {
	c, l := s.q.class, s.list
	walks, moved, placed := sv.startWalks(s), sv.movedBins[:0], false
	for w := firstWalk(walks); w != nil && !placed; w = firstWalk(walks) {
		bin := w.bins[w.read]
		b := sv.bins[bin]
		g, why := sv.grow(b, c, c.Levels()[s.level], s.mode)
		if why == nil {
			sv.addFound(b, s, g)
			placed = true
			break
		}
		w.read++
		if why.final {
			continue
		}
		if list := l.find(why); list == w.list {
			w.bins[w.kept] = bin
			w.kept++
		} else {
			moved = append(moved, movedBin{list, bin})
		}
	}
	for k := range walks {
		l.lists[walks[k].list].bins = walks[k].rest()
	}
	for _, m := range moved {
		l.insert(m.list, m.bin)
	}
	sv.binWalks, sv.movedBins = walks[:0], moved[:0]
	return placed
}

// startWalks starts a walk along each list with bins that may take the pod now.
func (sv *solver) startWalks(s binSearch) []binWalk {
	walks, views := sv.binWalks[:0], s.q.class.Views(s.q.class.Levels()[s.level])
	for k := range s.list.lists {
		l := &s.list.lists[k]
		if len(l.bins) > 0 && (l.domain == "" || views[l.view].MayAllow(l.domain)) {
			walks = append(walks, binWalk{list: k, bins: l.bins})
		}
	}
	return walks
}

// firstWalk is the walk that is at the first bin of all; nil if all walks are done.
func firstWalk(walks []binWalk) *binWalk {
	var first *binWalk
	for k := range walks {
		if w := &walks[k]; w.read < len(w.bins) && (first == nil || w.bins[w.read] < first.bins[first.read]) {
			first = w
		}
	}
	return first
}
