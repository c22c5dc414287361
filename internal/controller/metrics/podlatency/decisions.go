// Package podlatency measures how long pods wait: for a decision, for a node, and until they are ready. Decisions are
// kept in memory only, since nothing but metrics depends on them.
package podlatency

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// Decision is the progress of one pod. Times are zero for steps that have not happened.
type Decision struct {
	// Seen is the time when the pod was first seen to need a node.
	Seen time.Time
	// Decided is the time when the first plan scheduled or rejected the pod.
	Decided time.Time
	// Schedulable is since when every plan has scheduled the pod.
	Schedulable time.Time
	// Healthy is since when that has been on a pool with nodes that are known to register.
	Healthy time.Time
}

// Decisions holds the decisions of plans about pods. A nil Decisions holds nothing. It is safe for concurrent use.
type Decisions struct {
	metrics *metrics.Metrics
	now     func() time.Time

	mu   sync.Mutex
	pods map[types.UID]stored
}

// stored is a Decision in a third of its size, for 30,000 pods that wait: nanoseconds since 1970, 0 for no time.
type stored struct{ seen, decided, schedulable, healthy int64 }

func store(d Decision) stored {
	nanos := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	}
	return stored{nanos(d.Seen), nanos(d.Decided), nanos(d.Schedulable), nanos(d.Healthy)}
}

func (s stored) decision() Decision {
	at := func(nanos int64) (t time.Time) {
		if nanos != 0 {
			t = time.Unix(0, nanos).UTC()
		}
		return t
	}
	return Decision{Seen: at(s.seen), Decided: at(s.decided), Schedulable: at(s.schedulable), Healthy: at(s.healthy)}
}

// NewDecisions returns an empty Decisions.
func NewDecisions(metrics *metrics.Metrics, now func() time.Time) *Decisions {
	return &Decisions{metrics: metrics, now: now, pods: map[types.UID]stored{}}
}

// Of returns the decision about a pod.
func (d *Decisions) Of(uid types.UID) Decision {
	if d == nil {
		return Decision{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pods[uid].decision()
}

// See records that a pod needs a node; only the first time counts. It reports whether this is the first.
func (d *Decisions) See(pod *corev1.Pod) (first bool) {
	d.change(pod, func(now time.Time, e *Decision) {
		if e.Seen.IsZero() {
			e.Seen, first = now, true
		}
	})
	return first
}

// Place records that a plan scheduled a pod, on a pool that is known to register nodes (healthy) or not.
func (d *Decisions) Place(pod *corev1.Pod, healthy bool) {
	d.change(pod, func(now time.Time, e *Decision) {
		d.decide(now, e)
		if e.Schedulable.IsZero() {
			e.Schedulable = now
		}
		switch {
		case !healthy:
			e.Healthy = time.Time{}
		case e.Healthy.IsZero():
			e.Healthy = now
		}
	})
}

// Refuse records that a plan rejected a pod.
func (d *Decisions) Refuse(pod *corev1.Pod) {
	d.change(pod, func(now time.Time, e *Decision) {
		d.decide(now, e)
		e.Schedulable, e.Healthy = time.Time{}, time.Time{}
	})
}

// Forget drops a pod.
func (d *Decisions) Forget(uid types.UID) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pods, uid)
}

// retain drops the pods that were first seen before an instant, except those that wait.
func (d *Decisions) retain(waiting map[types.UID]wait, before time.Time) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, e := range d.pods {
		if _, waits := waiting[uid]; !waits && e.decision().Seen.Before(before) {
			delete(d.pods, uid)
		}
	}
}

// change edits the decision about a pod. It skips bound pods: they are planned because they must move, and do not wait.
func (d *Decisions) change(pod *corev1.Pod, edit func(now time.Time, e *Decision)) {
	if d == nil || pod.Spec.NodeName != "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.pods[pod.UID].decision()
	edit(d.now(), &e)
	d.pods[pod.UID] = store(e)
}

// decide measures the first decision only. For a pod that was not seen before its first plan the latency is zero.
func (d *Decisions) decide(now time.Time, e *Decision) {
	if !e.Decided.IsZero() {
		return
	}
	if e.Seen.IsZero() {
		e.Seen = now
	}
	e.Decided = now
	d.metrics.PodDecision.Observe(now.Sub(e.Seen).Seconds())
}
