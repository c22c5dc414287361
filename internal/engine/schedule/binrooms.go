package schedule

import "github.com/dovetail-k8s/dovetail/internal/engine/roomtree"

// noteRoom records what room the bin has left, as far as is known.
func (sv *solver) noteRoom(b *bin) {
	if b.index >= sv.rooms.Len() {
		return // not opened yet
	}
	r := roomtree.AnyRoom
	if b.room != nil {
		r = roomtree.Room{CPU: b.room[sv.cpu] - b.total[sv.cpu], Memory: b.room[sv.memory] - b.total[sv.memory]}
		if b.room[sv.podAxis] <= b.total[sv.podAxis] {
			r = roomtree.NoRoom // every pod requests one of resource "pods"
		}
	}
	sv.rooms.Set(b.index, r)
}

// roomFor is the CPU and memory that a pod of the class requests.
func (sv *solver) roomFor(c *class) roomtree.Room {
	return roomtree.Room{CPU: c.requests[sv.cpu], Memory: c.requests[sv.memory]}
}
