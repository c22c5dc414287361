// Package podlatency tells how long pods wait: for a decision, for a node, and until they are ready. What the
// controller has decided of each pod is kept in memory, since nothing but metrics depends on it.
package podlatency

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// Decision is what is known of one pod. Times are zero for what has not happened.
type Decision struct {
	// Seen is when the pod was first seen to need a node.
	Seen time.Time
	// Decided is when a plan first said where it goes, or that it goes nowhere.
	Decided time.Time
	// Schedulable is since when every plan has had a place for it.
	Schedulable time.Time
	// Healthy is since when that place has been in a pool whose nodes are known to join.
	Healthy time.Time
}

// Decisions remembers what plans said of pods. A nil Decisions remembers nothing. It is safe for concurrent use.
type Decisions struct {
	metrics *metrics.Metrics
	now     func() time.Time

	mu   sync.Mutex
	pods map[types.UID]Decision
}

// NewDecisions returns an empty Decisions.
func NewDecisions(metrics *metrics.Metrics, now func() time.Time) *Decisions {
	return &Decisions{metrics: metrics, now: now, pods: map[types.UID]Decision{}}
}

// Of returns what is known of a pod.
func (d *Decisions) Of(uid types.UID) Decision {
	if d == nil {
		return Decision{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pods[uid]
}

// See notes that a pod needs a node; only the first time counts.
func (d *Decisions) See(pod *corev1.Pod) {
	d.change(pod, func(now time.Time, e *Decision) {
		if e.Seen.IsZero() {
			e.Seen = now
		}
	})
}

// Place notes that a pod has a place, in a pool whose nodes are known to join or not.
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

// Refuse notes that a pod has no place.
func (d *Decisions) Refuse(pod *corev1.Pod) {
	d.change(pod, func(now time.Time, e *Decision) {
		d.decide(now, e)
		e.Schedulable, e.Healthy = time.Time{}, time.Time{}
	})
}

// Forget drops all that is known of a pod.
func (d *Decisions) Forget(uid types.UID) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pods, uid)
}

// change edits what is known of a pod. One that has a node is planned only because it must move: it does not wait.
func (d *Decisions) change(pod *corev1.Pod, edit func(now time.Time, e *Decision)) {
	if d == nil || pod.Spec.NodeName != "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.pods[pod.UID]
	edit(d.now(), &e)
	d.pods[pod.UID] = e
}

// decide measures the first decision only. A pod that was not seen before its first plan was decided on at once.
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
