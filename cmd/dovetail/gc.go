package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A plan is short: garbage is not worth collecting while there is little memory in use, and has to be collected early
// when there is much, since what is read and planned lives to the end. The collector's own setting is one ratio for both.
const (
	// smallHeap is what a program may use before it collects anything, in bytes.
	smallHeap = 96 << 20
	// leastGrowth is how much a large heap grows between two collections, in percent.
	leastGrowth = 35
)

// thrifty sets the collector for one run, until the returned function is called.
func thrifty() (restore func()) {
	before := debug.SetGCPercent(growth(minHeap))
	stopped := make(chan struct{})
	var again func(*sentinel)
	again = func(*sentinel) {
		select {
		case <-stopped:
		default:
			debug.SetGCPercent(growth(liveHeap()))
			runtime.SetFinalizer(new(sentinel), again)
		}
	}
	runtime.SetFinalizer(new(sentinel), again)
	return func() {
		close(stopped)
		debug.SetGCPercent(before)
	}
}

// sentinel is garbage that tells of each collection by its finalizer. It holds a pointer, so that it is not put
// together with other small objects.
type sentinel struct{ _ *sentinel }

// minHeap is what the collector takes a heap to be at least, before its ratio.
const minHeap = 4 << 20

// growth is by how many percent a heap may grow whose live part has the size.
func growth(live uint64) int {
	return max(leastGrowth, int(math.Ceil(100*smallHeap/float64(max(live, minHeap))))-100)
}

// liveHeap is what the last collection left.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return minHeap
	}
	return sample[0].Value.Uint64()
}
