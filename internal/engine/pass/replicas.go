package pass

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/static"
)

// Room is the room of a static pool in capacity reservations. Error is why it is not known.
type Room struct {
	reservation.TemplateRoom
	Error string `json:"error,omitempty"`
}

// replicas replaces drifted nodes of static pools, one for one.
func (d *decider) replicas() {
	defer d.begin(Replicas)()
	d.replaceStatic(Replicas, karpv1.DisruptionDrifted, d.backoff.StaticDrift(d.view, d.budgets[karpv1.DisruptionDrifted]))
}

// replaceStatic replaces nodes of static pools, one for one.
func (d *decider) replaceStatic(work Work, reason karpv1.DisruptionReason, batches []disrupt.StaticBatch) {
	for _, batch := range batches {
		if batch.Pool.DeletionTimestamp != nil || !condition.IsTrue(batch.Pool, condition.Ready) {
			continue // replacements would not launch
		}
		refill, why := d.staticRefill(batch.Pool, reason)
		if why != "" {
			continue // the caller reports why it does not know the room
		}
		if batch.Candidates = d.free(batch.Candidates); len(batch.Candidates) > 0 {
			d.replaceInStaticPool(work, refill, batch)
		}
	}
}

// replaceInStaticPool replaces nodes of one static pool: those first with replacements that can be launched first.
func (d *decider) replaceInStaticPool(work Work, refill *replace.StaticRefill, batch disrupt.StaticBatch) {
	if refill.Room.Exhausted() {
		all := slices.DeleteFunc(d.staticCandidates(refill.Reason), func(c *disrupt.Candidate) bool { return c.Pool.Name != batch.Pool.Name })
		d.terminateStaticFirst(work, refill.Remaining, refill.Sort(d.free(all)), refill.InReservation)
		return
	}
	granted := d.stageable(refill, int64(len(batch.Candidates)))
	if granted == 0 {
		d.terminateStaticFirst(work, refill.Remaining, batch.Candidates, refill.AtLimit)
		return
	}
	for _, c := range batch.Candidates[:granted] {
		d.start(&disrupt.Command{Reason: refill.Reason, Candidates: []*disrupt.Candidate{c}})
	}
}

// staticCandidates are the nodes of static pools to replace for a reason.
func (d *decider) staticCandidates(reason karpv1.DisruptionReason) []*disrupt.Candidate {
	if reason == karpv1.DisruptionExpired {
		return d.view.Expiring(true)
	}
	return d.view.Drifted(true)
}

// terminateStaticFirst starts the commands that decide returns, as far as budgets allow, and reports why other nodes wait.
func (d *decider) terminateStaticFirst(
	work Work, room *disrupt.RemainingBudgets, candidates []*disrupt.Candidate,
	decide func(*disrupt.Candidate) (*disrupt.Command, string),
) {
	for _, c := range candidates {
		if room.Remaining(c.Pool.Name) == 0 {
			return
		}
		cmd, why := decide(c)
		if cmd == nil {
			d.stay(Stay{Node: c.Node, Why: disrupt.Why{Message: why}, By: work})
			continue
		}
		d.start(cmd)
	}
}

// staticRefill prepares the decisions about a static pool, or returns why the room of its reservations is not known.
func (d *decider) staticRefill(pool *karpv1.NodePool, reason karpv1.DisruptionReason) (*replace.StaticRefill, string) {
	room := d.Facts.Rooms[pool.Name]
	if room.Error != "" {
		return nil, room.Error
	}
	return &replace.StaticRefill{
		View: d.view, Reason: reason, Remaining: d.budgets[reason], Pool: pool, Limit: static.Limit(pool), Room: room.TemplateRoom,
		Enabled: d.terminateFirst(reason),
	}, ""
}

// stageable is how many of want replacements of a static pool may come first. Slots under the limit that others have reserved a moment ago
// are not known here: who starts the command reserves its slot.
func (d *decider) stageable(refill *replace.StaticRefill, want int64) int64 {
	var nodes []snapshot.Node
	for i := range d.Snapshot.Nodes {
		if n := &d.Snapshot.Nodes[i]; n.Pool == refill.Pool.Name && n.Claim != "" {
			nodes = append(nodes, *n)
		}
	}
	launching := int64(0) // replacements of commands of this pass
	for i := range d.out.Start {
		if c := &d.out.Start[i]; c.Static() && c.Candidates[0].Pool.Name == refill.Pool.Name {
			launching++
		}
	}
	return static.WithinLimit(refill.Limit, static.Count(nodes).All(), launching, refill.Stageable(want))
}
