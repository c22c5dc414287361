package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// fail takes back a command whose replacements did not come up.
func (q *Queue) fail(ctx context.Context, c command, p progress, why string) error {
	q.Log.Error("failed terminating nodes while executing a disruption command", "command", describe(c.DisruptionCommand), "reason", strings.ToLower(string(c.Reason)), "error", why)
	if err := q.takeBack(ctx, c.DisruptionCommand, why); err != nil {
		return err
	}
	q.Metrics.QueueFailures.WithLabelValues("replace", strings.ToLower(string(c.Reason)), c.Kind).Add(float64(len(c.Replacements) - p.ready))
	byPool := map[string][]types.UID{}
	for _, claim := range c.candidates {
		pool := claim.Labels[karpv1.LabelNodePool]
		byPool[pool] = append(byPool[pool], claim.UID)
	}
	q.remember(func(a *disrupt.Attempts) {
		for pool, uids := range byPool {
			a.Failed(pool, uids, q.Now(), q.Jitter())
		}
	})
	return nil
}

// takeBack undoes what was done for a command: replacements are given back first, then the nodes are opened again. What a claim
// remembers goes last, so that whoever is stopped in between begins anew. Where a node has been ended already, its pods need the
// replacements: these stay.
func (q *Queue) takeBack(ctx context.Context, e karpv1.DisruptionCommand, why string) error {
	var claims []*karpv1.NodeClaim
	ended := false
	for _, name := range e.Candidates {
		claim := &karpv1.NodeClaim{}
		err := q.Live.Get(ctx, client.ObjectKey{Name: name}, claim)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil || claim.DeletionTimestamp != nil {
			ended = true
			continue
		}
		if other, ok, err := claim.DisruptionCommand(); ok && err == nil && other.ID != e.ID {
			q.State.Spare(claim.UID) // it says itself what becomes of it
			continue
		}
		claims = append(claims, claim)
	}
	if !ended {
		for _, name := range e.Replacements {
			if err := q.giveBack(ctx, name, e.ID); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, claim := range claims {
		if err := q.reopen(ctx, claim); err != nil {
			errs = append(errs, fmt.Errorf("open node %q again: %w", claim.Status.NodeName, err))
		}
	}
	q.Log.Info("took a disruption command back", "command", describe(e), "reason", strings.ToLower(string(e.Reason)), "why", why)
	return errors.Join(errs...)
}

// debt is a command that is to be taken back, and why.
type debt struct {
	karpv1.DisruptionCommand
	why string
}

// owe takes a command back that has not begun well, now or as soon as that works. The next process need not know of it: what the claims
// remember is taken back anyway.
func (q *Queue) owe(ctx context.Context, e karpv1.DisruptionCommand, why string) error {
	err := q.takeBack(ctx, e, why)
	if err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.owed = append(q.owed, debt{e, why})
	}
	return err
}

// settle takes back what could not be taken back before.
func (q *Queue) settle(ctx context.Context) error {
	q.mu.Lock()
	owed := q.owed
	q.owed = nil
	q.mu.Unlock()
	var errs []error
	for _, d := range owed {
		errs = append(errs, q.owe(ctx, d.DisruptionCommand, d.why))
	}
	return errors.Join(errs...)
}

// giveBack deletes a replacement. If pods have come to its node that would have to move, or that must not, it is one of the pool's
// nodes from then on, and is ended as such.
func (q *Queue) giveBack(ctx context.Context, name, id string) error {
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
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return disrupt.Load(p) || !snapshot.Disruptable(p, q.Now()) }) {
			before := claim.DeepCopy()
			delete(claim.Annotations, karpv1.AnnotationReplacementOf)
			return client.IgnoreNotFound(q.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
		}
	}
	q.State.Condemn(claim.UID)
	err := q.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		q.State.Spare(claim.UID)
		return fmt.Errorf("give back replacement %q: %w", name, err)
	}
	return nil
}

// reopen lets pods onto the node again and makes its claim forget that it was to be ended.
func (q *Queue) reopen(ctx context.Context, claim *karpv1.NodeClaim) error {
	if name := claim.Status.NodeName; name != "" {
		if err := client.IgnoreNotFound(setTaint(ctx, q.Client, q.Live, name, false /* present */)); err != nil {
			return err
		}
	}
	before := claim.DeepCopy()
	if condition.Clear(claim, karpv1.ConditionDisruptionReason, q.Now()) {
		if err := q.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	before = claim.DeepCopy()
	if _, ok := claim.Annotations[karpv1.AnnotationDisruptionCommand]; ok {
		delete(claim.Annotations, karpv1.AnnotationDisruptionCommand)
		if err := q.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	q.State.Spare(claim.UID)
	return nil
}
