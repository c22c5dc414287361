package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// Below the soft limit the heap grows into it. Above it there is room for a sixth of what is alive, and for two fifths in a burst, unless the
// user allows less.
func TestMemoryLimitOfAController(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name              string
		live, other, want uint64 // MiB
		most              int64
	}{
		{"nothing is read yet", 0, 0, 540, math.MaxInt64},
		{"a small cluster", 60, 30, 540, math.MaxInt64},
		{"5,000 nodes", 360, 40, 540, math.MaxInt64},
		{"5,000 nodes that are consolidated", 480, 60, 617, math.MaxInt64},
		{"a burst begins", 520, 60, 703, math.MaxInt64},
		{"a burst of pods", 600, 60, 876, math.MaxInt64},
		{"a huge cluster", 20_000, 900, 28_900, math.MaxInt64},
		{"a small container", 60, 30, 230, 230 * mib},
		{"a container that is too small", 600, 60, 700, 700 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := memoryInUse{live: tt.live * mib, other: tt.other * mib}.limit(tt.most)
			if want := int64(tt.want) * mib; got < want-mib || got > want+mib {
				t.Errorf("%d MiB, want %d", got>>20, tt.want)
			}
		})
	}
	for live, want := range map[uint64]int{0: 6300, 64: 300, 128: 100, 160: 60, 360: 60, 5000: 60} { // MiB, percent
		if got := (memoryInUse{live: live * mib}).growth(); got != want {
			t.Errorf("with %d MiB alive the heap grows by %d %%, want %d", live, got, want)
		}
	}
	if got := userLimit(1000); got != 900 {
		t.Errorf("a container of 1,000 bytes: %d", got)
	}
	for _, none := range []int64{-1, 0} {
		if got := userLimit(none); got != math.MaxInt64 {
			t.Errorf("without a limit of the container: %d", got)
		}
	}
}

// What the runtime holds is read as it counts it for its limit: what is alive and everything beside it.
func TestMemoryInUseIsThatOfTheRuntime(t *testing.T) {
	kept := make([]byte, 64<<20)
	debug.FreeOSMemory() // collects
	with := readMemory()
	if with.live < 64<<20 || with.live > 1<<30 || with.other == 0 || with.other > 1<<30 {
		t.Errorf("with 64 MiB alive: %d MiB alive, %d MiB beside them", with.live>>20, with.other>>20)
	}
	kept[0] = 1
}

// The limit follows each collection, and is never above that of the user.
func TestControllerGCFollowsWhatIsAlive(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) }()
	defer tuneControllerGC(500 << 20)()
	if got := debug.SetMemoryLimit(-1); got != 500<<20 {
		t.Errorf("the limit is %d MiB", got>>20)
	}
}
