package pass

import (
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// limit finds the limit of a pool for a reason; nil if there is none.
func (d *decider) limit(pool string, reason karpv1.DisruptionReason) *StartLimit {
	for i := range d.limits {
		if l := &d.limits[i]; l.NodePool == pool && l.Reason == reason {
			return l
		}
	}
	return nil
}

// paused reports whether no replacement of nodes of the pool may start. It lists the pool with its limit.
func (d *decider) paused(pool string, reason karpv1.DisruptionReason) bool {
	shown := StartLimit{NodePool: pool, Reason: reason}
	if l := d.limit(pool, reason); l != nil && l.Starts <= 0 {
		shown = *l
	}
	if !slices.ContainsFunc(d.out.Limits, func(l StartLimit) bool { return l.NodePool == pool && l.Reason == reason }) {
		d.out.Limits = append(d.out.Limits, shown)
	}
	return shown.Why != ""
}

// withheld returns why a command does not start: replacements in a pool that would lose or gain a node pause. If it is empty, the command
// counts as started.
func (d *decider) withheld(c *disrupt.Command) string {
	if c.Replacements() == 0 && c.TerminateFirst == "" {
		return ""
	}
	pools := c.Pools()
	for _, pool := range pools {
		if l := d.limit(pool, c.Reason); l != nil && l.Starts <= 0 {
			return l.Why
		}
	}
	// A start counts for all reasons: the nodes of a pool show together whether they stay ready.
	for i := range d.limits {
		if slices.Contains(pools, d.limits[i].NodePool) {
			d.limits[i].Starts--
		}
	}
	return ""
}
