package breaker

import (
	"context"
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
)

// The reasons of the condition Rollout.
const (
	reasonInvalidRollout = "InvalidRollout"
	reasonRolloutPaused  = "Paused"
	reasonRolledBack     = "RolledBack"
	reasonWave           = "Wave"
)

// rollout notes how far the roll-out has come, and what is known to be good.
func (v *view) rollout(m members, fleet breaker.Fleet) {
	if !v.policy.Canary() {
		v.book.Good = nil
		return
	}
	v.rolledBack = rolledBackBy(m.class)
	if v.book.Rollout != nil {
		_, v.progress = v.book.Wave(fleet.Verdicts, 0)
		return
	}
	if good := v.book.GoodOf(m.pool, m.class, fleet); good != nil {
		v.book.Good = good
	}
}

// reportRollout keeps the condition Rollout: whether the annotation can be read, and how far a roll-out has come.
func (r *Reconciler) reportRollout(ctx context.Context, pool *karpv1.NodePool, v view) error {
	before := pool.DeepCopy()
	fails := v.book.SoakMessage(pool.Name, pool.Spec.Template.Spec.NodeClassRef.Name)
	if fails == "" && slices.Contains(v.book.Paused(), karpv1.DisruptionDrifted) {
		fails = v.book.PauseMessage(karpv1.DisruptionDrifted)
	}
	set := func(reason, message string) {
		condition.SetFalse(pool, karpv1.ConditionRollout, condition.Because(reason, message), r.Now())
	}
	switch {
	case v.invalid != nil:
		set(reasonInvalidRollout, v.invalid.Error()+". Until it is corrected, nodes are replaced with canaries")
	case !v.policy.Canary():
		condition.Clear(pool, karpv1.ConditionRollout, r.Now())
	case fails != "":
		set(reasonRolloutPaused, fails)
	case v.rolledBack != "":
		set(reasonRolledBack, v.rolledBack)
	case v.progress != "":
		condition.SetTrueWithReason(pool, karpv1.ConditionRollout, condition.Because(reasonWave, v.progress), r.Now())
	default:
		condition.Clear(pool, karpv1.ConditionRollout, r.Now())
	}
	if _, err := patch.StatusFrom(ctx, r.Client, before, pool); err != nil {
		return err
	}
	if v.invalid != nil {
		r.Events.WarnEvery(pausedEventWindow, pool, reasonInvalidRollout, "%v", v.invalid)
	}
	return nil
}

// rolledBackBy states that the class uses images that are known to be good; empty if it does not.
func rolledBackBy(class *awsv1.EC2NodeClass) string {
	c, _ := condition.Get(class, awsv1.ConditionRolledBack)
	return c.Message
}
