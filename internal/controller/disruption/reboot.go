package disruption

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/reboot"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

// rebootChecker reports whether an instance can be rebooted, without doing it. The error wraps
// cloudprovider.ErrRebootRefused if it cannot, however often it is tried.
type rebootChecker interface {
	CheckReboot(ctx context.Context, providerID string) error
}

// reboot reboots a node. It checks the permission before the drain: a node that was drained for a reboot that EC2 then denies would have
// been disrupted twice. A node that cannot be rebooted is replaced in the next pass; one of which that is not known
// is tried again, after others.
func (l *Loop) reboot(ctx context.Context, out *performed, cmd *disrupt.Command) error {
	n := cmd.Candidates[0].Node
	claim := &karpv1.NodeClaim{}
	err := l.Client.Get(ctx, client.ObjectKey{Name: n.Claim}, claim)
	if err == nil {
		err = l.Rebooter.CheckReboot(ctx, claim.Status.ProviderID)
	}
	if err == nil {
		return l.commitReboot(ctx, out, cmd)
	}
	feedback := pass.Feedback{What: pass.RebootUnclear, At: l.Now(), Claims: candidateUIDs(cmd)}
	if errors.Is(err, cloudprovider.ErrRebootRefused) || errors.Is(err, cloudprovider.ErrNotFound) {
		feedback.What, out.dropped = pass.RebootRefused, true
		l.Log.Warn("node cannot be rebooted", "Node", n.Name, "error", err)
		l.onNodeAndClaim(refOf(n), func(o event.Object) {
			l.Events.WarnEvery(repairBlockedWindow, o, karpv1.RebootFailed, "Node is replaced instead of rebooted: %v", err)
		})
	} else {
		l.recordBlocked(n, "checking whether the instance can be rebooted: "+err.Error())
	}
	l.Queue.memory.report(feedback)
	return nil
}

// commitReboot decides the reboot of a node: it records the bound of the drain and the time on the claim, then the
// condition with which the reboot begins. A process that dies in between leaves a record without a condition, and the
// next decision replaces it.
func (l *Loop) commitReboot(ctx context.Context, out *performed, cmd *disrupt.Command) error {
	n := cmd.Candidates[0].Node
	claim := &karpv1.NodeClaim{}
	claim.Name = n.Claim
	clients := patch.Clients{Client: l.Client, Live: l.Live, SkipCache: true}
	now := l.Now()
	err := patch.ObjectWithRetry(ctx, clients, claim, func(c *karpv1.NodeClaim) error {
		if c.UID != n.ClaimUID || c.DeletionTimestamp != nil || condition.IsTrue(c, karpv1.ConditionRebooting) {
			return errPodsChanged
		}
		return recordReboot(c, cmd.Bound, now)
	})
	if errors.Is(err, errPodsChanged) {
		out.dropped = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("record the reboot of node %q: %w", n.Name, err)
	}
	fault := n.Repair.Cause.Condition
	err = patch.StatusWithRetry(ctx, clients, claim, func(c *karpv1.NodeClaim) error {
		condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason,
			condition.Because(string(cmd.Reason), string(cmd.Reason)), now)
		condition.SetTrueWithReason(c, karpv1.ConditionRebooting,
			condition.Because(karpv1.RebootRequested, fmt.Sprintf("rebooting for %s/%s", fault.Type, fault.Reason)), now)
		return nil
	})
	if err != nil {
		return fmt.Errorf("decide the reboot of node %q: %w", n.Name, err)
	}
	out.started++
	l.recordStart(cmd.ID, nil)
	l.countDecision(cmd)
	l.countRepair(n, claim)
	l.Log.Info("committed node reboot", "Node", n.Name, "NodeClaim", n.Claim, "condition", fault.Type, "reason", fault.Reason)
	return nil
}

// recordReboot adds a reboot to the claim's record. The drain has the command's bound, else the claim's own.
func recordReboot(c *karpv1.NodeClaim, bound *time.Duration, now time.Time) error {
	own := c.Spec.TerminationGracePeriod
	if own != nil && (bound == nil || own.Duration < *bound) {
		bound = &own.Duration
	}
	drain := reboot.MaxDrain
	delete(c.Annotations, karpv1.AnnotationRebootTerminationGracePeriod)
	if bound != nil {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationRebootTerminationGracePeriod, bound.String())
		drain = max(*bound, reboot.MinDrain)
	}
	delete(c.Annotations, karpv1.AnnotationRebootPreBootID)
	record, err := c.Reboots()
	if err != nil {
		record = karpv1.RebootRecord{}
	}
	var started []metav1.Time
	last, known := condition.Get(c, karpv1.ConditionRebooting)
	for _, at := range record.Started {
		begun := known && !at.After(last.LastTransitionTime.Time) // else the decision was not completed
		if begun && now.Sub(at.Time) < repair.RebootWindow {
			started = append(started, at)
		}
	}
	return c.SetReboots(&karpv1.RebootRecord{
		Started: append(started, metav1.NewTime(now)), DrainBy: metav1.NewTime(now.Add(drain)),
	})
}
