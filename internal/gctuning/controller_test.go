package gctuning

import (
	"math"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"
)

// Below the soft limit the heap grows into it. Above it there is room for a twelfth of what is alive, and for two fifths in a cluster
// that is larger still, unless the user allows less.
func TestMemoryLimitOfAController(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name              string
		live, other, want uint64 // MiB
		most              int64
	}{
		{"nothing is read yet", 0, 0, 600, math.MaxInt64},
		{"a small cluster", 60, 30, 600, math.MaxInt64},
		{"5,000 nodes", 320, 100, 600, math.MaxInt64},
		{"5,000 nodes that are consolidated", 480, 100, 618, math.MaxInt64},
		{"a burst of pods", 520, 100, 661, math.MaxInt64},
		{"10,000 nodes", 700, 100, 996, math.MaxInt64},
		{"a huge cluster", 20_000, 900, 28_900, math.MaxInt64},
		{"a small container", 60, 30, 230, 230 * mib},
		{"a container that is too small", 600, 60, 700, 700 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := memoryInUse{live: tt.live * mib, other: tt.other * mib}.limit(tt.most, resting)
			if want := int64(tt.want) * mib; got < want-mib || got > want+mib {
				t.Errorf("%d MiB, want %d", got>>20, tt.want)
			}
		})
	}
	for live, want := range map[uint64]int{0: 6300, 64: 300, 128: 100, 160: 60, 360: 60, 5000: 60} { // MiB, percent
		if got := (memoryInUse{live: live * mib}).growth(resting); got != want {
			t.Errorf("with %d MiB alive the heap grows by %d %%, want %d", live, got, want)
		}
	}
	cluster := memoryInUse{live: 340 * mib, other: 90 * mib}
	for in, want := range map[gcPhase][2]int64{
		starting: {softLimit, startGrowth}, resting: {softLimit, controllerGrowth},
		arriving: {arrivingLimit, arrivingGrowth},
	} {
		if got := [2]int64{cluster.limit(math.MaxInt64, in), int64(cluster.growth(in))}; got != want {
			t.Errorf("phase %d: limit and growth %d, want %d", in, got, want)
		}
		if got := cluster.limit(500*mib, in); got != 500*mib {
			t.Errorf("phase %d in a small container: %d MiB", in, got>>20)
		}
	}
	if got := UserLimit(1000); got != 900 {
		t.Errorf("a container of 1,000 bytes: %d", got)
	}
	for _, none := range []int64{-1, 0} {
		if got := UserLimit(none); got != math.MaxInt64 {
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
	tuned := TuneController(500 << 20)
	if tuned.Stop(); debug.SetMemoryLimit(-1) != 500<<20 {
		t.Errorf("the limit is %d MiB, and 500 are allowed", debug.SetMemoryLimit(-1)>>20)
	}
	var now atomic.Int64
	now.Store(time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC).UnixNano())
	c := &Controller{most: 700 << 20, now: func() time.Time { return time.Unix(0, now.Load()) }}
	for _, tt := range []struct {
		when string
		tell func()
		want int64
	}{
		{"at the start", func() {}, softLimit},
		{"when the caches have synced", c.Started, softLimit},
		{"when it sees all pods that have waited", func() { c.Burst(true) }, softLimit},
		{"when it has planned them", func() { c.Burst(false) }, softLimit},
		{"when a burst arrives", func() { now.Add(int64(warmUp)); c.Burst(true) }, arrivingLimit},
		{"while it is planned", func() { now.Add(int64(arrivalTime)) }, softLimit},
		{"after it", func() { c.Burst(false) }, softLimit},
	} {
		tt.tell()
		if c.set(); debug.SetMemoryLimit(-1) != tt.want {
			t.Errorf("%s the limit is %d MiB, want %d", tt.when, debug.SetMemoryLimit(-1)>>20, tt.want>>20)
		}
	}
	if c.phase() != resting {
		t.Errorf("phase %d after the caches have synced", c.phase())
	}
	(*Controller)(nil).Burst(true) // the user has chosen
	(*Controller)(nil).Started()
	(*Controller)(nil).Stop()
}

// What is alive for a moment does not raise the limit, and what stays alive does.
func TestTheLimitFollowsWhatStaysAlive(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	c := &Controller{now: func() time.Time { return now }}
	for _, step := range []struct {
		after      time.Duration
		live, want uint64
	}{
		{0, 300, 300},
		{time.Minute, 310, 300}, // was alive until now
		{time.Second, 500, 300},
		{5 * time.Second, 520, 300},
		{3 * time.Second, 400, 300},
		{2 * time.Second, 410, 400}, // the others are 10 s ago
		{time.Minute, 600, 410},
		{time.Second, 610, 410},
		{sustained, 620, 610},
		{sustained, 630, 620},
	} {
		now = now.Add(step.after)
		if got := c.least(step.live); got != step.want {
			t.Errorf("at %s, with %d alive: %d, want %d", now.Format(time.TimeOnly), step.live, got, step.want)
		}
	}
	if len(c.lives) > 2 {
		t.Errorf("%d collections are remembered", len(c.lives))
	}
}
