package disruption

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/blastradius"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// repairBlockedWindow is the dedupe window of the event that the breaker holds repairs back. It is Karpenter's.
const repairBlockedWindow = 15 * time.Minute

// reportRepair publishes why nodes that are due are not repaired.
func (l *Loop) reportRepair(decided *pass.Decisions) {
	l.recordInvalidPolicies(decided.View.Snapshot)
	l.Metrics.EligibleNodes.WithLabelValues("unhealthy").Set(float64(decided.Stats.Unhealthy))
	for i := range decided.Stay {
		if k := &decided.Stay[i]; k.By == pass.Repair {
			l.recordHeldBack(k)
		}
	}
}

func (l *Loop) countRepair(n *snapshot.Node, claim *karpv1.NodeClaim) {
	l.Repairs.Unhealthy.WithLabelValues(
		metrics.Snake(string(n.Repair.Cause.Condition.Type)), n.Pool, n.Labels[karpv1.LabelCapacityType], claim.Status.ImageID,
		metrics.TerminationMode(claim),
	).Inc()
}

// logRepair logs why a node is repaired.
func (l *Loop) logRepair(n *snapshot.Node) {
	d := n.Repair
	policy := d.Cause.Policy()
	args := []any{
		"Node", n.Name, "NodeClaim", n.Claim, "condition", d.Cause.Condition.Type, "status", d.Cause.Condition.Status,
		"reason", d.Cause.Condition.Reason, "reason-regex", policy.Reason, "fallback", d.Cause.Fallback(), "action", d.Action,
		"eligible-at", d.EligibleAt.UTC().Format(time.RFC3339),
	}
	if d.Bound != nil {
		args = append(args, "termination-grace-period", d.Bound.String(), "termination-grace-period-condition", d.BoundBy.Condition.Type)
	}
	l.Log.Info("selected repair policy", args...)
}

// recordHeldBack publishes why a node that is due is not repaired.
func (l *Loop) recordHeldBack(k *pass.Stay) {
	if k.Breaker == nil {
		l.recordBlocked(k.Node, k.Message)
		return
	}
	scope := "nodepool"
	if k.Breaker.Zone != "" {
		scope = "zone " + k.Breaker.Zone + " of the nodepool"
	}
	publish := func(o event.Object) {
		l.Events.WarnEvery(repairBlockedWindow, o, blastradius.EventBlocked, "more than %d%% nodes are unhealthy in the %s (%d of %d)",
			repair.MaxUnhealthyPercent, scope, k.Breaker.Unhealthy, k.Breaker.Nodes)
	}
	l.onNodeAndClaim(refOf(k.Node), publish)
	publish(k.Pool)
}

// recordInvalidPolicies publishes on NodePools that their repair policies are ignored.
func (l *Loop) recordInvalidPolicies(snap *snapshot.Snapshot) {
	check := func(pool *karpv1.NodePool) {
		if _, err := pool.RepairPolicies(); err != nil {
			l.Events.WarnEvery(repairBlockedWindow, pool, "InvalidRepairPolicies", "Repair policies of the NodePool are ignored: %v", err)
		}
	}
	for i := range snap.Pools {
		check(snap.Pools[i].NodePool)
	}
	for _, pool := range snap.Closed {
		check(pool)
	}
}

// boundDrain sets the deadline of the claim's termination to the command's bound, counted from now, so that waiting for
// replacements does not shorten the drain. It may be earlier than the claim's own deadline, never later.
func (q *Queue) boundDrain(ctx context.Context, claim *karpv1.NodeClaim, e karpv1.DisruptionCommand) error {
	if e.Bound == nil {
		return nil
	}
	bound := e.Bound.Duration
	if own := claim.Spec.TerminationGracePeriod; own != nil {
		bound = min(bound, own.Duration)
	}
	deadline := q.Now().Add(bound)
	live := claim.DeepCopy()
	err := patch.ObjectWithRetry(ctx, patch.Clients{Client: q.Client, Live: q.Live}, live, func(c *karpv1.NodeClaim) error {
		if c.UID != claim.UID {
			return nil // another claim has its name
		}
		c.TightenTerminationDeadline(deadline)
		return nil
	})
	return client.IgnoreNotFound(err)
}
