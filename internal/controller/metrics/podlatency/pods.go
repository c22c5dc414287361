package podlatency

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Pods measures how long pods take until they are bound and ready, each once. It skips pods that were running before
// this process started.
type Pods struct {
	Client    client.Client
	Decisions *Decisions
	Metrics   *metrics.Metrics
	Now       func() time.Time

	mu      sync.Mutex
	waiting map[types.NamespacedName]wait
}

// wait is which steps of a pod's start are still to be measured.
type wait struct {
	uid             types.UID
	toBind, toStart bool
}

// Register adds the reconciler to mgr.
func (p *Pods) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("metrics.pod").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(p.concerns))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(p)
}

// concerns leaves out the pods for which Reconcile does nothing, nearly all: those that run, and did when they were first seen. A queue
// with an entry for each pod of a large cluster keeps its memory.
func (p *Pods) concerns(o client.Object) bool {
	if o.(*corev1.Pod).Status.Phase == corev1.PodPending {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, waits := p.waiting[client.ObjectKeyFromObject(o)]
	return waits
}

// Reconcile measures the steps that a pod has completed.
func (p *Pods) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	err := p.Client.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.waiting[req.NamespacedName]
	if known && (err != nil || w.uid != pod.UID) {
		p.forget(req.NamespacedName, w)
		known = false
	}
	if err != nil {
		return reconcile.Result{}, nil
	}
	if !known {
		if pod.Status.Phase != corev1.PodPending {
			return reconcile.Result{}, nil
		}
		w = wait{pod.UID, pod.Spec.NodeName == "", true}
	}
	p.measure(pod, &w)
	if !w.toStart || !snapshot.Active(pod) {
		p.forget(req.NamespacedName, w)
		return reconcile.Result{}, nil
	}
	if p.waiting == nil {
		p.waiting = map[types.NamespacedName]wait{}
	}
	p.waiting[req.NamespacedName] = w
	return reconcile.Result{}, nil
}

func (p *Pods) forget(name types.NamespacedName, w wait) {
	delete(p.waiting, name)
	p.Decisions.Forget(w.uid)
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

// since is when a condition of the pod became true; now if that is unknown.
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
