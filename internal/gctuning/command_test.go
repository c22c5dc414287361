package gctuning

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
)

// A small heap is not collected at all; a large one grows by a third, not to twice its size.
func TestLargeHeapsAreCollectedEarly(t *testing.T) {
	for _, tt := range []struct {
		live, most uint64 // bytes: in use, and when the next collection is due
	}{
		{0, smallHeap}, {minHeap, smallHeap}, {smallHeap / 2, smallHeap}, {smallHeap, smallHeap * 135 / 100}, {1 << 30, (1 << 30) * 135 / 100},
	} {
		goal := max(tt.live, minHeap) * uint64(100+growth(tt.live, MinGrowth)) / 100
		if goal < tt.most || goal > tt.most+tt.most/50 {
			t.Errorf("with %d MiB in use the next collection is at %d MiB, want %d", tt.live>>20, goal>>20, tt.most>>20)
		}
	}
}

// The function runs after each collection until it is stopped; one run may be in progress then.
func TestAfterEachCollection(t *testing.T) {
	var ran atomic.Int32
	stop := afterEachCollection(func() { ran.Add(1) })
	for ran.Load() < 3 {
		runtime.GC()
	}
	stop()
	before := ran.Load()
	for range 10 {
		runtime.GC()
	}
	if after := ran.Load(); after > before+1 {
		t.Errorf("it ran %d times after it was stopped", after-before)
	}
}

// The limit leaves the heap its growth, and nothing for later: what a plan has needed goes back to the system.
func TestMemoryLimitOfAConsole(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct{ live, other, want uint64 }{{0, 0, 128}, {64, 20, 148}, {350, 60, 582}, {2000, 200, 3032}} { // MiB
		m := memoryInUse{live: tt.live * mib, other: tt.other * mib}
		got := m.watchingLimit(growth(max(m.live, minHeap), watchingGrowth)) / mib
		if got < int64(tt.want)-2 || got > int64(tt.want)+2 {
			t.Errorf("with %d MiB alive and %d beside them the limit is %d MiB, want %d", tt.live, tt.other, got, tt.want)
		}
	}
}

func TestTheCollectorIsAsBeforeAfterAConsole(t *testing.T) {
	percent, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(-1)
	restore := TuneWatching()
	restore()
	if got := debug.SetGCPercent(percent); got != 77 {
		t.Errorf("the heap grows by %d %% afterwards, it was 77", got)
	}
	if got := debug.SetMemoryLimit(-1); got != limit {
		t.Errorf("the memory limit is %d afterwards, it was %d", got, limit)
	}
}
