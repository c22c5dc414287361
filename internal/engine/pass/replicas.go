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
	for _, batch := range d.backoff.StaticDrift(d.view, d.budgets[karpv1.DisruptionDrifted]) {
		if batch.Pool.DeletionTimestamp != nil || !condition.IsTrue(batch.Pool, condition.Ready) {
			continue // replacements would not launch
		}
		if batch.Candidates = d.free(batch.Candidates); len(batch.Candidates) > 0 {
			d.replaceInStaticPool(batch)
		}
	}
}

// replaceInStaticPool replaces drifted nodes of one static pool: those first with replacements that can be launched first.
func (d *decider) replaceInStaticPool(batch disrupt.StaticBatch) {
	refill, why := d.staticRefill(batch.Pool, karpv1.DisruptionDrifted)
	if why != "" {
		return // the caller reports why it does not know the room
	}
	if refill.Room.Exhausted() {
		all := slices.DeleteFunc(d.view.Drifted(true), func(c *disrupt.Candidate) bool { return c.Pool.Name != batch.Pool.Name })
		d.terminateStaticFirst(refill, refill.Sort(d.free(all)), refill.InReservation)
		return
	}
	granted := d.stageable(refill, int64(len(batch.Candidates)))
	if granted == 0 {
		d.terminateStaticFirst(refill, batch.Candidates, refill.AtLimit)
		return
	}
	for _, c := range batch.Candidates[:granted] {
		d.start(&disrupt.Command{Reason: karpv1.DisruptionDrifted, Candidates: []*disrupt.Candidate{c}})
	}
}

// terminateStaticFirst starts the commands that decide returns, as far as budgets allow, and reports why other nodes wait.
func (d *decider) terminateStaticFirst(
	refill *replace.StaticRefill, candidates []*disrupt.Candidate, decide func(*disrupt.Candidate) (*disrupt.Command, string),
) {
	for _, c := range candidates {
		if refill.Remaining.Remaining(c.Pool.Name) == 0 {
			return
		}
		cmd, why := decide(c)
		if cmd == nil {
			d.stay(Stay{Node: c.Node, Why: disrupt.Why{Message: why}, By: Replicas})
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
