package reboot

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// observe waits until the node has booted anew, lifts the fence, and stops the reboot when the node is Ready.
func (r *Reconciler) observe(ctx context.Context, a *attempt) (time.Duration, error) {
	booted := a.node != nil && a.node.Status.NodeInfo.BootID != a.claim.Annotations[karpv1.AnnotationRebootPreBootID]
	if booted {
		if err := r.setFence(ctx, a.node.Name, false /* present */); err != nil {
			return 0, err
		}
		for _, o := range []event.Object{a.claim, a.node} {
			r.Events.NormalEvery(eventWindow, o, "RebootObserved", "Node %s has booted anew", a.node.Name)
		}
		if cluster.NodeReady(a.node) {
			return 0, r.end(ctx, a, resultSucceeded, "the node has booted anew and is Ready")
		}
	}
	if by := a.record.RecoverBy; by == nil || r.Now().After(by.Time) {
		why := "it has not booted anew in time"
		if booted {
			why = "it has booted anew and did not become Ready in time"
		}
		return 0, r.fail(ctx, a, resultTimeout, why)
	}
	return poll, nil
}

// end records how the reboot has finished, and leaves the node.
func (r *Reconciler) end(ctx context.Context, a *attempt, result, why string) error {
	now := r.Now()
	reason := karpv1.RebootSucceeded
	if result != resultSucceeded {
		reason = karpv1.RebootFailed
		r.publishFailure(a, why)
	}
	err := patch.StatusWithRetry(ctx, r.clients(), a.claim, func(c *karpv1.NodeClaim) error {
		condition.SetFalse(c, karpv1.ConditionRebooting, condition.Because(reason, why), now)
		condition.Clear(c, karpv1.ConditionDisruptionReason, now)
		return nil
	})
	if err != nil {
		return err
	}
	r.Metrics.ended(a, result, now)
	r.Log.Info("reboot has ended", "NodeClaim", a.claim.Name, "result", result, "why", why)
	return r.write(ctx, a, func(c *karpv1.NodeClaim) error {
		delete(c.Annotations, karpv1.AnnotationRebootPreBootID)
		return nil
	})
}

// abandon stops a reboot that EC2 has not been called for, because the cluster is shifted away from the node's zone. The node
// stays: its fault may be the zone's, and pass with it.
func (r *Reconciler) abandon(ctx context.Context, a *attempt) error {
	if err := r.setFence(ctx, a.node.Name, false /* present */); err != nil {
		return err
	}
	return r.end(ctx, a, resultProviderError, "the cluster is shifted away from its zone, where nothing is rebooted; the node stays")
}

// fail gives up the node: it is deleted, and pods that need a place get another node. Its drain has the same bound as
// the one before the reboot.
func (r *Reconciler) fail(ctx context.Context, a *attempt, result, why string) error {
	r.publishFailure(a, why)
	if a.node != nil {
		if err := r.setFence(ctx, a.node.Name, false /* present */); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if a.drainBound != nil {
		deadline := r.Now().Add(*a.drainBound)
		err := r.write(ctx, a, func(c *karpv1.NodeClaim) error {
			c.TightenTerminationDeadline(deadline)
			return nil
		})
		if err != nil {
			return err
		}
	}
	err := r.Guard.NodeClaim(ctx, a.claim, destroy.Why{Kind: destroy.Fault, Reason: result, Unchanged: true})
	if err != nil {
		return err
	}
	r.Metrics.ended(a, result, r.Now())
	r.Log.Info("replacing a node that could not be rebooted", "NodeClaim", a.claim.Name, "result", result, "why", why)
	return nil
}

func (r *Reconciler) publishFailure(a *attempt, why string) {
	r.Events.WarnEvery(eventWindow, a.claim, karpv1.RebootFailed, "Rebooting the instance failed: %s", why)
	if a.node != nil {
		r.Events.WarnEvery(eventWindow, a.node, karpv1.RebootFailed, "Rebooting the instance failed: %s", why)
	}
}

// setFence adds the taint that keeps new pods off the node, or removes it.
func (r *Reconciler) setFence(ctx context.Context, name string, present bool) error {
	return patch.Taint(ctx, r.clients(), name, karpv1.TaintRebooting(), present)
}

// write changes the claim outside its status, with the version that was read as a precondition.
func (r *Reconciler) write(ctx context.Context, a *attempt, mutate func(*karpv1.NodeClaim) error) error {
	return patch.ObjectWithRetry(ctx, r.clients(), a.claim, mutate)
}

func (r *Reconciler) clients() patch.Clients { return patch.Clients{Client: r.Client, Live: r.Live} }
