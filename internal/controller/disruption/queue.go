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
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

const (
	// poll is how often a command that waits is looked at when nothing is heard of its claims.
	poll = 10 * time.Second
	// soon is when a command is looked at again that this process is still starting.
	soon = time.Second
	// shown is after how long the cache certainly shows what was written.
	shown = 5 * time.Minute
)

// marks is told at once what was decided about claims, before it shows in the cache.
type marks interface {
	Condemn(uid types.UID)
	Spare(uid types.UID)
}

// halter tells whether a command that was started at a time is not to be carried on with, since its reason has paused in the pool.
type halter interface {
	Halted(ctx context.Context, pool string, reason karpv1.DisruptionReason, started time.Time) (why string, halted bool)
}

// Queue carries commands through that wait for replacements. What it knows of them is written on the claims, so that it does
// not matter which process has started one: all replacements ready, the nodes are ended; one lost or late, everything is
// taken back, replacements that nobody uses included. Commands that were being started by a process that has died are taken back.
type Queue struct {
	Client client.Client
	// Live reads the API server itself.
	Live  client.Reader
	State marks
	// Breaker may be nil: commands that have been started are carried through then, whatever becomes of others.
	Breaker halter
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Jitter returns a number in [0, 1).
	Jitter func() float64

	mu sync.Mutex
	// starting are the commands that this process is in the middle of starting.
	starting map[string]bool
	// whole are commands of which all replacements have been seen.
	whole map[string]bool
	// ended are claims that were deleted, and when: the cache may not show it for a moment.
	ended    map[types.UID]time.Time
	attempts disrupt.Attempts
	// owed are commands of this process that could not be taken back. It may be that only its memory has them.
	owed []debt
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

// hold keeps the queue's hands off a command that is being started, until the returned function is called.
func (q *Queue) hold(id string) func() {
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

func (q *Queue) held(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.starting[id]
}

// noteWhole notes that all replacements of a command have been bought: what is missing later has been lost.
func (q *Queue) noteWhole(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.whole == nil {
		q.whole = map[string]bool{}
	}
	q.whole[id] = true
}

func (q *Queue) isWhole(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.whole[id]
}

func (q *Queue) isEnded(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.ended[uid]
	return ok
}

func (q *Queue) noteEnded(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.Now()
	maps.DeleteFunc(q.ended, func(_ types.UID, at time.Time) bool { return now.Sub(at) > shown })
	if q.ended == nil {
		q.ended = map[types.UID]time.Time{}
	}
	q.ended[uid] = now
}

// remember gives f the attempts, alone.
func (q *Queue) remember(f func(a *disrupt.Attempts)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f(&q.attempts)
}

// command is a disruption as its claims tell it.
type command struct {
	karpv1.DisruptionCommand
	// candidates are those of its claims that are not on their way out.
	candidates []*karpv1.NodeClaim
}

// read gathers a command from the claims that remember it.
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

// Reconcile looks at one command, which req names by its ID.
func (q *Queue) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if q.held(req.Name) {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	c, err := q.read(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(c.candidates) == 0 {
		return reconcile.Result{}, q.over(ctx, req.Name)
	}
	progress, err := q.progress(ctx, c)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case len(c.Replacements) == 0:
		// Nodes without replacement are ended by whoever has decided it, at once. That process is gone, and its reasons with it.
		return reconcile.Result{}, q.takeBack(ctx, c.DisruptionCommand, "it was not carried out by the process that has started it")
	case progress.lost != "" && !q.isWhole(c.ID):
		return reconcile.Result{}, q.takeBack(ctx, c.DisruptionCommand, fmt.Sprintf("replacement %q was not bought by the process that has started it", progress.lost))
	case progress.lost != "":
		return reconcile.Result{}, q.fail(ctx, c, progress, fmt.Sprintf("replacement %q was deleted", progress.lost))
	case progress.ready == len(c.Replacements):
		return reconcile.Result{}, q.finish(ctx, c)
	}
	q.noteWhole(c.ID)
	if why, halted := q.halted(ctx, c, progress); halted {
		return reconcile.Result{}, q.fail(ctx, c, progress, why)
	}
	late := c.Started.Add(q.timeout(ctx)).Sub(q.Now())
	if late <= 0 {
		return reconcile.Result{}, q.fail(ctx, c, progress, fmt.Sprintf("only %d of %d replacements were ready in time", progress.ready, len(c.Replacements)))
	}
	return reconcile.Result{RequeueAfter: min(late, poll)}, nil
}

// halted tells whether the breaker has come to hold back such commands since this one was started: its replacements would likely
// fail like those before, and keep its nodes closed until they are late. Replacements that are all ready, or whose nodes
// have joined, are waited for.
func (q *Queue) halted(ctx context.Context, c command, p progress) (why string, halted bool) {
	if q.Breaker == nil || len(p.absent) == 0 {
		return "", false
	}
	pools := slices.Clone(p.absent)
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

// over forgets a command that no claim is to be ended by any more, and gives back what was bought for it in vain: a process that
// has lost its lease may have created a replacement after the next one has taken the command back.
func (q *Queue) over(ctx context.Context, id string) error {
	q.mu.Lock()
	delete(q.whole, id)
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
		if wanted, err := q.wanted(ctx, r, id); wanted || err != nil {
			return err
		}
		if err := q.giveBack(ctx, r.Name, id); err != nil {
			return err
		}
	}
	return nil
}

// wanted tells whether a claim that a replacement was bought for has been ended, or is to be.
func (q *Queue) wanted(ctx context.Context, replacement *karpv1.NodeClaim, id string) (bool, error) {
	for _, name := range replacement.Replaces() {
		for _, from := range []client.Reader{q.Client, q.Live} { // that it is gone shows in the cache, too; that it stays does not
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

// progress is how far the replacements of a command are.
type progress struct {
	ready int
	// lost is one that is gone, or was never made.
	lost string
	// absent are the pools of those whose node has not joined, one for each.
	absent []string
}

func (q *Queue) progress(ctx context.Context, c command) (p progress, err error) {
	for _, name := range c.Replacements {
		claim := &karpv1.NodeClaim{}
		err := q.Client.Get(ctx, client.ObjectKey{Name: name}, claim)
		if apierrors.IsNotFound(err) { // not there, or not shown yet
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
				p.absent = append(p.absent, claim.Labels[karpv1.LabelNodePool])
			}
			q.Events.Normal(claim, "DisruptionLaunching", "Launching NodeClaim: %s", c.Reason)
			if condition.IsTrue(claim, karpv1.ConditionLaunched) {
				q.Events.Normal(claim, "DisruptionWaitingReadiness", "Waiting on readiness to continue disruption")
			}
		}
	}
	return p, nil
}

// Timeout is how long replacements may take when so many nodes wait for theirs.
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

// finish ends the nodes of a command whose replacements are ready.
func (q *Queue) finish(ctx context.Context, c command) error {
	var errs []error
	for _, claim := range c.candidates {
		if err := q.end(ctx, claim, c.DisruptionCommand); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	q.remember(func(a *disrupt.Attempts) {
		for _, claim := range c.candidates {
			a.Succeeded(claim.Labels[karpv1.LabelNodePool])
		}
	})
	q.Log.Debug("command succeeded", "command", describe(c.DisruptionCommand), "reason", strings.ToLower(string(c.Reason)))
	return nil
}

// end deletes the claim of a node.
func (q *Queue) end(ctx context.Context, claim *karpv1.NodeClaim, e karpv1.DisruptionCommand) error {
	if q.isEnded(claim.UID) { // the cache does not show it yet
		return nil
	}
	pods := cluster.Reschedulable(ctx, q.Client, claim.Status.NodeName)
	q.State.Condemn(claim.UID)
	err := q.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or gone and another has its name
		return nil
	}
	if err != nil {
		q.State.Spare(claim.UID)
		return fmt.Errorf("end node claim %q: %w", claim.Name, err)
	}
	q.noteEnded(claim.UID)
	if name := claim.Status.NodeName; name != "" {
		q.Events.Normal(nodeRef(name), "DisruptionTerminating", "Disrupting Node: %s", e.Reason)
	}
	q.Events.Normal(claim, "DisruptionTerminating", "Disrupting NodeClaim: %s", e.Reason)
	q.Metrics.Ended(claim, e.Reason, q.policy(ctx, claim, e), pods)
	return nil
}

// policy is by what a claim is given back to save money; empty if it is for another reason.
func (q *Queue) policy(ctx context.Context, claim *karpv1.NodeClaim, e karpv1.DisruptionCommand) karpv1.ConsolidationPolicy {
	pool := &karpv1.NodePool{}
	if e.Kind == "" || q.Client.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.LabelNodePool]}, pool) != nil {
		return ""
	}
	return pool.Spec.Disruption.ConsolidationPolicy
}

// nodeRef is a Node as events refer to it.
func nodeRef(name string) *corev1.Node {
	ref := &corev1.Node{}
	ref.Name, ref.UID = name, types.UID(name)
	return ref
}
