// Package event records Kubernetes events without repeating itself.
package event

import (
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Quiet is for how long an event that says the same of the same object stays unsaid.
const Quiet = 2 * time.Minute

// enough is a number of remembered events that is not worth sweeping.
const enough = 10_000

// Object is what an event is about.
type Object interface {
	client.Object
	runtime.Object
}

// Recorder records events. The same reason and message on the same object is recorded once per window;
// a new message is a new fact and is always recorded.
type Recorder struct {
	sink record.EventRecorder
	now  func() time.Time

	mu   sync.Mutex
	said map[key]time.Time
	// sweep is how many entries said may hold before those that have run out are looked for.
	sweep int
}

type key struct {
	uid             types.UID
	reason, message string
}

// NewRecorder returns a Recorder that writes to sink.
func NewRecorder(sink record.EventRecorder, now func() time.Time) *Recorder {
	return &Recorder{sink: sink, now: now, said: map[key]time.Time{}, sweep: enough}
}

// Normal records that something happened as it should.
func (r *Recorder) Normal(o Object, reason, format string, args ...any) {
	r.record(o, Quiet, corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...))
}

// NormalEvery is Normal with a window of its own.
func (r *Recorder) NormalEvery(window time.Duration, o Object, reason, format string, args ...any) {
	r.record(o, window, corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...))
}

// Warn records that something needs attention.
func (r *Recorder) Warn(o Object, reason, format string, args ...any) {
	r.record(o, Quiet, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}

// WarnEvery is Warn with a window of its own.
func (r *Recorder) WarnEvery(window time.Duration, o Object, reason, format string, args ...any) {
	r.record(o, window, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}

func (r *Recorder) record(o Object, window time.Duration, typ, reason, message string) {
	if r.repeated(key{o.GetUID(), reason, message}, window) {
		return
	}
	r.sink.Event(o, typ, reason, message)
}

func (r *Recorder) repeated(k key, window time.Duration) bool {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.said[k]; ok && now.Before(until) {
		return true
	}
	// Entries are small and their number is bounded by what happens in a window. Sweeping whenever it has
	// doubled costs little for each event, however many there are.
	if len(r.said) >= r.sweep {
		maps.DeleteFunc(r.said, func(_ key, until time.Time) bool { return !now.Before(until) })
		r.sweep = max(enough, 2*len(r.said))
	}
	r.said[k] = now.Add(window)
	return false
}
