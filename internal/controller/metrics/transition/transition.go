// Package transition publishes events and metrics when conditions of objects change their status.
package transition

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
)

// Kind is a kind of object with conditions.
type Kind struct {
	// Group and Name are the kind's API group and name, such as karpenter.sh and NodeClaim.
	Group, Name string
	// New makes an empty object, Ours reports whether one is this controller's, and Conditions are those of one.
	New        func() client.Object
	Ours       func(client.Object) bool
	Conditions func(client.Object) []metav1.Condition
	// Labels are the keys of labels of the objects that the metrics have, too.
	Labels []string
	// Buckets are the buckets of the durations, in seconds.
	Buckets []float64
}

// Reconciler watches the conditions of one kind.
type Reconciler struct {
	Client  client.Client
	Kind    Kind
	Events  *event.Recorder
	Metrics *Metrics
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named(strings.ToLower(r.Kind.Name)+".status").
		For(r.Kind.New(), builder.WithPredicates(eventfilter.IgnoreHeartbeats())).
		Complete(r)
}

// Reconcile compares an object's conditions with those at the last reconcile. It misses a change that was reverted in
// between, and changes while no controller ran.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := r.Kind.New()
	if err := r.Client.Get(ctx, req.NamespacedName, o); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.Metrics.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !r.Kind.Ours(o) {
		return reconcile.Result{}, nil
	}
	now := observation{uid: o.GetUID(), deleted: o.GetDeletionTimestamp(), conditions: firstOfEach(r.Kind.Conditions(o))}
	for _, key := range r.Kind.Labels {
		now.labels = append(now.labels, o.GetLabels()[key])
	}
	before, known := r.Metrics.exchange(req.NamespacedName, now)
	for _, c := range now.conditions {
		if was, had := find(before.conditions, c.Type); known && (!had || was.Status != c.Status) {
			r.Metrics.changed(now, was, c)
			r.report(o, was, c)
		}
	}
	return reconcile.Result{}, nil
}

// report publishes the event of a change. A missing condition counts as Unknown.
func (r *Reconciler) report(o client.Object, was, is metav1.Condition) {
	from := was.Status
	if was.Type == "" {
		from = metav1.ConditionUnknown
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

// firstOfEach are the conditions without those of a type that another had before, in valid UTF-8. The API server rejects neither in a
// Node. Two equal series fail the whole scrape, and labels that are no UTF-8 panic.
func firstOfEach(conditions []metav1.Condition) []metav1.Condition {
	out := conditions[:0:0]
	for _, c := range conditions {
		c.Type, c.Reason = strings.ToValidUTF8(c.Type, "\uFFFD"), strings.ToValidUTF8(c.Reason, "\uFFFD")
		c.Status = metav1.ConditionStatus(strings.ToValidUTF8(string(c.Status), "\uFFFD"))
		if _, had := find(out, c.Type); !had {
			out = append(out, c)
		}
	}
	return out
}

func find(conditions []metav1.Condition, typ string) (metav1.Condition, bool) {
	for _, c := range conditions {
		if c.Type == typ {
			return c, true
		}
	}
	return metav1.Condition{}, false
}
