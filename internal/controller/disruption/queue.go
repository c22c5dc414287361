package disruption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// command is a disruption command as recorded on its claims.
type command struct {
	karpv1.DisruptionCommand
	// candidates are its claims that are not deleting.
	candidates []*karpv1.NodeClaim
}

// read returns the command that the claims have a record of.
func (q *Queue) read(ctx context.Context, id string) (command, error) {
	claims, err := cluster.ClaimsOfCommand(ctx, q.Client, id)
	if err != nil {
		return command{}, err
	}
	var c command
	for i := range claims {
		e, ok, err := claims[i].DisruptionCommand()
		if !ok || err != nil || e.ID != id || claims[i].DeletionTimestamp != nil {
			continue
		}
		c.DisruptionCommand = e
		c.candidates = append(c.candidates, &claims[i])
	}
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
	if len(c.candidates) == 0 {
		return reconcile.Result{}, q.cleanUpReplacements(ctx, req.Name)
	}
	progress, err := q.progress(ctx, c)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case len(c.Replacements) == 0:
		// The process that decides to delete nodes without replacements does so at once. It has exited, so the decision
		// is stale.
		return reconcile.Result{}, q.rollBack(ctx, c.DisruptionCommand, "the process that started it did not complete it")
	case progress.lost != "" && !q.allReplacementsCreated(c.ID):
		return reconcile.Result{}, q.rollBack(
			ctx,
			c.DisruptionCommand,
			fmt.Sprintf("the process that started it did not create replacement %q", progress.lost),
		)
	case progress.lost != "":
		return reconcile.Result{}, q.fail(ctx, c, progress, fmt.Sprintf("replacement %q was deleted", progress.lost))
	case progress.ready == len(c.Replacements):
		return reconcile.Result{}, q.deleteCandidates(ctx, c)
	}
	q.noteReplacementsCreated(c.ID)
	if why, halted := q.halted(ctx, c, progress); halted {
		return reconcile.Result{}, q.fail(ctx, c, progress, why)
	}
	late := c.Started.Add(q.timeout(ctx)).Sub(q.Now())
	if late <= 0 {
		return reconcile.Result{}, q.fail(
			ctx,
			c,
			progress,
			fmt.Sprintf("only %d of %d replacements were ready in time", progress.ready, len(c.Replacements)),
		)
	}
	return reconcile.Result{RequeueAfter: min(late, pollInterval)}, nil
}

// halted reports whether the breaker has paused such commands since this one started: its replacements would likely
// fail like those before, and keep its nodes tainted until the timeout. A command with replacements that have all
// registered continues.
func (q *Queue) halted(ctx context.Context, c command, p progress) (why string, halted bool) {
	if q.Breaker == nil || len(p.unregisteredPools) == 0 {
		return "", false
	}
	pools := slices.Clone(p.unregisteredPools)
	for _, claim := range c.candidates {
		pools = append(pools, claim.Labels[karpv1.LabelNodePool])
	}
	slices.Sort(pools)
	for _, pool := range slices.Compact(pools) {
		if why, halted := q.Breaker.Halted(ctx, pool, c.Reason, c.Started); halted {
			return why, true
		}
	}
	return "", false
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
			if err != nil || claim.DeletionTimestamp != nil {
				return true, nil
			}
			if e, ok, err := claim.DisruptionCommand(); ok && err == nil && e.ID == id {
				return true, nil
			}
		}
	}
	return len(replacement.Replaces()) == 0, nil
}

// progress counts the replacements of a command by their state.
type progress struct {
	ready int
	// lost is a replacement that is gone, or was never created.
	lost string
	// unregisteredPools are the pools of replacements without a registered node, one entry for each.
	unregisteredPools []string
}

func (q *Queue) progress(ctx context.Context, c command) (p progress, err error) {
	for _, name := range c.Replacements {
		claim := &karpv1.NodeClaim{}
		err := q.Client.Get(ctx, client.ObjectKey{Name: name}, claim)
		if apierrors.IsNotFound(err) { // it does not exist, or the cache does not show it yet
			err = q.Live.Get(ctx, client.ObjectKey{Name: name}, claim)
		}
		switch {
		case apierrors.IsNotFound(err):
			p.lost = name
		case err != nil:
			return p, fmt.Errorf("read replacement %q: %w", name, err)
		case claim.DeletionTimestamp != nil || claim.Annotations[karpv1.AnnotationReplacementOf] != c.ID:
			p.lost = name
		case condition.IsTrue(claim, karpv1.ConditionInitialized):
			p.ready++
		default:
			if !condition.IsTrue(claim, karpv1.ConditionRegistered) {
				p.unregisteredPools = append(p.unregisteredPools, claim.Labels[karpv1.LabelNodePool])
			}
			q.Events.Normal(claim, "DisruptionLaunching", "Launching NodeClaim: %s", c.Reason)
			if condition.IsTrue(claim, karpv1.ConditionLaunched) {
				q.Events.Normal(claim, "DisruptionWaitingReadiness", "Waiting on readiness to continue disruption")
			}
		}
	}
	return p, nil
}

// Timeout is how long replacements may take while so many nodes wait for theirs: 80 ms for each, since launches are
// rate limited, between ten minutes for ordinary boot times and one hour. The values are Karpenter's.
func Timeout(candidates int) time.Duration {
	return min(max(time.Duration(candidates)*80*time.Millisecond, 10*time.Minute), time.Hour)
}

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
	return Timeout(n)
}

// deleteCandidates deletes the candidates of a command with replacements that are all ready.
func (q *Queue) deleteCandidates(ctx context.Context, c command) error {
	var errs []error
	for _, claim := range c.candidates {
		if err := q.deleteClaim(ctx, claim, c.DisruptionCommand); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, claim := range c.candidates {
		q.memory.report(pass.Feedback{What: pass.Succeeded, At: q.Now(), Pool: claim.Labels[karpv1.LabelNodePool]})
	}
	q.Log.Debug("command succeeded", "command", describe(c.DisruptionCommand), "reason", strings.ToLower(string(c.Reason)))
	return nil
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
	err := q.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
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
