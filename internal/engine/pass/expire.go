package pass

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// expire replaces nodes with an expireAfter that comes near, in pools that replace them before it has passed.
func (d *decider) expire() {
	room := d.budgets[karpv1.DisruptionExpired]
	if room == nil {
		return
	}
	candidates := d.free(d.view.Expiring(false /* static */))
	static := d.free(d.view.Expiring(true))
	d.out.Stats.Expiring = len(candidates) + len(static)
	d.noteHeld(karpv1.DisruptionExpired, candidates)
	if d.moved() {
		return
	}
	d.out.Stats.Ran |= Expire
	if d.Work&Replicas != 0 {
		d.replaceStatic(Expire, karpv1.DisruptionExpired, d.backoff.StaticExpiring(d.view, room))
		if d.moved() {
			return
		}
	}
	order := d.backoff.ExpiryOrder(candidates, d.Snapshot.Now)
	d.replace(Expire, karpv1.DisruptionExpired, d.replaceable(order, karpv1.DisruptionExpired))
}
