// Package transition publishes events and metrics when conditions of NodeClaims and NodePools change their status.
package transition

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
)

// Object has conditions, and can be looked up.
type Object interface {
	client.Object
	condition.Object
}

// Metrics of the conditions of one kind.
type Metrics struct {
	// count is 1 for each condition of each object, by name, type, status, reason.
	count *prometheus.GaugeVec
	// transitions by type and the new status and reason; seconds, by type and the old status, is how long the old
	// status lasted.
	transitions *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
}

// NewMetrics declares the metrics of a kind, such as NodeClaim, in reg.
func NewMetrics(reg prometheus.Registerer, kind string) (*Metrics, error) {
	prefix := "operator_" + strings.ToLower(kind) + "_status_condition_"
	m := &Metrics{
		count: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "count", Help: "Conditions of a " + kind + ": 1 for their current status.",
		}, []string{"name", "type", "status", "reason"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "transitions_total", Help: "Status changes of conditions of a " + kind + ", by the new status.",
		}, []string{"type", "status", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "transition_seconds", Help: "How long conditions of a " + kind + " had a status before it changed.",
			Buckets: prometheus.ExponentialBuckets(.5, 2, 14),
		}, []string{"type", "status"}),
	}
	for _, c := range []prometheus.Collector{m.count, m.transitions, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Reconciler watches the conditions of one kind.
type Reconciler struct {
	Client client.Client
	// Kind is the kind's name; New makes an empty object of it, and Ours says whether one is this controller's.
	Kind    string
	New     func() Object
	Ours    func(Object) bool
	Events  *event.Recorder
	Metrics *Metrics

	mu sync.Mutex
	// seen are the last observed conditions of each object.
	seen map[types.NamespacedName]observation
}

type observation struct {
	uid        types.UID
	conditions []metav1.Condition
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named(strings.ToLower(r.Kind) + ".status").For(r.New()).Complete(r)
}

// Reconcile compares an object's conditions with those at the last reconcile. It misses a change that was reverted in
// between, and changes while no controller ran.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := r.New()
	if err := r.Client.Get(ctx, req.NamespacedName, o); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !r.Ours(o) {
		return reconcile.Result{}, nil
	}
	now := condition.All(o)
	before, known := r.exchange(req.NamespacedName, observation{uid: o.GetUID(), conditions: now})
	r.Metrics.count.DeletePartialMatch(prometheus.Labels{"name": o.GetName()})
	for _, c := range now {
		r.Metrics.count.WithLabelValues(o.GetName(), c.Type, string(c.Status), c.Reason).Set(1)
		if was, had := find(before, c.Type); known && (!had || was.Status != c.Status) {
			r.record(o, was, c)
		}
	}
	return reconcile.Result{}, nil
}

// record publishes the event and the metrics of a change. A missing condition counts as Unknown.
func (r *Reconciler) record(o Object, was, is metav1.Condition) {
	r.Metrics.transitions.WithLabelValues(is.Type, string(is.Status), is.Reason).Inc()
	from := metav1.ConditionUnknown
	if was.Type != "" {
		from = was.Status
		r.Metrics.seconds.WithLabelValues(is.Type, string(was.Status)).Observe(is.LastTransitionTime.Sub(was.LastTransitionTime.Time).Seconds())
	}
	if from == is.Status {
		return
	}
	message := fmt.Sprintf("Status condition transitioned, Type: %s, Status: %s -> %s, Reason: %s", is.Type, from, is.Status, is.Reason)
	if is.Message != "" {
		message += ", Message: " + is.Message
	}
	r.Events.Normal(o, is.Type, "%s", message)
}

func find(conditions []metav1.Condition, typ string) (metav1.Condition, bool) {
	for _, c := range conditions {
		if c.Type == typ {
			return c, true
		}
	}
	return metav1.Condition{}, false
}

// exchange stores the current observation and returns the previous one; false for a new object.
func (r *Reconciler) exchange(name types.NamespacedName, now observation) ([]metav1.Condition, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[types.NamespacedName]observation{}
	}
	before, known := r.seen[name]
	r.seen[name] = now
	return before.conditions, known && before.uid == now.uid
}

func (r *Reconciler) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, name)
	r.Metrics.count.DeletePartialMatch(prometheus.Labels{"name": name.Name})
}
