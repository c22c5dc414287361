package schedule

import "math"

// freeRoom is the CPU and memory that a bin has left at most, or that a pod requests, in the units of vec.
type freeRoom struct{ cpu, memory int64 }

// Special rooms: noRoom holds no pod, not even one that requests nothing; anyRoom holds every pod.
var (
	noRoom  = freeRoom{-1, -1}
	anyRoom = freeRoom{math.MaxInt64, math.MaxInt64}
)

func (r freeRoom) holds(o freeRoom) bool { return r.cpu >= o.cpu && r.memory >= o.memory }

func (r freeRoom) max(o freeRoom) freeRoom {
	return freeRoom{max(r.cpu, o.cpu), max(r.memory, o.memory)}
}

// roomTree finds the next bin with room for a pod, in the order in which the bins were opened, without a look at the
// full ones between. It is the tournament tree with which first fit takes n log n steps (Johnson 1974), over two
// resources at once.
//
// Invariant: an inner node has, per resource, the most that any bin below it has. Cost: O(log n) to change a bin;
// O(log n) to find one where bins are full in both resources alike, and at most O(n) otherwise.
type roomTree struct {
	// nodes are in heap order: the root is nodes[1], and bin i is nodes[len(nodes)/2+i].
	nodes []freeRoom
	bins  int
}

// minTree is the number of bins that the smallest tree holds.
const minTree = 64

// Add appends a bin.
func (t *roomTree) add(r freeRoom) {
	if leaves := len(t.nodes) / 2; t.bins == leaves {
		old := t.nodes[leaves:]
		t.nodes = make([]freeRoom, 4*max(leaves, minTree/2))
		for i := range t.nodes {
			t.nodes[i] = noRoom
		}
		leaves = len(t.nodes) / 2
		copy(t.nodes[leaves:], old)
		for k := leaves - 1; k > 0; k-- {
			t.nodes[k] = t.nodes[2*k].max(t.nodes[2*k+1])
		}
	}
	t.bins++
	t.set(t.bins-1, r)
}

// set changes the room of a bin.
func (t *roomTree) set(i int, r freeRoom) {
	k := len(t.nodes)/2 + i
	for t.nodes[k] != r {
		t.nodes[k] = r
		if k /= 2; k == 0 {
			return
		}
		r = t.nodes[2*k].max(t.nodes[2*k+1])
	}
}

// next is the first bin from the given one on that may hold a pod; -1 if there is none.
func (t *roomTree) next(from int, pod freeRoom) int {
	if from >= t.bins {
		return -1
	}
	leaves := len(t.nodes) / 2
	for k := leaves + from; k > 0; {
		switch {
		case !t.nodes[k].holds(pod):
			for k&1 == 1 { // a right child, or the root: all below the parent is done
				k /= 2
			}
			if k > 0 {
				k++
			}
		case k >= leaves:
			return k - leaves
		default:
			k *= 2
		}
	}
	return -1
}

// clear removes all bins, and keeps the memory.
func (t *roomTree) clear() {
	for i := range t.nodes {
		t.nodes[i] = noRoom
	}
	t.bins = 0
}

// noteRoom records what room the bin has left, as far as is known.
func (sv *solver) noteRoom(b *bin) {
	if b.index >= sv.rooms.bins {
		return // not opened yet
	}
	r := anyRoom
	if b.room != nil {
		r = freeRoom{b.room[sv.cpu] - b.total[sv.cpu], b.room[sv.memory] - b.total[sv.memory]}
		if b.room[sv.podAxis] <= b.total[sv.podAxis] {
			r = noRoom // every pod requests one of resource "pods"
		}
	}
	sv.rooms.set(b.index, r)
}

// room is the CPU and memory that a pod of the class requests.
func (sv *solver) roomFor(c *class) freeRoom {
	return freeRoom{c.requests[sv.cpu], c.requests[sv.memory]}
}
