// Package gctuning sets the garbage collector for what a program does: one plan, a watch of hours, or a controller.
package gctuning

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
	// smallHeap sets how many bytes are in use before the first collection: most plans finish within it, without any.
	smallHeap = 96 << 20
	// MinGrowth sets how much a large heap grows between two collections, in percent. It bounds the garbage in peak memory to about a
	// quarter; GOGC's default of 100 would double the live heap.
	MinGrowth = 35
	// SearchGrowth is the same for a command that searches. It collects a third as often: of the CPU time of an assessment of 2,000
	// nodes and 20,000 pods, the collector takes a tenth instead of a third, for twice the memory (0.8 GiB). To explain one of these
	// nodes takes 2.0 s instead of 2.6 s, and 0.37 GiB instead of 0.24 GiB.
	SearchGrowth = 400
)

// Tune sets the garbage collector for one run, until the returned function is called. A large heap grows by least percent between two
// collections.
func Tune(least int) (restore func()) {
	before := debug.SetGCPercent(growth(minHeap, least))
	stop := afterEachCollection(func() { debug.SetGCPercent(growth(liveHeap(), least)) })
	return func() {
		stop()
		debug.SetGCPercent(before)
	}
}

// TuneWatching is Tune for a program that watches a cluster for hours, and now and then plans it. The memory of a plan or
// of the first list goes back to the system: the runtime keeps no more than the heap may grow to before the next collection, since its
// memory limit follows what is alive.
func TuneWatching() (restore func()) {
	before := debug.SetMemoryLimit(-1)
	set := func() {
		m := readMemory()
		least := growth(max(m.live, minHeap), watchingGrowth)
		debug.SetGCPercent(least)
		debug.SetMemoryLimit(min(before, m.watchingLimit(least)))
	}
	percent := debug.SetGCPercent(growth(minHeap, watchingGrowth))
	stop := afterEachCollection(set)
	return func() {
		stop()
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(before)
	}
}

// watchingGrowth sets how much the heap of such a program grows between two collections at least, in percent. With 350 MB alive, a
// collection takes 0.3 s of CPU time, and a page of a node some of them. With 60, 1,017 MB were resident after a plan.
const watchingGrowth = 40

// watchingRoom sets how many bytes the limit leaves on top of the heap, so that not the limit but growth decides when to collect.
const watchingRoom = 32 << 20

// watchingLimit is the memory limit for a heap that grows by so many percent between two collections.
func (m memoryInUse) watchingLimit(percent int) int64 {
	live := max(m.live, minHeap)
	return int64(live + live/100*uint64(percent) + m.other + watchingRoom)
}

// afterEachCollection calls f after each garbage collection, until stop is called.
func afterEachCollection(f func()) (stop func()) {
	stopped := make(chan struct{})
	var again func(*sentinel)
	again = func(*sentinel) {
		select {
		case <-stopped:
		default:
			f()
			runtime.SetFinalizer(new(sentinel), again)
		}
	}
	runtime.SetFinalizer(new(sentinel), again)
	return func() { close(stopped) }
}

// sentinel is garbage with a finalizer that runs after each collection. It has a pointer, so that it is not allocated in one block
// with other small objects.
type sentinel struct{ _ *sentinel }

// minHeap is the smallest heap that the collector applies its ratio to.
const minHeap = 4 << 20

// growth is the value of GOGC for a live heap of that size.
func growth(live uint64, least int) int {
	return max(least, int(math.Ceil(100*smallHeap/float64(max(live, minHeap))))-100)
}

// liveHeap returns what the last collection left.
func liveHeap() uint64 { return max(minHeap, readMetrics("/gc/heap/live:bytes")[0]) }

// readMetrics reads metrics of the runtime in bytes. One that this Go version does not have is 0.
func readMetrics(names ...string) []uint64 {
	samples, out := make([]metrics.Sample, len(names)), make([]uint64, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	for i := range samples {
		if samples[i].Value.Kind() == metrics.KindUint64 {
			out[i] = samples[i].Value.Uint64()
		}
	}
	return out
}
