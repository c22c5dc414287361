// Package expiration shows on NodePools with the annotation dovetail.sh/expiration whether their nodes can be replaced before they expire.
package expiration

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// interval is the time between two forecasts of a pool: budgets and nodes change by the minute.
	interval = time.Minute
	// invalidWindow is the dedupe window of the event about an annotation that cannot be read.
	invalidWindow = time.Hour
	// drains is how long a node takes to go once its replacement is initialized, and boots how long the replacement takes where no node of
	// the pool has shown it. Pods have a grace period of half a minute as a rule, and PodDisruptionBudgets let a few go at a time.
	drains, boots = 5 * time.Minute, 3 * time.Minute
)

// The reasons of the conditions.
const (
	reasonInvalid   = "InvalidAnnotation"
	reasonBehind    = "BudgetsTooSmall"
	reasonUnbounded = "NoTerminationGracePeriod"
)

// NewBehind declares the metric in reg.
func NewBehind(reg prometheus.Registerer) (*prometheus.GaugeVec, error) {
	out := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_expiration_behind_nodes",
		Help: "Nodes of a pool with the annotation dovetail.sh/expiration that its budgets will not have replaced by their deadline.",
	}, []string{"nodepool"})
	return out, reg.Register(out)
}

// nodeSource reads the nodes of the cluster.
type nodeSource interface {
	Nodes(ctx context.Context) (*snapshot.Snapshot, error)
}

// Reconciler keeps the conditions ExpirationBehind and ExpirationUnbounded of NodePools. A pool without the annotation has neither.
type Reconciler struct {
	Client client.Client
	State  nodeSource
	Events *event.Recorder
	Behind *prometheus.GaugeVec
	Now    func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("nodepool.expiration").For(&karpv1.NodePool{}).Complete(patch.RequeueOnConflict(r))
}

// Reconcile forecasts whether the nodes of the pool are replaced before their deadline.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		r.Behind.DeleteLabelValues(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	e, invalid := pool.Expiration()
	if invalid == nil && (e == nil || e.Mode != karpv1.ExpirationGraceful) {
		r.Behind.DeleteLabelValues(req.Name)
		return reconcile.Result{}, r.show(ctx, pool, metav1.Condition{}, false)
	}
	if invalid != nil {
		r.Behind.DeleteLabelValues(req.Name)
		r.Events.WarnEvery(invalidWindow, pool, "InvalidAnnotation", "Nodes are not replaced before they expire: %v", invalid)
		return reconcile.Result{}, r.show(ctx, pool, metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: reasonInvalid,
			Message: invalid.Error() + "; until it is corrected, nodes stay until expireAfter has passed, and are deleted by the minute then",
		}, false)
	}
	forecast, err := r.forecast(ctx, pool, e)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.Behind.WithLabelValues(pool.Name).Set(float64(forecast.Behind))
	behind := metav1.Condition{}
	if forecast.Behind > 0 {
		behind = metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonBehind, Message: message(forecast, e.BudgetReason)}
		if !condition.IsTrue(pool, karpv1.ConditionExpirationBehind) {
			r.Events.Warn(pool, karpv1.ConditionExpirationBehind, "%s", behind.Message)
		}
	}
	unbounded := pool.Spec.Template.Spec.TerminationGracePeriod == nil && pool.Spec.Template.Spec.ExpireAfter.Duration != nil
	return reconcile.Result{RequeueAfter: interval}, r.show(ctx, pool, behind, unbounded)
}

// forecast reads the nodes of the pool.
func (r *Reconciler) forecast(ctx context.Context, pool *karpv1.NodePool, e *karpv1.Expiration) (disrupt.Forecast, error) {
	s, err := r.State.Nodes(ctx)
	if err != nil {
		return disrupt.Forecast{}, fmt.Errorf("read the nodes of node pool %q: %w", pool.Name, err)
	}
	each, err := r.replacementTime(ctx, pool)
	if err != nil {
		return disrupt.Forecast{}, err
	}
	x := disrupt.Expiries{Pool: pool, Each: each, Now: r.Now()}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Pool != pool.Name || n.Claim == "" || n.InstanceTerminating {
			continue
		}
		if n.Initialized || n.Rebooting {
			x.Total++
		}
		if n.ExpireAfter > 0 && n.Registered && !n.Deleting && !n.Disrupting {
			x.Nodes = append(x.Nodes, disrupt.Expiry{
				Due: e.Due(n.ClaimUID, n.CreatedAt, n.ExpireAfter), Deadline: e.Deadline(n.CreatedAt, n.ExpireAfter),
			})
		}
	}
	return x.Forecast(), nil
}

// replacementTime is how long it takes to replace a node: as long as the nodes of the pool took to be initialized, in the mean, and drains.
func (r *Reconciler) replacementTime(ctx context.Context, pool *karpv1.NodePool) (time.Duration, error) {
	var list karpv1.NodeClaimList
	if err := r.Client.List(ctx, &list, client.MatchingLabels{karpv1.LabelNodePool: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	var sum time.Duration
	n := 0
	for i := range list.Items {
		c, _ := condition.Get(&list.Items[i], karpv1.ConditionInitialized)
		took := c.LastTransitionTime.Sub(list.Items[i].CreationTimestamp.Time)
		if c.Status != metav1.ConditionTrue || took < 0 || took > time.Hour { // one that was adopted, or initialized again
			continue
		}
		sum += took
		n++
	}
	if n == 0 {
		return boots + drains, nil
	}
	return sum/time.Duration(n) + drains, nil
}

// message states how many nodes are behind, since when, and what would help.
func message(f disrupt.Forecast, reason karpv1.DisruptionReason) string {
	out := fmt.Sprintf("%d nodes will not have been replaced by their deadline within the budgets for %s, the first at %s, and are deleted then",
		f.Behind, reason, f.First.UTC().Format(time.RFC3339))
	if f.Enough > 0 {
		return out + fmt.Sprintf("; budgets of %d nodes at once would do", f.Enough)
	}
	return out + "; budgets allow none of them in time, whatever their number: a longer lead or other windows would do"
}

// show keeps the conditions. A zero Condition is none.
func (r *Reconciler) show(ctx context.Context, pool *karpv1.NodePool, behind metav1.Condition, unbounded bool) error {
	before := pool.DeepCopy()
	if behind.Status == "" {
		condition.Clear(pool, karpv1.ConditionExpirationBehind, r.Now())
	} else {
		behind.Type = karpv1.ConditionExpirationBehind
		condition.Set(pool, behind, r.Now())
	}
	if unbounded {
		condition.SetTrueWithReason(pool, karpv1.ConditionExpirationUnbounded, condition.Because(reasonUnbounded,
			"spec.template.spec.terminationGracePeriod is not set: a node that has expired drains for as long as its pods refuse to go"), r.Now())
	} else {
		condition.Clear(pool, karpv1.ConditionExpirationUnbounded, r.Now())
	}
	_, err := patch.StatusFrom(ctx, r.Client, before, pool)
	return client.IgnoreNotFound(err)
}
