package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A plan is short: garbage is not worth collecting while little memory is in use, and must be collected early when much is, since
// what is read and planned lives to the end of the run. GOGC alone is one ratio for both, and debug.SetMemoryLimit is a limit for
// the whole process: above it, the collector would run all the time.
const (
	// smallHeap is how many bytes are in use before the first collection: most plans finish within it, without any.
	smallHeap = 96 << 20
	// minGrowth is how much a large heap grows between two collections, in percent. It bounds the garbage in peak memory to about a
	// quarter; GOGC's default of 100 would double the live heap.
	minGrowth = 35
)

// tuneGC sets the garbage collector for one run, until the returned function is called.
func tuneGC() (restore func()) {
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

// sentinel is garbage with a finalizer that runs after each collection. It has a pointer, so that it is not allocated in one block
// with other small objects.
type sentinel struct{ _ *sentinel }

// minHeap is the smallest heap that the collector applies its ratio to.
const minHeap = 4 << 20

// growth is the value of GOGC for a live heap of that size.
func growth(live uint64) int {
	return max(minGrowth, int(math.Ceil(100*smallHeap/float64(max(live, minHeap))))-100)
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
