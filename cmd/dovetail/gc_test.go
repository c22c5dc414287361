package main

import (
	"runtime"
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
		goal := max(tt.live, minHeap) * uint64(100+growth(tt.live, minGrowth)) / 100
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
