package disruption

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/blastradius"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// repairBlockedWindow is the dedupe window of the event that the breaker holds repairs back. It is Karpenter's.
const repairBlockedWindow = 15 * time.Minute

// maxRepairSimulations is how many unhealthy nodes one pass tries with pods that fit nowhere.
const maxRepairSimulations = 50

// reasons are the reasons for which this loop disrupts nodes.
func (l *Loop) reasons() []karpv1.DisruptionReason {
	out := []karpv1.DisruptionReason{karpv1.DisruptionEmpty, karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized}
	if l.Repairs != nil {
		out = append(out, karpv1.DisruptionUnhealthy)
	}
	return out
}

// repairSearch prepares the search among the nodes that are due.
func (r *passState) repairSearch(due []*disrupt.Candidate, budget schedule.Budget) *replace.RepairSearch {
	return &replace.RepairSearch{
		View: r.View, Remaining: r.budgets[karpv1.DisruptionUnhealthy], Breaker: r.NewBreaker(due), Budget: budget,
	}
}

// repairUnhealthy starts the repair of one node. The next pass, which follows at once, has a snapshot of the capacity
// that is left.
func (l *Loop) repairUnhealthy(ctx context.Context, r *passState) error {
	if l.Repairs == nil {
		return nil
	}
	l.noteMethodRun(methodRepair)
	began := l.Now()
	l.recordInvalidPolicies(r.Snapshot)
	due, blocked := r.Unhealthy()
	search := r.repairSearch(due, schedule.DefaultBudget())
	search.Reboots, search.Freed = l.Rebooter != nil, l.freedSlots(r, karpv1.DisruptionUnhealthy)
	for _, k := range blocked {
		if k.Reason != disrupt.Nominated {
			l.recordBlocked(k.Node, k.Message)
		}
	}
	l.Metrics.EligibleNodes.WithLabelValues("unhealthy").Set(float64(len(due)))
	cmd := l.nextRepair(ctx, r, search, due)
	l.Metrics.Evaluation.WithLabelValues("unhealthy", "").Observe(l.Now().Sub(began).Seconds())
	if cmd == nil {
		return nil
	}
	l.logRepair(cmd.Candidates[0].Node)
	r.take(cmd.Candidates)
	switch {
	case cmd.Reboot:
		return l.commitReboot(ctx, r, cmd)
	case isStatic(cmd):
		defer l.State.Release(cmd.Candidates[0].Pool.Name)
	}
	return l.executeRepair(ctx, r, cmd)
}

// nextRepair finds the first repair that is possible now, and publishes why the nodes before it are not repaired. For a
// node of a static pool it reserves a slot under the pool's limit.
func (l *Loop) nextRepair(ctx context.Context, r *passState, search *replace.RepairSearch, due []*disrupt.Candidate) *disrupt.Command {
	rejected := 0
	for _, c := range l.withoutBackedOff(r.free(due)) {
		if rejected == maxRepairSimulations {
			break
		}
		if l.backsOff(c.Node.Pool, r.Snapshot.Now) || l.poolPaused(ctx, c.Pool, karpv1.DisruptionUnhealthy) {
			continue
		}
		cmd, held := search.Evaluate(r.compiled, c)
		r.recordRepair(search, c, cmd, held)
		if held == nil && cmd.Reboot {
			cmd, held = l.rebootOrReplace(ctx, r, search, cmd)
		}
		if held == nil && !cmd.Reboot && isStatic(cmd) {
			cmd, held = l.stageRepair(ctx, r, cmd)
		}
		if held == nil {
			return cmd
		}
		if held.Simulated {
			rejected++
		}
		l.recordHeldBack(held)
	}
	return nil
}

// rebootOrReplace returns the command to reboot a node, or if that is refused, the one to replace it.
func (l *Loop) rebootOrReplace(
	ctx context.Context, r *passState, search *replace.RepairSearch, cmd *disrupt.Command,
) (*disrupt.Command, *replace.HeldBack) {
	c := cmd.Candidates[0]
	switch allowed, err := l.canReboot(ctx, c); {
	case err != nil:
		return nil, &replace.HeldBack{Candidate: c, Message: "checking whether the instance can be rebooted: " + err.Error()}
	case allowed:
		return cmd, nil
	}
	replacing := *search
	replacing.Reboots = false
	replace, held := replacing.Evaluate(r.compiled, c)
	r.recordRepair(&replacing, c, replace, held)
	return replace, held
}

// backsOff reports whether replacements of the pool have failed lately.
func (l *Loop) backsOff(pool string, now time.Time) (backsOff bool) {
	l.Queue.withAttempts(func(a *disrupt.DriftBackoff) { backsOff = a.BacksOff(pool, now) })
	return backsOff
}

// stageRepair reserves a slot for the replacement of a node of a static pool. If none can come first, it returns the
// command that terminates the node first.
func (l *Loop) stageRepair(ctx context.Context, r *passState, cmd *disrupt.Command) (*disrupt.Command, *replace.HeldBack) {
	c := cmd.Candidates[0]
	hold := func(why string) (*disrupt.Command, *replace.HeldBack) {
		return nil, &replace.HeldBack{Candidate: c, Message: why}
	}
	if c.Pool.DeletionTimestamp != nil || !condition.IsTrue(c.Pool, condition.Ready) {
		return hold("static NodePool is not ready and cannot stage a replacement")
	}
	refill, err := l.staticRefill(ctx, r, c.Pool, karpv1.DisruptionUnhealthy)
	if err != nil {
		return hold(err.Error())
	}
	first, why := refill.AtLimit, ""
	if refill.Room.Exhausted() {
		first = refill.InReservation
	} else if granted, err := l.State.Reserve(ctx, c.Pool, refill.Stageable(1)); err != nil {
		return hold("counting the nodes of the static NodePool: " + err.Error())
	} else if granted > 0 {
		return cmd, nil
	}
	cmd, why = first(c)
	r.recordRefill(refill, c, refill.Room.Exhausted(), recorder.OutcomeRecord{Command: recorder.RecordCommand(cmd), Why: why})
	if cmd == nil {
		return hold(why)
	}
	return cmd, nil
}

// executeRepair starts the command and counts it.
func (l *Loop) executeRepair(ctx context.Context, r *passState, cmd *disrupt.Command) error {
	started := r.started
	err := l.execute(ctx, r, cmd)
	if r.started == started {
		return err
	}
	claim := &karpv1.NodeClaim{}
	if getErr := l.Client.Get(ctx, client.ObjectKey{Name: cmd.Candidates[0].Node.Claim}, claim); getErr != nil {
		return errors.Join(err, client.IgnoreNotFound(getErr))
	}
	l.countRepair(cmd.Candidates[0].Node, claim)
	return err
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
func (l *Loop) recordHeldBack(h *replace.HeldBack) {
	n := h.Candidate.Node
	if h.Breaker == nil {
		l.recordBlocked(n, h.Message)
		return
	}
	scope := "nodepool"
	if h.Breaker.Zone != "" {
		scope = "zone " + h.Breaker.Zone + " of the nodepool"
	}
	publish := func(o event.Object) {
		l.Events.WarnEvery(repairBlockedWindow, o, blastradius.EventBlocked, "more than %d%% nodes are unhealthy in the %s (%d of %d)",
			repair.MaxUnhealthyPercent, scope, h.Breaker.Unhealthy, h.Breaker.Nodes)
	}
	l.onNodeAndClaim(n, publish)
	publish(h.Candidate.Pool)
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
