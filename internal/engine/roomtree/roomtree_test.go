package roomtree_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/roomtree"
)

// nextByScan is Next, one bin after the other.
func nextByScan(rooms []roomtree.Room, from int, pod roomtree.Room) int {
	for i := from; i < len(rooms); i++ {
		if rooms[i].CPU >= pod.CPU && rooms[i].Memory >= pod.Memory {
			return i
		}
	}
	return -1
}

func TestRoomTreeFindsTheFirstBinWithRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func() roomtree.Room { return roomtree.Room{CPU: random.Int64N(20), Memory: random.Int64N(20)} }
	var tree roomtree.Tree
	for range 2 { // the second time after clear
		var rooms []roomtree.Room
		for step := range 3000 {
			switch what := random.IntN(4); {
			case what == 0 || len(rooms) == 0:
				rooms = append(rooms, some())
				tree.Add(rooms[len(rooms)-1])
			case what == 1:
				i, room := random.IntN(len(rooms)), []roomtree.Room{some(), roomtree.NoRoom, roomtree.AnyRoom}[random.IntN(3)]
				rooms[i] = room
				tree.Set(i, room)
			default:
				from, pod := random.IntN(len(rooms)+1), some()
				if got, want := tree.Next(from, pod), nextByScan(rooms, from, pod); got != want {
					t.Fatalf("step %d: the first of %d bins from %d with room for %v is %d, want %d", step, len(rooms), from, pod, got, want)
				}
			}
		}
		tree.Clear()
		if at := tree.Next(0, roomtree.Room{}); at >= 0 {
			t.Fatalf("after clear there is bin %d", at)
		}
	}
}

// Bins fill from the front: the search passes over all of the full ones.
func BenchmarkRoomTreeNext(b *testing.B) {
	for _, n := range []int{1000, 5000, 20000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var tree roomtree.Tree
			for i := range n {
				tree.Add(roomtree.Room{CPU: int64(i % 7), Memory: int64(i % 5)})
			}
			tree.Set(n-1, roomtree.Room{CPU: 7, Memory: 5})
			b.ReportAllocs()
			for b.Loop() {
				tree.Set(n/2, roomtree.Room{})
				if tree.Next(0, roomtree.Room{CPU: 7, Memory: 5}) != n-1 {
					b.Fatal("not found")
				}
				tree.Set(n/2, roomtree.Room{CPU: 6, Memory: 4})
			}
		})
	}
}
