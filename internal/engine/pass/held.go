package pass

import (
	"cmp"
	"maps"
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// heldTooLong is for how long the nodes to replace of a pool may find the budgets used up, or another command before them, until they go
// before empty nodes. Rollouts start a command every few minutes, so it does not change them; a steady flow of empty nodes may use up a
// small budget for days.
const heldTooLong = time.Hour

// HeldBack is since when no node of a pool was replaced for a reason, although some were to be, since there was no room for it in the
// budgets, or another command came first in each pass.
type HeldBack struct {
	NodePool string                  `json:"nodePool"`
	Reason   karpv1.DisruptionReason `json:"reason"`
	Since    time.Time               `json:"since"`
}

// heldBack replaces nodes that have been held back for too long: the pool first that has waited longest.
func (d *decider) heldBack() {
	list := slices.SortedFunc(slices.Values(d.memory.HeldBack), func(a, b HeldBack) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.NodePool, b.NodePool), cmp.Compare(a.Reason, b.Reason))
	})
	for _, h := range list {
		if d.moved() || d.Snapshot.Now.Sub(h.Since) < heldTooLong {
			return
		}
		work, order := Drift, d.backoff.DriftOrder
		if h.Reason == karpv1.DisruptionExpired {
			work, order = Expire, d.backoff.ExpiryOrder
		}
		if d.Work&work == 0 || d.budgets[h.Reason] == nil {
			continue
		}
		ofPool := slices.DeleteFunc(d.toReplace(h.Reason), func(c *disrupt.Candidate) bool { return c.Node.Pool != h.NodePool })
		d.replace(work, h.Reason, d.replaceable(order(ofPool, d.Snapshot.Now), h.Reason))
	}
}

// toReplace are the nodes of pools without replicas to replace for a reason, DisruptionDrifted or DisruptionExpired.
func (d *decider) toReplace(reason karpv1.DisruptionReason) []*disrupt.Candidate {
	if reason == karpv1.DisruptionExpired {
		return d.free(d.view.Expiring(false))
	}
	return d.free(d.view.Drifted(false))
}

// noteHeld notes which pools of candidates are held back as the work for a reason begins: behind a command of this pass, or since budgets
// allow nothing. Pools that back off or pause are not: that they wait is right.
func (d *decider) noteHeld(reason karpv1.DisruptionReason, candidates []*disrupt.Candidate) {
	if !d.Settings.Validate {
		return
	}
	waiting := map[string]bool{}
	for _, c := range candidates {
		pool := c.Node.Pool
		if !d.backoff.BacksOff(pool, d.Snapshot.Now) && !d.withholds(pool, reason) {
			waiting[pool] = true
		}
	}
	for i := range d.out.Start {
		if c := &d.out.Start[i].Command; c.Reason == reason {
			delete(waiting, c.Candidates[0].Node.Pool)
		}
	}
	known := map[string]time.Time{}
	for _, h := range d.memory.HeldBack {
		if h.Reason == reason {
			known[h.NodePool] = h.Since
		}
	}
	d.memory.HeldBack = slices.DeleteFunc(slices.Clone(d.memory.HeldBack), func(h HeldBack) bool { return h.Reason == reason })
	for _, pool := range slices.Sorted(maps.Keys(waiting)) {
		since, before := known[pool]
		if !d.moved() && d.budgets[reason].Remaining(pool) > 0 { // it is tried now: it waits for its turn or for room, not for a budget
			continue
		}
		if !before {
			since = d.Snapshot.Now
		}
		d.memory.HeldBack = append(d.memory.HeldBack, HeldBack{pool, reason, since})
	}
}

// withholds reports whether replacements in the pool pause for a reason.
func (d *decider) withholds(pool string, reason karpv1.DisruptionReason) bool {
	l := d.limit(pool, reason)
	return l != nil && l.Starts <= 0
}
