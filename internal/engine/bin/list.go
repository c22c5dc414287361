package bin

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
)

// List is the bins that may still take a pod of one class at one relaxation level, in the order in which they were
// opened. Its zero value has all bins still to check. It is valid for one run.
//
// Invariant: a bin before next that no list has can never again take such a pod. A bin is on at most one list, and each
// list is sorted.
type List struct {
	// next is the first bin that has not been checked.
	next int
	// lists are bins that refused for a reason that may pass, by that reason.
	lists []waitingBins
	// byPods are the bins that may still take a pod, for PutWhereFewest, which needs no lists.
	byPods []*Bin
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
func (l *List) find(why *Refusal) int {
	for k := range l.lists {
		if w := &l.lists[k]; w.view == why.view && w.domain == why.domain {
			return k
		}
	}
	l.lists = append(l.lists, waitingBins{view: why.view, domain: why.domain})
	return len(l.lists) - 1
}

// append puts the last bin that was checked on the list for a reason.
func (l *List) append(why *Refusal, bin int) {
	list := l.find(why)
	l.lists[list].bins = append(l.lists[list].bins, int32(bin))
}

// insert puts a bin on a list.
func (l *List) insert(list int, bin int32) {
	bins := &l.lists[list].bins
	at, _ := slices.BinarySearch(*bins, bin)
	*bins = slices.Insert(*bins, at, bin)
}

// walk is a walk along one list. The bins before kept stay on the list, those from kept to read have left it.
type walk struct {
	list       int
	bins       []int32
	read, kept int
}

// rest is the list after the walk. It closes the gap that dropped bins have left by moving the bins before the gap and
// not those behind it, of which there are more.
func (w *walk) rest() []int32 {
	gap := w.read - w.kept
	copy(w.bins[gap:w.read], w.bins[:w.kept])
	return w.bins[gap:]
}

// movedBin is a bin that goes to another list, since it now refuses for another reason.
type movedBin struct {
	list int
	bin  int32
}

// Search is a pod that needs a bin, at one of its relaxation levels.
type Search struct {
	Class *podclass.Class
	Level *podclass.Level
	Pod   *corev1.Pod
	Mode  Mode
}

// Put puts the pod into the first bin that takes it. The list is that of its class and level. The room of bins decides
// for most of them: roomtree.Tree skips those that are full. For the last pod of a class, it keeps no record of bins that
// refused.
func (s *Set) Put(q Search, l *List, last bool) bool {
	if s.putWaiting(q, l) {
		return true
	}
	need := s.roomFor(q.Class)
	for k := s.rooms.Next(l.next, need); k >= 0; k = s.rooms.Next(k+1, need) {
		b := s.all[k]
		g, why := s.Grow(b, q.Class, q.Level, q.Mode)
		if why == nil {
			s.Add(b, q.Class, q.Pod, g)
			if !last {
				l.next = k
			}
			return true
		}
		if !last && !why.final {
			l.append(why, k)
		}
	}
	if !last {
		l.next = len(s.all)
	}
	return false
}

// PutAtAnyPrice puts the pod into the first bin that holds it at any price.
func (s *Set) PutAtAnyPrice(q Search, l *List) bool {
	q.Mode = AnyPrice
	if s.putWaiting(q, l) {
		return true
	}
	for ; l.next < len(s.all); l.next++ {
		b := s.all[l.next]
		g, why := s.Grow(b, q.Class, q.Level, q.Mode)
		if why == nil {
			s.addFound(b, q, g)
			return true
		}
		if !why.final {
			l.append(why, l.next)
		}
	}
	return false
}

// PutWhereFewest puts the pod into the bin with the fewest pods that takes it, and of those the oldest.
//
// Cost: a sort of the bins that may still take pods of the class, for each pod.
func (s *Set) PutWhereFewest(q Search, l *List) bool {
	l.byPods = append(l.byPods, s.all[l.next:]...)
	l.next = len(s.all)
	slices.SortFunc(l.byPods, func(a, b *Bin) int {
		return cmp.Or(cmp.Compare(len(a.pods), len(b.pods)), cmp.Compare(a.index, b.index))
	})
	kept := 0
	for k, b := range l.byPods {
		g, why := s.Grow(b, q.Class, q.Level, q.Mode)
		if why == nil {
			s.Add(b, q.Class, q.Pod, g)
			l.byPods = append(l.byPods[:kept], l.byPods[k:]...)
			return true
		}
		if !why.final {
			l.byPods[kept] = b
			kept++
		}
	}
	l.byPods = l.byPods[:kept]
	return false
}

// addFound puts the pod into the bin that the search has found. Above its ceiling, the bin gets another.
func (s *Set) addFound(b *Bin, q Search, g Growth) {
	if q.Mode == AnyPrice {
		s.AddAbove(b, q, g)
		return
	}
	s.Add(b, q.Class, q.Pod, g)
}

// AddAbove is Add where the growth may be above the ceiling of the bin, which then gets another.
func (s *Set) AddAbove(b *Bin, q Search, g Growth) {
	b.ceiling, b.room = max(b.ceiling, g.Cheapest().Price), nil
	s.Add(b, q.Class, q.Pod, g)
}

// putWaiting puts the pod into the first waiting bin that takes it.
//
// Invariant: bins are checked in the order in which they were opened. Cost: one check per list, and one per bin of the
// open lists up to the one that takes the pod.
func (s *Set) putWaiting(q Search, l *List) bool {
	if len(l.lists) == 0 {
		return false
	}
	walks, moved, placed := s.startWalks(q, l), s.moved[:0], false
	for w := firstWalk(walks); w != nil && !placed; w = firstWalk(walks) {
		bin := w.bins[w.read]
		b := s.all[bin]
		g, why := s.Grow(b, q.Class, q.Level, q.Mode)
		if why == nil {
			s.addFound(b, q, g)
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
	s.walks, s.moved = walks[:0], moved[:0]
	return placed
}

// startWalks starts a walk along each list with bins that may take the pod now.
func (s *Set) startWalks(q Search, l *List) []walk {
	walks, views := s.walks[:0], q.Class.Views(q.Level)
	for k := range l.lists {
		w := &l.lists[k]
		if len(w.bins) > 0 && (w.domain == "" || views[w.view].MayAllow(w.domain)) {
			walks = append(walks, walk{list: k, bins: w.bins})
		}
	}
	return walks
}

// firstWalk is the walk that is at the first bin of all; nil if all walks are done.
func firstWalk(walks []walk) *walk {
	var first *walk
	for k := range walks {
		if w := &walks[k]; w.read < len(w.bins) && (first == nil || w.bins[w.read] < first.bins[first.read]) {
			first = w
		}
	}
	return first
}
