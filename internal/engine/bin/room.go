package bin

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/roomtree"
)

// measureRoom makes the bin's room exact: per axis, the most that any type has that the bin can become below its
// ceiling.
func (s *Set) measureRoom(b *Bin) {
	if b.roomVersion == b.version {
		return
	}
	b.roomVersion = b.version
	defer s.noteRoom(b)
	if b.room == nil {
		b.room = make(resources.Vec, len(b.total))
	}
	clear(b.room)
	for _, cand := range b.cands.List()[b.first:] {
		if cand.Price > b.ceiling {
			break
		}
		room := b.t.TypeOf(cand).Room()
		if !b.total.Fits(room) {
			continue
		}
		for i, r := range room {
			b.room[i] = max(b.room[i], r)
		}
	}
}

// noteRoom records what room the bin has left, as far as is known.
func (s *Set) noteRoom(b *Bin) {
	if b.index >= s.rooms.Len() {
		return // not opened yet
	}
	r := roomtree.AnyRoom
	if b.room != nil {
		r = roomtree.Room{CPU: b.room[s.cpu] - b.total[s.cpu], Memory: b.room[s.memory] - b.total[s.memory]}
		if b.room[s.podAxis] <= b.total[s.podAxis] {
			r = roomtree.NoRoom // every pod requests one of resource "pods"
		}
	}
	s.rooms.Set(b.index, r)
}

// roomFor is the CPU and memory that a pod of the class requests.
func (s *Set) roomFor(c *podclass.Class) roomtree.Room {
	return roomtree.Room{CPU: c.Requests()[s.cpu], Memory: c.Requests()[s.memory]}
}

// requestsIn returns what a pod of the class requests in the bin: a volume that it shares with pods there is attached
// already.
func (s *Set) requestsIn(b *Bin, c *podclass.Class) resources.Vec {
	if len(c.Shared()) == 0 {
		return c.Requests()
	}
	out := slices.Clone(c.Requests())
	for _, a := range c.Shared() {
		if !b.sharedVolumes[a] {
			out[s.volumes.Axis(s.axes, a.Driver)]++
		}
	}
	return out
}
