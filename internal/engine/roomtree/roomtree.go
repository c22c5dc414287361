// Package roomtree finds the next bin with room for a pod, in the order in which the bins were opened. A Tree owns what it
// knows of their rooms: CPU and memory, as upper bounds. Whether a bin that it names really takes the pod is the caller's
// to check.
package roomtree

import "math"

// Room is the CPU and memory that a bin has left at most, or that a pod requests, in millicores and bytes.
type Room struct{ CPU, Memory int64 }

// Special rooms: NoRoom holds no pod, not even one that requests nothing; AnyRoom holds every pod.
var (
	NoRoom  = Room{-1, -1}
	AnyRoom = Room{math.MaxInt64, math.MaxInt64}
)

func (r Room) holds(o Room) bool { return r.CPU >= o.CPU && r.Memory >= o.Memory }

func (r Room) max(o Room) Room {
	return Room{max(r.CPU, o.CPU), max(r.Memory, o.Memory)}
}

// Tree finds the next bin with room for a pod, in the order in which the bins were opened, without a look at the
// full ones between. It is the tournament tree with which first fit takes n log n steps (Johnson 1974), over two
// resources at once.
//
// Invariant: an inner node has, per resource, the most that any bin below it has. Cost: O(log n) to change a bin;
// O(log n) to find one where bins are full in both resources alike, and at most O(n) otherwise.
type Tree struct {
	// nodes are in heap order: the root is nodes[1], and bin i is nodes[len(nodes)/2+i].
	nodes []Room
	bins  int
}

// minTree is the number of bins that the smallest tree holds.
const minTree = 64

// Add appends a bin.
func (t *Tree) Add(r Room) {
	if leaves := len(t.nodes) / 2; t.bins == leaves {
		old := t.nodes[leaves:]
		t.nodes = make([]Room, 4*max(leaves, minTree/2))
		for i := range t.nodes {
			t.nodes[i] = NoRoom
		}
		leaves = len(t.nodes) / 2
		copy(t.nodes[leaves:], old)
		for k := leaves - 1; k > 0; k-- {
			t.nodes[k] = t.nodes[2*k].max(t.nodes[2*k+1])
		}
	}
	t.bins++
	t.Set(t.bins-1, r)
}

// Set changes the room of a bin.
func (t *Tree) Set(i int, r Room) {
	k := len(t.nodes)/2 + i
	for t.nodes[k] != r {
		t.nodes[k] = r
		if k /= 2; k == 0 {
			return
		}
		r = t.nodes[2*k].max(t.nodes[2*k+1])
	}
}

// Next is the first bin from the given one on that may hold a pod; -1 if there is none.
func (t *Tree) Next(from int, pod Room) int {
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

// Clear removes all bins, and keeps the memory.
func (t *Tree) Clear() {
	for i := range t.nodes {
		t.nodes[i] = NoRoom
	}
	t.bins = 0
}

// Len is the number of bins.
func (t *Tree) Len() int { return t.bins }
