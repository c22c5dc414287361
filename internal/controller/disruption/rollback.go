package disruption

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

// fail rolls back a command with replacements that did not become ready.
func (q *Queue) fail(ctx context.Context, c inflight.Command, step inflight.Step) error {
	why, reason := step.Why.String(), strings.ToLower(string(c.Record.Reason))
	q.Log.Error("failed terminating nodes while executing a disruption command", "command", describe(c.Record), "reason", reason, "error", why)
	if err := q.rollBack(ctx, c.Record, why); err != nil {
		return err
	}
	q.Metrics.QueueFailures.WithLabelValues("replace", reason, c.Record.Kind).Add(float64(step.Failed))
	byPool := map[string][]types.UID{}
	for _, claim := range c.Candidates {
		pool := claim.Labels[karpv1.LabelNodePool]
		byPool[pool] = append(byPool[pool], claim.UID)
	}
	for pool, uids := range byPool {
		q.memory.report(pass.Feedback{What: pass.Failed, At: q.Now(), Pool: pool, Claims: uids, Jitter: q.Jitter()})
	}
	return nil
}

// rollBack undoes a command as inflight.Undo states.
func (q *Queue) rollBack(ctx context.Context, e karpv1.DisruptionCommand, why string) error {
	var candidates []*karpv1.NodeClaim
	for _, name := range e.Candidates {
		claim := &karpv1.NodeClaim{}
		err := q.Live.Get(ctx, client.ObjectKey{Name: name}, claim)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			claim = nil
		}
		candidates = append(candidates, claim)
	}
	undo := inflight.UndoOf(e.ID, candidates)
	for _, claim := range undo.Others {
		q.State.Unmark(claim.UID)
	}
	if !undo.KeepReplacements {
		for _, name := range e.Replacements {
			if err := q.deleteReplacement(ctx, name, e.ID); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, claim := range undo.Restore {
		if err := q.restoreCandidate(ctx, claim); err != nil {
			errs = append(errs, fmt.Errorf("restore node %q: %w", claim.Status.NodeName, err))
		}
	}
	q.recordRollBack(e, why)
	q.Log.Info("rolled back a disruption command", "command", describe(e), "reason", strings.ToLower(string(e.Reason)), "why", why)
	return errors.Join(errs...)
}

// deferredRollback is a command with a failed rollback, and the reason for the rollback.
type deferredRollback struct {
	karpv1.DisruptionCommand
	why string
}

// rollBackOrDefer rolls a command back, or keeps it for the next attempt. If this process exits before, the next one
// rolls back what is recorded on claims.
func (q *Queue) rollBackOrDefer(ctx context.Context, e karpv1.DisruptionCommand, why string) error {
	err := q.rollBack(ctx, e, why)
	if err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.pendingRollbacks = append(q.pendingRollbacks, deferredRollback{e, why})
	}
	return err
}

// retryRollbacks retries the rollbacks that failed.
func (q *Queue) retryRollbacks(ctx context.Context) error {
	q.mu.Lock()
	pending := q.pendingRollbacks
	q.pendingRollbacks = nil
	q.mu.Unlock()
	var errs []error
	for _, d := range pending {
		errs = append(errs, q.rollBackOrDefer(ctx, d.DisruptionCommand, d.why))
	}
	return errors.Join(errs...)
}

// reasonRolledBack is the reason, in the audit, of a replacement that is not needed any more.
const reasonRolledBack = "rolled_back"

// deleteReplacement deletes a replacement. If its node runs pods that would have to move, or that are protected, it
// stays as an ordinary node of its pool instead.
func (q *Queue) deleteReplacement(ctx context.Context, name, id string) error {
	claim := &karpv1.NodeClaim{}
	if err := q.Live.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp != nil || claim.Annotations[karpv1.AnnotationReplacementOf] != id {
		return nil
	}
	if node := claim.Status.NodeName; node != "" {
		pods, err := cluster.PodsOn(ctx, q.Client, node)
		if err != nil {
			return err
		}
		if inflight.Occupied(pods, q.Now()) {
			_, err := patch.Object(ctx, q.Client, claim, func() { delete(claim.Annotations, karpv1.AnnotationReplacementOf) })
			return client.IgnoreNotFound(err)
		}
	}
	q.State.MarkForDeletion(claim.UID)
	err := q.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Planned, Reason: reasonRolledBack, Decision: id})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		q.State.Unmark(claim.UID)
		return fmt.Errorf("delete replacement %q: %w", name, err)
	}
	return nil
}

// restoreCandidate untaints the node of a candidate and removes the command from its claim.
func (q *Queue) restoreCandidate(ctx context.Context, claim *karpv1.NodeClaim) error {
	if name := claim.Status.NodeName; name != "" {
		if err := client.IgnoreNotFound(setTaint(ctx, q.Client, q.Live, name, false /* present */)); err != nil {
			return err
		}
	}
	_, err := patch.Status(ctx, q.Client, claim, func() { condition.Clear(claim, karpv1.ConditionDisruptionReason, q.Now()) })
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if _, err := patch.Object(ctx, q.Client, claim, func() { delete(claim.Annotations, karpv1.AnnotationDisruptionCommand) }); err != nil {
		return client.IgnoreNotFound(err)
	}
	q.State.Unmark(claim.UID)
	return nil
}
