package replace

import (
	"cmp"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
)

// Why no replacement for a node of a static pool can be launched first. The texts are Karpenter's.
const (
	AtNodeLimit      = "static NodePool is at its node limit and cannot stage a replacement"
	ReservationsFull = "static NodePool's capacity reservations are full and cannot stage a replacement"
)

// StaticRefill decides which nodes of a static pool are terminated before their replacements are launched, where these
// cannot come first. The pool itself launches them, since it lacks nodes then.
type StaticRefill struct {
	View      *disrupt.View
	Reason    karpv1.DisruptionReason
	Remaining *disrupt.RemainingBudgets
	// Pool is a static pool, Limit the most nodes that it may have, Room that of its template.
	Pool  *karpv1.NodePool
	Limit int64
	Room  reservation.TemplateRoom
	// Enabled is false if no node may be terminated first.
	Enabled bool

	// begun are the nodes that were chosen.
	begun int
}

// Sort puts nodes first that free a slot of a full capacity reservation, and of these the ones that have been drifted
// longest.
func (s *StaticRefill) Sort(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	slices.SortFunc(candidates, func(a, b *disrupt.Candidate) int {
		if s.frees(a) != s.frees(b) {
			return map[bool]int{true: -1, false: 1}[s.frees(a)]
		}
		return cmp.Or(disrupt.ByMaintenance(a, b), a.Node.DriftedAt.Compare(b.Node.DriftedAt), cmp.Compare(a.Node.Name, b.Node.Name))
	})
	return candidates
}

// frees reports whether the node frees a slot that its replacement can use.
func (s *StaticRefill) frees(c *disrupt.Candidate) bool {
	id := s.View.ReservationOf(c.Node)
	return id != "" && c.CapacityType == karpv1.CapacityTypeReserved && slices.Contains(s.Room.Full, id)
}

// Stageable returns how many of want replacements may come first, as far as the pool allows: a free instance in the reservations
// for each, and a slot under the limit above the replicas. Slots up to the replicas are for nodes that the pool lacks: if a
// replacement took the slot of a node that was terminated first, that one would stay missing.
func (s *StaticRefill) Stageable(want int64) int64 {
	if s.Room.Only {
		want = min(want, int64(s.Room.Free))
	}
	if s.Enabled {
		want = min(want, max(0, s.Limit-*s.Pool.Spec.Replicas))
	}
	return want
}

// InReservation returns the command that terminates a node first since the reservations have no free instance, or why
// it waits.
func (s *StaticRefill) InReservation(c *disrupt.Candidate) (*disrupt.Command, string) {
	if !s.Enabled || !s.frees(c) {
		return nil, ReservationsFull
	}
	return s.first(c, disrupt.NoReservedCapacity)
}

// AtLimit returns the command that terminates a node first since the pool has as many nodes as it may have, or why it waits. In a
// pool with a limit above its replicas a replacement can come first, as soon as nodes that are deleting have gone. In one
// with more nodes than its limit none can come at all.
func (s *StaticRefill) AtLimit(c *disrupt.Candidate) (*disrupt.Command, string) {
	if !s.Enabled || s.Limit > *s.Pool.Spec.Replicas || s.nodes() > s.Limit {
		return nil, AtNodeLimit
	}
	return s.first(c, disrupt.StaticAtLimit)
}

// first returns the command, or why it waits: the pool must be whole, but for as many nodes as may be missing.
func (s *StaticRefill) first(c *disrupt.Candidate, why disrupt.TerminateFirstReason) (*disrupt.Command, string) {
	out := &disrupt.Command{
		Reason: s.Reason, Candidates: []*disrupt.Candidate{c}, TerminateFirst: why, RefillPools: []string{s.Pool.Name},
	}
	if s.Reason == karpv1.DisruptionUnhealthy {
		out.Bound = c.Node.Repair.Bound
	}
	if s.missing(c)+s.begun >= mayBeMissing(s.View, out, s.Pool.Name, s.Remaining) {
		return nil, refillMessage(s.Pool.Name)
	}
	s.begun++
	return out, ""
}

// nodes returns how many nodes the pool has, in any state.
func (s *StaticRefill) nodes() int64 {
	n := int64(0)
	for i := range s.View.Snapshot.Nodes {
		if node := &s.View.Snapshot.Nodes[i]; node.Pool == s.Pool.Name && node.Claim != "" {
			n++
		}
	}
	return n
}

// missing returns how many nodes the pool lacks of those that it is to have, apart from the candidate: not launched, not
// initialized, or in flight out.
func (s *StaticRefill) missing(c *disrupt.Candidate) int {
	missing := min(*s.Pool.Spec.Replicas, s.Limit)
	for i := range s.View.Snapshot.Nodes {
		n := &s.View.Snapshot.Nodes[i]
		if n.Pool == s.Pool.Name && n.Claim != "" && (n == c.Node || n.Initialized && !n.Deleting && !n.Disrupting) {
			missing--
		}
	}
	return int(max(0, missing))
}
