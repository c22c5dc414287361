// Package event publishes Kubernetes events and deduplicates them.
package event

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultDedupeWindow sets how long an equal event on the same object is not published again. It is Karpenter's.
const DefaultDedupeWindow = 2 * time.Minute

// Nominated is the reason of events that name the node which a pending pod will get. They are limited, over all pods, to
// nominationsPerSecond and bursts of nominationBurst, which are Karpenter's numbers: thousands of pods that become pending at once would
// cost the API server as many writes, just when nodes have to be launched.
const (
	Nominated            = "Nominated"
	nominationsPerSecond = 5
	nominationBurst      = 10
)

// minSweepSize is the number of entries from which expired ones are removed; fewer take a few megabytes at most.
const minSweepSize = 10_000

// Object is the object of an event.
type Object interface {
	client.Object
	runtime.Object
}

// Recorder publishes events. It publishes the same reason and message on the same object once per dedupe window; a new
// message is always published.
type Recorder struct {
	sink        record.EventRecorder
	now         func() time.Time
	nominations *rate.Limiter

	mu       sync.Mutex
	recorded map[key]time.Time
	// sweepAt is the number of entries at which expired ones are removed next.
	sweepAt int
}

type key struct {
	uid             types.UID
	reason, message string
}

// NewRecorder returns a Recorder that writes to sink.
func NewRecorder(sink record.EventRecorder, now func() time.Time) *Recorder {
	return &Recorder{
		sink: sink, now: now, nominations: rate.NewLimiter(nominationsPerSecond, nominationBurst),
		recorded: map[key]time.Time{}, sweepAt: minSweepSize,
	}
}

// Normal publishes an event of type Normal.
func (r *Recorder) Normal(o Object, reason, format string, args ...any) {
	r.record(o, DefaultDedupeWindow, entry{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)})
}

// NormalEvery is Normal with its own dedupe window.
func (r *Recorder) NormalEvery(window time.Duration, o Object, reason, format string, args ...any) {
	r.record(o, window, entry{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)})
}

// Warn publishes an event of type Warning.
func (r *Recorder) Warn(o Object, reason, format string, args ...any) {
	r.record(o, DefaultDedupeWindow, entry{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

// WarnEvery is Warn with its own dedupe window.
func (r *Recorder) WarnEvery(window time.Duration, o Object, reason, format string, args ...any) {
	r.record(o, window, entry{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

// entry is an event, without its object.
type entry struct{ typ, reason, message string }

func (r *Recorder) record(o Object, window time.Duration, e entry) {
	if r.suppressed(key{o.GetUID(), e.reason, e.message}, window) {
		return
	}
	r.sink.Event(o, e.typ, e.reason, e.message)
}

// suppressed reports whether an event repeats another, or is over the limit of its reason. An event over the limit may be published later.
func (r *Recorder) suppressed(k key, window time.Duration) bool {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.recorded[k]; ok && now.Before(until) {
		return true
	}
	if k.reason == Nominated && !r.nominations.AllowN(now, 1) {
		return true
	}
	// Entries are small, and the events of a window bound their number. Sweeping whenever that has doubled has an
	// amortized cost of O(1) per event.
	if len(r.recorded) >= r.sweepAt {
		maps.DeleteFunc(r.recorded, func(_ key, until time.Time) bool { return !now.Before(until) })
		r.sweepAt = max(minSweepSize, 2*len(r.recorded))
	}
	r.recorded[k] = now.Add(window)
	return false
}
