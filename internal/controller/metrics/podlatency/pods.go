package podlatency

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// podEvents reports the changes of pods: see cluster.CachedPods.
type podEvents interface {
	Watch(ctx context.Context, changed, deleted func(*corev1.Pod)) error
}

// Pods measures how long pods take until they are bound and ready, each once. It skips pods that were running before
// this process started.
type Pods struct {
	Source    podEvents
	Decisions *Decisions
	Metrics   *metrics.Metrics
	Now       func() time.Time
	Log       *slog.Logger

	// waiting are the pods with steps that are still to be measured.
	waiting map[types.UID]wait
	// swept is the time when the decisions about pods that are gone were last forgotten.
	swept time.Time
}

// sweepInterval sets how long a decision about a pod that is gone is kept at most, doubled. The trigger and plans may see a pod after this
// has seen it go: a tenant that creates and deletes 600 pods a second would leave as many decisions behind.
const sweepInterval = time.Minute

// wait is which steps of a pod's start are still to be measured.
type wait struct{ toBind, toStart bool }

// NeedLeaderElection makes sure that one process measures.
func (p *Pods) NeedLeaderElection() bool { return true }

// Start measures until ctx is done.
func (p *Pods) Start(ctx context.Context) error {
	p.waiting = map[types.UID]wait{}
	const what = "measure a pod"
	return p.Source.Watch(ctx, panics.EachLogged(p.Log, what, p.changed), panics.EachLogged(p.Log, what, p.deleted))
}

// changed measures the steps that a pod has completed. For nearly all pods it does nothing: those that run, and did when they were first
// seen.
func (p *Pods) changed(pod *corev1.Pod) {
	w, known := p.waiting[pod.UID]
	if !known {
		if pod.Status.Phase != corev1.PodPending {
			return
		}
		w = wait{pod.Spec.NodeName == "", true}
	}
	p.measure(pod, &w)
	if !w.toStart || !snapshot.Active(pod) {
		p.forget(pod.UID)
		return
	}
	p.waiting[pod.UID] = w
}

func (p *Pods) deleted(pod *corev1.Pod) {
	if _, known := p.waiting[pod.UID]; known {
		p.forget(pod.UID)
	}
}

func (p *Pods) forget(uid types.UID) {
	delete(p.waiting, uid)
	p.Decisions.Forget(uid)
	p.sweep()
}

// sweep forgets, once in a sweepInterval, what was decided of pods that do not wait. Cost: linear in the pods that wait.
func (p *Pods) sweep() {
	now := p.Now()
	if now.Sub(p.swept) < sweepInterval {
		return
	}
	p.swept = now
	p.Decisions.retain(p.waiting, now.Add(-sweepInterval))
}

func (p *Pods) measure(pod *corev1.Pod, w *wait) {
	healthy := p.Decisions.Of(pod.UID).Healthy
	observe := func(condition corev1.PodConditionType, sinceCreation, sincePlace prometheus.Observer) {
		at := p.since(pod, condition)
		sinceCreation.Observe(at.Sub(pod.CreationTimestamp.Time).Seconds())
		if !healthy.IsZero() {
			sincePlace.Observe(max(0, at.Sub(healthy)).Seconds())
		}
	}
	if w.toBind && pod.Spec.NodeName != "" {
		w.toBind = false
		dynamic := metrics.DynamicResources(pod)
		observe(corev1.PodScheduled, p.Metrics.PodBound.WithLabelValues(dynamic), p.Metrics.ProvisioningBound.WithLabelValues(dynamic))
	}
	if w.toStart && ready(pod) {
		w.toStart = false
		observe(corev1.PodReady, p.Metrics.PodStartup, p.Metrics.ProvisioningStartup)
	}
}

// since returns when a condition of the pod became true; now if that is unknown.
func (p *Pods) since(pod *corev1.Pod, condition corev1.PodConditionType) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == condition && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return p.Now()
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
