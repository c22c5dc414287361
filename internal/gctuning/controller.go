package gctuning

import (
	"cmp"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A controller runs for months, and half of its memory would be garbage and pages that the runtime keeps for later: of 726 MiB, 353 MiB
// were alive. The runtime's memory limit bounds both: close to the limit it collects earlier, and gives free pages back at once. A fixed
// limit would make it collect all the time once more is alive, so the limit goes up with what is alive.
const (
	// softLimit sets how many bytes the runtime may hold as long as what is alive lets it. The 60 MiB of the program itself come on top. With
	// 5,000 nodes and 100,000 pods, 310 MiB are alive at rest, and more after the start: docs/performance.md has what that takes.
	softLimit = 600 << 20
	// controllerGrowth is by how many percent a heap far below the limit grows between two collections at least.
	controllerGrowth = 60
	// startGrowth stands in for controllerGrowth until the caches have synced. With 130,000 pods, 4 GB of garbage are made of them, and what
	// is alive grows from nothing: with 60, 40 collections took a quarter of the CPU time until then.
	startGrowth = 200
	// smallControllerHeap sets how many bytes are in use before it is worth collecting: while 1,000 nodes join, with 150 MB alive, a heap that
	// grows by 40 % costs 31 % of the controller's CPU time.
	smallControllerHeap = 256 << 20
	// minControllerGrowth sets how many percent of what is alive fit below the limit at least: enough for a cluster that changes little.
	minControllerGrowth = 8
	// More than restingHeap bytes are alive only while much changes at once in a cluster that is larger still. From there on the room grows by
	// a byte for each that is alive, up to busyControllerGrowth percent: with 20, collections followed each other and took 57 % of the CPU
	// time.
	restingHeap          = 560 << 20
	busyControllerGrowth = 40
	// arrivingLimit and arrivingGrowth replace softLimit and controllerGrowth in the first arrivalTime of a burst of pods, until the first
	// nodes are launched: pods wait for that, less is alive than later, and collections took half of the CPU time.
	arrivingLimit, arrivingGrowth = 640 << 20, 150
	arrivalTime                   = 6 * time.Second
	// warmUp is for how long after the caches have synced a burst does not count as one that arrives: nearly all of its pods have waited
	// before, or have a NodeClaim. More is held then than later, since the first lists have left garbage between what is kept.
	warmUp = 30 * time.Second
	// sustained sets how long something must be alive to raise the limit. A pass over 6,500 nodes has 60 MiB for some seconds, and what was
	// allocated while a collection ran counts as alive: the peak followed both. Collections take more of the CPU time meanwhile.
	sustained = 10 * time.Second
)

// gcPhase describes what a controller does, as far as its garbage collector goes.
type gcPhase int

const (
	starting gcPhase = iota // until the caches have synced
	resting
	arriving // the first arrivalTime of a burst of pods
)

// memoryInUse describes what the runtime holds, in bytes, as debug.SetMemoryLimit counts it.
type memoryInUse struct {
	// live holds what the last collection left of the heap, other everything that is not on the heap or cannot be used by it: stacks, the
	// runtime's own structures, and spaces in spans.
	live, other uint64
}

// readMemory reads the present use.
func readMemory() memoryInUse {
	m := readMetrics("/gc/heap/live:bytes", "/memory/classes/total:bytes", "/memory/classes/heap/released:bytes",
		"/memory/classes/heap/free:bytes", "/memory/classes/heap/objects:bytes")
	return memoryInUse{live: m[0], other: m[1] - min(m[1], m[2]+m[3]+m[4])}
}

// limit is the memory limit of the runtime for this use: at most most bytes, which is what the user allows.
func (m memoryInUse) limit(most int64, in gcPhase) int64 {
	room := min(m.live/100*busyControllerGrowth, m.live/100*minControllerGrowth+m.live-min(m.live, restingHeap))
	needed, soft := m.live+room+m.other, int64(softLimit)
	if in == arriving {
		soft = arrivingLimit
	}
	return min(most, max(soft, int64(min(needed, math.MaxInt64))))
}

// growth is the value of GOGC for this use.
func (m memoryInUse) growth(in gcPhase) int {
	least := controllerGrowth
	switch in {
	case starting:
		least = startGrowth
	case arriving:
		least = arrivingGrowth
	}
	return max(least, int(smallControllerHeap*100/max(m.live, minHeap))-100)
}

// Controller sets the garbage collector of a controller. A nil one sets nothing.
type Controller struct {
	most int64
	stop func()

	// started is the time when the caches have synced, in nanoseconds since 1970; 0 before.
	started atomic.Int64
	// burst is since when a burst of pods is planned, in nanoseconds since 1970; 0 while none is.
	burst atomic.Int64
	now   func() time.Time

	setting sync.Mutex
	// lives holds what collections have left within the last sustained, the oldest first.
	lives []liveAt
}

// liveAt describes what a collection has left, in bytes.
type liveAt struct {
	at   time.Time
	live uint64
}

// TuneController sets the garbage collector until Stop is called. The runtime holds at most most bytes.
func TuneController(most int64) *Controller {
	c := &Controller{most: most, now: time.Now}
	c.set()
	c.stop = afterEachCollection(c.set)
	return c
}

func (c *Controller) set() {
	c.setting.Lock()
	defer c.setting.Unlock()
	m, in := readMemory(), c.phase()
	debug.SetGCPercent(m.growth(in))
	m.live = c.least(m.live)
	debug.SetMemoryLimit(m.limit(c.most, in))
}

// least is the least that was alive within the last sustained, with what is alive now.
func (c *Controller) least(live uint64) uint64 {
	now := c.now()
	c.lives = append(c.lives, liveAt{now, live})
	// The last one before the window reports what was alive when it began.
	for len(c.lives) > 1 && now.Sub(c.lives[1].at) >= sustained {
		c.lives = c.lives[1:]
	}
	return slices.MinFunc(c.lives, func(a, b liveAt) int { return cmp.Compare(a.live, b.live) }).live
}

func (c *Controller) phase() gcPhase {
	started, since := c.started.Load(), c.burst.Load()
	switch {
	case started == 0:
		return starting
	case since != 0 && since-started >= int64(warmUp) && c.now().UnixNano()-since < int64(arrivalTime):
		return arriving
	}
	return resting
}

// Started reports it that the caches have synced.
func (c *Controller) Started() {
	if c != nil {
		c.started.Store(c.now().UnixNano())
		go c.set()
	}
}

// Burst reports it that a burst of pods begins or has finished. It does not wait: the runtime sets nothing before a collection has
// finished.
func (c *Controller) Burst(begins bool) {
	if c != nil {
		since := int64(0)
		if begins {
			since = c.now().UnixNano()
		}
		c.burst.Store(since)
		go c.set()
	}
}

// Stop leaves the collector as it is.
func (c *Controller) Stop() {
	if c != nil {
		c.stop()
	}
}

// UserLimit is the limit of the runtime that follows from that of the container in bytes: a tenth is for what the runtime does not count.
// Without one there is none.
func UserLimit(container int64) int64 {
	if container <= 0 {
		return math.MaxInt64
	}
	return container / 10 * 9
}
