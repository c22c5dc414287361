package breaker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
)

// pausedEventWindow is the dedupe window of the event about paused reasons.
const pausedEventWindow = 15 * time.Minute

// Reconciler records on each NodePool the outcomes of the claims that were launched in it to replace others.
type Reconciler struct {
	Client client.Client
	Rules
	Events  *event.Recorder
	Metrics *Metrics
	Log     *slog.Logger
	Now     func() time.Time

	mu sync.Mutex
	// deleted are the last seen versions, by pool, of claims that were deleted before their outcome was recorded.
	deleted map[string]map[types.UID]*karpv1.NodeClaim
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodepool.breaker").
		For(&karpv1.NodePool{}).
		Watches(&awsv1.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(cluster.PoolRequests(mgr.GetClient()))).
		Watches(&karpv1.NodeClaim{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e ctrlevent.CreateEvent, q queue) { r.changed(e.Object, false, q) },
			UpdateFunc: func(_ context.Context, e ctrlevent.UpdateEvent, q queue) { r.changed(e.ObjectNew, false, q) },
			DeleteFunc: func(_ context.Context, e ctrlevent.DeleteEvent, q queue) { r.changed(e.Object, true, q) },
		}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(poolOf), builder.WithPredicates(conditionsChanged())).
		Complete(patch.RequeueOnConflict(r))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// poolOf maps a node to its pool.
func poolOf(_ context.Context, o client.Object) []reconcile.Request {
	pool := o.GetLabels()[karpv1.LabelNodePool]
	if pool == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool}}}
}

// conditionsChanged are the updates in which a condition of a node has changed its status, and deletions.
func conditionsChanged() predicate.Predicate {
	facts := func(o client.Object) map[corev1.NodeConditionType]corev1.ConditionStatus {
		out := map[corev1.NodeConditionType]corev1.ConditionStatus{}
		if node, ok := o.(*corev1.Node); ok {
			for _, c := range node.Status.Conditions {
				out[c.Type] = c.Status
			}
		}
		return out
	}
	return predicate.Funcs{
		CreateFunc: func(ctrlevent.CreateEvent) bool { return false },
		UpdateFunc: func(e ctrlevent.UpdateEvent) bool { return !maps.Equal(facts(e.ObjectOld), facts(e.ObjectNew)) },
	}
}

// changed enqueues the pool of a claim that was launched to replace others, or has a node that came up a short time ago.
func (r *Reconciler) changed(o client.Object, gone bool, q queue) {
	claim, ok := o.(*karpv1.NodeClaim)
	if !ok || breaker.Reason(claim) == "" && r.Windows.Judge(claim, breaker.Health{}, r.Now()).Stage == breaker.Survived {
		return
	}
	pool := claim.Labels[karpv1.LabelNodePool]
	if gone {
		r.remember(pool, claim)
	}
	q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: pool}})
}

func (r *Reconciler) remember(pool string, claim *karpv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deleted == nil {
		r.deleted = map[string]map[types.UID]*karpv1.NodeClaim{}
	}
	if r.deleted[pool] == nil {
		r.deleted[pool] = map[types.UID]*karpv1.NodeClaim{}
	}
	r.deleted[pool][claim.UID] = claim
}

// deletedClaims returns the remembered claims of a pool; forget removes them.
func (r *Reconciler) deletedClaims(pool string) []*karpv1.NodeClaim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*karpv1.NodeClaim
	for _, c := range r.deleted[pool] {
		out = append(out, c)
	}
	return out
}

func (r *Reconciler) forget(pool string, claims []*karpv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range claims {
		delete(r.deleted[pool], c.UID)
	}
	if len(r.deleted[pool]) == 0 {
		delete(r.deleted, pool)
	}
}

// Reconcile updates the pool's record of outcomes and its condition, and requeues it for the time when a claim would be
// late.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	deleted := r.deletedClaims(req.Name)
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(req.Name, deleted)
			r.Metrics.forget(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ref := pool.Spec.Template.Spec.NodeClassRef
	if !awsv1.IsEC2NodeClass(ref) || pool.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	class := &awsv1.EC2NodeClass{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	claims, err := claimsOf(ctx, r.Client, pool.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	v, err := r.evaluate(ctx, pool, class, append(claims, deleted...))
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.write(ctx, pool, v); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	for _, n := range v.noted {
		r.Metrics.count(pool.Name, n.reason, n.Outcome)
	}
	r.forget(pool.Name, deleted)
	return reconcile.Result{RequeueAfter: v.recheckAfter}, nil
}

// view is the state of a pool's replacements at a moment.
type view struct {
	book     breaker.History
	noted    []noted
	inFlight bool
	// recheckAfter is the time when to evaluate again; zero for not before something changes.
	recheckAfter time.Duration
	// policy is how drifted nodes are replaced, invalid why that is not what the annotation states; progress is how far a roll-out has come.
	policy   karpv1.Rollout
	invalid  error
	progress string
	// rolledBack states that the class uses images that are known to be good; empty if it does not.
	rolledBack string
}

type noted struct {
	reason karpv1.DisruptionReason
	breaker.Outcome
}

// evaluate reads the pool's record and adds the outcomes of claims.
func (r *Reconciler) evaluate(
	ctx context.Context, pool *karpv1.NodePool, class *awsv1.EC2NodeClass, claims []*karpv1.NodeClaim,
) (view, error) {
	now := r.Now()
	v := view{book: breaker.Read(pool)}
	all := members{pool, class, claims, &v.book}
	policy, invalid := soaks{r.Client, r.Rules}.policy(ctx, all)
	if r.Threshold == 0 && !policy.Canary() {
		return view{}, nil
	}
	v.policy, v.invalid, v.book.FirstFault = policy, invalid, policy.Canary()
	soak, err := soaks{r.Client, r.Rules}.read(ctx, all, policy, now)
	if err != nil {
		return view{}, err
	}
	v.book.ResetIfChanged(breaker.Cause{Pool: pool.Generation, Class: class.Generation, ClassUID: class.UID}, breaker.Images(class), now)
	v.book.UpdateRollout(soak, policy, now)
	windows := r.windows(policy)
	for _, claim := range claims {
		reason := breaker.Reason(claim)
		if reason == "" {
			continue
		}
		o, decided, next := windows.OutcomeOf(claim, soak.Health[claim.UID], now)
		if decided {
			if v.book.AddOutcome(reason, o, r.Threshold) {
				v.noted = append(v.noted, noted{reason, o})
			}
			continue
		}
		v.inFlight = v.inFlight || !next.IsZero()
		v.recheck(next, now)
	}
	for _, s := range soak.Verdicts {
		v.recheck(s.Next, now)
	}
	for _, o := range v.book.AddVerdicts(soak.Verdicts, r.Threshold) {
		i := slices.IndexFunc(claims, func(c *karpv1.NodeClaim) bool { return c.UID == o.UID })
		if reason := breaker.Reason(claims[i]); reason != "" {
			v.noted = append(v.noted, noted{reason, o})
		}
	}
	v.rollout(all, soak)
	return v, nil
}

// recheck has the view evaluated again at a time; never for the zero time.
func (v *view) recheck(at, now time.Time) {
	if at.IsZero() {
		return
	}
	if wait := max(at.Sub(now), time.Second); v.recheckAfter == 0 || wait < v.recheckAfter {
		v.recheckAfter = wait
	}
}

// write writes the record to the pool, then the condition derived from it: a repetition after a crash gives the same
// result.
func (r *Reconciler) write(ctx context.Context, pool *karpv1.NodePool, v view) error {
	before := pool.DeepCopy()
	changed, err := v.book.Write(pool, v.inFlight)
	if err != nil {
		return err
	}
	if changed {
		if _, err := patch.ObjectFrom(ctx, r.Client, before, pool); err != nil {
			return fmt.Errorf("record the outcomes of replacements: %w", err)
		}
	}
	if err := r.reportRollout(ctx, pool, v); err != nil {
		return err
	}
	return r.reportPaused(ctx, pool, &v.book)
}

// reportPaused keeps condition, gauge and events.
func (r *Reconciler) reportPaused(ctx context.Context, pool *karpv1.NodePool, book *breaker.History) error {
	var reasons, why []string
	if message := book.SoakMessage(pool.Name, pool.Spec.Template.Spec.NodeClassRef.Name); message != "" {
		reasons, why = append(reasons, string(breaker.ReasonNewNodesFail)), append(why, message)
	}
	for _, reason := range book.Paused() {
		reasons, why = append(reasons, string(reason)), append(why, book.PauseMessage(reason))
	}
	before := pool.DeepCopy()
	was := condition.IsTrue(pool, karpv1.ConditionDisruptionPaused)
	if len(reasons) > 0 {
		condition.SetTrueWithReason(
			pool,
			karpv1.ConditionDisruptionPaused,
			condition.Because(strings.Join(reasons, "And"), strings.Join(why, "; ")),
			r.Now(),
		)
	} else {
		condition.Clear(pool, karpv1.ConditionDisruptionPaused, r.Now())
	}
	if _, err := patch.StatusFrom(ctx, r.Client, before, pool); err != nil {
		return err
	}
	r.Metrics.pause(pool.Name, reasons)
	switch {
	case len(reasons) > 0:
		r.Events.WarnEvery(pausedEventWindow, pool, karpv1.ConditionDisruptionPaused, "%s", strings.Join(why, "; "))
		if !was {
			r.Log.Warn("replacing nodes is paused", "NodePool", pool.Name, "reasons", reasons, "why", strings.Join(why, "; "))
		}
	case was:
		r.Events.Normal(pool, "DisruptionResumed", "Nodes of NodePool %s are replaced again", pool.Name)
		r.Log.Info("replacing nodes resumes", "NodePool", pool.Name)
	}
	return nil
}
