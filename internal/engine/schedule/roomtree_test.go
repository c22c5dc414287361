package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// nextByScan is roomTree.next, one bin after the other.
func nextByScan(rooms []freeRoom, from int, pod freeRoom) int {
	for i := from; i < len(rooms); i++ {
		if rooms[i].holds(pod) {
			return i
		}
	}
	return -1
}

func TestRoomTreeFindsTheFirstBinWithRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func() freeRoom { return freeRoom{random.Int64N(20), random.Int64N(20)} }
	var tree roomTree
	for range 2 { // the second time after clear
		var rooms []freeRoom
		for step := range 3000 {
			switch what := random.IntN(4); {
			case what == 0 || len(rooms) == 0:
				rooms = append(rooms, some())
				tree.add(rooms[len(rooms)-1])
			case what == 1:
				i, room := random.IntN(len(rooms)), []freeRoom{some(), noRoom, anyRoom}[random.IntN(3)]
				rooms[i] = room
				tree.set(i, room)
			default:
				from, pod := random.IntN(len(rooms)+1), some()
				if got, want := tree.next(from, pod), nextByScan(rooms, from, pod); got != want {
					t.Fatalf("step %d: the first of %d bins from %d with room for %v is %d, want %d", step, len(rooms), from, pod, got, want)
				}
			}
		}
		tree.clear()
		if at := tree.next(0, freeRoom{}); at >= 0 {
			t.Fatalf("after clear there is bin %d", at)
		}
	}
}

// Bins fill from the front: the search passes over all of the full ones.
func BenchmarkRoomTreeNext(b *testing.B) {
	for _, n := range []int{1000, 5000, 20000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var tree roomTree
			for i := range n {
				tree.add(freeRoom{int64(i % 7), int64(i % 5)})
			}
			tree.set(n-1, freeRoom{7, 5})
			b.ReportAllocs()
			for b.Loop() {
				tree.set(n/2, freeRoom{0, 0})
				if tree.next(0, freeRoom{7, 5}) != n-1 {
					b.Fatal("not found")
				}
				tree.set(n/2, freeRoom{6, 4})
			}
		})
	}
}
