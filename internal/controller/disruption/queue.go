package disruption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

const (
	// pollInterval is how often a command in progress is checked without a change of its claims.
	pollInterval = 10 * time.Second
	// startingPollInterval is when a command that this process is still starting is checked again.
	startingPollInterval = time.Second
	// maxCacheLag is an upper bound for the time until the cache shows a write. It only limits memory.
	maxCacheLag = 5 * time.Minute
)

// deletionMarks holds the deletions that were decided but may not show in the cache yet.
type deletionMarks interface {
	MarkForDeletion(uid types.UID)
	Unmark(uid types.UID)
}

// haltChecker reports whether a command must stop because disruption for its reason has paused in the pool since its
// start.
type haltChecker interface {
	Halted(ctx context.Context, pool string, reason karpv1.DisruptionReason, started time.Time) (why string, halted bool)
}

// Queue completes commands that wait for replacements. Their state is on the claims, so any process can continue one.
// When all replacements are ready, the queue deletes the candidates. When a replacement is lost or late, it rolls the
// command back: it deletes unused replacements and untaints the candidates. It also rolls back commands that a process
// which exited had only begun to start.
type Queue struct {
	Client client.Client
	Guard  *destroy.Guard
	// Live reads from the API server, not from the cache.
	Live  client.Reader
	State deletionMarks
	// Breaker may be nil: then commands in progress continue, even if others fail.
	Breaker haltChecker
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Jitter returns a number in [0, 1).
	Jitter func() float64
	// Recorder records what becomes of commands; nil records nothing.
	Recorder *recorder.Recorder
	// SurgeTimeout is how long the restart of a Deployment may take that moves its only pod; 0 restarts none.
	SurgeTimeout time.Duration

	// memory is what passes remember. The Queue reports to it what became of commands.
	memory memory

	mu sync.Mutex
	// starting are the commands that this process is starting now.
	starting map[string]bool
	// replacementsCreated are the commands with replacements that have all existed at some time.
	replacementsCreated map[string]bool
	// deleted are the claims that this process has deleted, and when: the cache may not show it yet.
	deleted map[types.UID]time.Time
	// pendingRollbacks are commands of this process with a failed rollback. Some may have no record on any claim.
	pendingRollbacks []deferredRollback
}

// Register adds the queue to mgr.
func (q *Queue) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("disruption.queue").
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, claim client.Object) []reconcile.Request {
			id := cluster.CommandOf(claim.(*karpv1.NodeClaim))
			if id == "" {
				return nil
			}
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: id}}}
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 20}).
		Complete(q)
}

// markStarting keeps the queue from acting on a command until the returned function is called.
func (q *Queue) markStarting(id string) func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.starting == nil {
		q.starting = map[string]bool{}
	}
	q.starting[id] = true
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.starting, id)
	}
}

func (q *Queue) isStarting(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.starting[id]
}

// noteReplacementsCreated records that all replacements of a command exist: one that is missing later was lost.
func (q *Queue) noteReplacementsCreated(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.replacementsCreated == nil {
		q.replacementsCreated = map[string]bool{}
	}
	q.replacementsCreated[id] = true
}

func (q *Queue) allReplacementsCreated(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.replacementsCreated[id]
}

func (q *Queue) isDeleted(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.deleted[uid]
	return ok
}

func (q *Queue) noteDeleted(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.Now()
	maps.DeleteFunc(q.deleted, func(_ types.UID, at time.Time) bool { return now.Sub(at) > maxCacheLag })
	if q.deleted == nil {
		q.deleted = map[types.UID]time.Time{}
	}
	q.deleted[uid] = now
}

// read returns the command that the claims have a record of, and what its next step depends on.
func (q *Queue) read(ctx context.Context, id string) (inflight.Command, error) {
	claims, err := cluster.ClaimsOfCommand(ctx, q.Client, id)
	if err != nil {
		return inflight.Command{}, err
	}
	c := inflight.Of(id, claims)
	if len(c.Candidates) == 0 {
		return c, nil
	}
	if c.Replacements, err = q.replacements(ctx, &c.Record); err != nil {
		return c, err
	}
	if err := q.readSurges(ctx, &c); err != nil {
		return c, err
	}
	c.Created, c.Timeout, c.Paused = q.allReplacementsCreated(id), q.timeout(ctx), q.paused(ctx, &c)
	return c, nil
}

// Reconcile advances one command; the name in req is its ID.
func (q *Queue) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if q.isStarting(req.Name) {
		return reconcile.Result{RequeueAfter: startingPollInterval}, nil
	}
	c, err := q.read(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := q.Now()
	step := inflight.Next(c, now)
	if step.Action == inflight.Wait || step.Failed > 0 {
		q.noteReplacementsCreated(req.Name)
	}
	switch {
	case step.Action == inflight.CleanUp:
		return reconcile.Result{}, q.cleanUpReplacements(ctx, req.Name)
	case step.Action == inflight.Restart:
		return reconcile.Result{RequeueAfter: surgePollInterval}, q.surge(ctx, c)
	case step.Action == inflight.Delete:
		return reconcile.Result{}, q.deleteCandidates(ctx, c)
	case step.Failed > 0:
		return reconcile.Result{}, q.fail(ctx, c, step)
	case step.Action == inflight.RollBack:
		return reconcile.Result{}, q.rollBack(ctx, c.Record, step.Why.String())
	}
	return reconcile.Result{RequeueAfter: min(step.Until.Sub(now), pollInterval)}, nil
}

// paused returns why the breaker has paused such commands since this one started; empty if it has not.
func (q *Queue) paused(ctx context.Context, c *inflight.Command) string {
	for _, pool := range c.Pools() {
		if err := q.Guard.Budget.Paused(ctx, pool); destroy.IsPaused(err) && c.Record.Reason != karpv1.DisruptionEmpty {
			return err.Error()
		}
		if q.Breaker == nil {
			continue
		}
		if why, halted := q.Breaker.Halted(ctx, pool, c.Record.Reason, c.Record.Started); halted {
			return why
		}
	}
	return ""
}

// cleanUpReplacements deletes the unneeded replacements of a command that no longer has candidates: a process that has
// lost its lease may have created one after the next process rolled the command back.
func (q *Queue) cleanUpReplacements(ctx context.Context, id string) error {
	q.mu.Lock()
	delete(q.replacementsCreated, id)
	q.mu.Unlock()
	claims, err := cluster.ClaimsOfCommand(ctx, q.Client, id)
	if err != nil {
		return err
	}
	for i := range claims {
		r := &claims[i]
		if r.DeletionTimestamp != nil || r.Annotations[karpv1.AnnotationReplacementOf] != id {
			continue
		}
		if wanted, err := q.stillNeeded(ctx, r, id); wanted || err != nil {
			return err
		}
		if err := q.deleteReplacement(ctx, r.Name, id); err != nil {
			return err
		}
	}
	return nil
}

// stillNeeded reports whether a claim that the replacement is for has been deleted, or will be.
func (q *Queue) stillNeeded(ctx context.Context, replacement *karpv1.NodeClaim, id string) (bool, error) {
	for _, name := range replacement.Replaces() {
		for _, from := range []client.Reader{q.Client, q.Live} { // a cache may show the claim although it is gone, so check both
			claim := &karpv1.NodeClaim{}
			err := from.Get(ctx, client.ObjectKey{Name: name}, claim)
			if client.IgnoreNotFound(err) != nil {
				return false, err
			}
			if err != nil {
				claim = nil
			}
			if inflight.Needs(id, claim) {
				return true, nil
			}
		}
	}
	return len(replacement.Replaces()) == 0, nil
}

// replacements reads those of a command, and publishes that it waits for them.
func (q *Queue) replacements(ctx context.Context, command *karpv1.DisruptionCommand) (out []inflight.Replacement, err error) {
	for _, name := range command.Replacements {
		claim := &karpv1.NodeClaim{}
		err := q.Client.Get(ctx, client.ObjectKey{Name: name}, claim)
		if apierrors.IsNotFound(err) { // it does not exist, or the cache does not show it yet
			err = q.Live.Get(ctx, client.ObjectKey{Name: name}, claim)
		}
		switch {
		case apierrors.IsNotFound(err):
			claim = nil
		case err != nil:
			return nil, fmt.Errorf("read replacement %q: %w", name, err)
		}
		r := inflight.ReplacementOf(command.ID, name, claim)
		out = append(out, r)
		if r.State == inflight.Missing || r.State == inflight.Initialized {
			continue
		}
		q.Events.Normal(claim, "DisruptionLaunching", "Launching NodeClaim: %s", command.Reason)
		if condition.IsTrue(claim, karpv1.ConditionLaunched) {
			q.Events.Normal(claim, "DisruptionWaitingReadiness", "Waiting on readiness to continue disruption")
		}
	}
	return out, nil
}

// timeout is how long the replacements of a command may take now.
func (q *Queue) timeout(ctx context.Context) time.Duration {
	var claims karpv1.NodeClaimList
	if err := q.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return time.Hour
	}
	n := 0
	for i := range claims.Items {
		if _, ok := claims.Items[i].Annotations[karpv1.AnnotationDisruptionCommand]; ok && claims.Items[i].DeletionTimestamp == nil {
			n++
		}
	}
	return inflight.Timeout(n)
}

// deleteCandidates deletes the candidates of a command with replacements that are all ready.
func (q *Queue) deleteCandidates(ctx context.Context, c inflight.Command) error {
	var errs []error
	for _, claim := range c.Candidates {
		if err := q.deleteClaim(ctx, claim, c.Record); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, claim := range c.Candidates {
		q.memory.report(pass.Feedback{What: pass.Succeeded, At: q.Now(), Pool: claim.Labels[karpv1.LabelNodePool]})
	}
	q.Log.Debug("command succeeded", "command", describe(c.Record), "reason", strings.ToLower(string(c.Record.Reason)))
	return nil
}

// whyOf is the reason of the deletion of a command's candidates.
func whyOf(c karpv1.DisruptionCommand) destroy.Why {
	kind := destroy.Planned
	if c.Reason == karpv1.DisruptionUnhealthy {
		kind = destroy.Fault
	}
	return destroy.Why{Kind: kind, Reason: string(c.Reason), Decision: c.ID}
}

// deleteClaim deletes a candidate's claim.
func (q *Queue) deleteClaim(ctx context.Context, claim *karpv1.NodeClaim, e karpv1.DisruptionCommand) error {
	if q.isDeleted(claim.UID) { // the cache does not show it yet
		return nil
	}
	if err := q.boundDrain(ctx, claim, e); err != nil {
		return err
	}
	pods, surplus := cluster.Reschedulable(ctx, q.Client, claim.Status.NodeName), q.surplus(ctx, claim, e.Reason)
	q.State.MarkForDeletion(claim.UID)
	err := q.Guard.NodeClaim(ctx, claim, whyOf(e))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone; a conflict means that another claim has its name
		return nil
	}
	if err != nil {
		q.State.Unmark(claim.UID)
		return fmt.Errorf("delete node claim %q: %w", claim.Name, err)
	}
	q.noteDeleted(claim.UID)
	if name := claim.Status.NodeName; name != "" {
		q.Events.Normal(nodeRef(name), "DisruptionTerminating", "Disrupting Node: %s, decision %s", e.Reason, e.ID)
	}
	q.Events.Normal(claim, "DisruptionTerminating", "Disrupting NodeClaim: %s, decision %s", e.Reason, e.ID)
	q.Metrics.ClaimDisruptedByCommand(claim, e.Reason, q.consolidationPolicy(ctx, claim, e), pods)
	q.countSurplus(claim, surplus)
	return nil
}

// consolidationPolicy is the policy of the claim's pool if the command is a consolidation, else empty.
func (q *Queue) consolidationPolicy(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	e karpv1.DisruptionCommand,
) karpv1.ConsolidationPolicy {
	pool := &karpv1.NodePool{}
	if e.Kind == "" || q.Client.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.LabelNodePool]}, pool) != nil {
		return ""
	}
	return pool.Spec.Disruption.ConsolidationPolicy
}

// nodeRef returns a Node with the fields that an event's reference needs.
func nodeRef(name string) *corev1.Node {
	ref := &corev1.Node{}
	ref.Name, ref.UID = name, types.UID(name)
	return ref
}
