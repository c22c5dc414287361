package pass

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

const (
	// repeatSearchAfter is after how long a search is repeated although the fingerprint of the view is the same. It is the time after which
	// Karpenter considers its cluster state changed. For as long, consolidation leaves out a node that could not be tainted.
	repeatSearchAfter = 5 * time.Minute
	// minRefusalBackoff and maxRefusalBackoff bound the backoff of nodes with a replacement that was rejected as invalid. A minute lets other
	// nodes go first; an hour is soon enough for a mistake that a person must correct.
	minRefusalBackoff, maxRefusalBackoff = time.Minute, time.Hour
	// rebootRefused is for how long a node is replaced instead after a refused reboot. After that the permission may have come.
	rebootRefused = 10 * time.Minute
	// rebootUnclear is for how long others go before a node of which it could not be checked whether it can be rebooted.
	rebootUnclear = time.Minute
)

// Memory is what a pass knows of the passes before it, and of what became of their commands. It is plain data with a JSON form; the zero
// value knows nothing. No object holds it: what must survive a restart is on the objects already. Decide does not change the Memory that
// it is given.
type Memory struct {
	// Proposals are commands that must stay valid until they are due.
	Proposals []Proposal `json:"proposals,omitempty"`
	// Backoff has the pools with replacements that failed.
	Backoff disrupt.BackoffRecord `json:"backoff,omitzero"`
	// DriftFailed is when a drifted node was last found to be irreplaceable, since its pods fit nowhere.
	DriftFailed map[types.UID]time.Time `json:"driftFailed,omitempty"`
	// HeldBack are the pools with nodes that were to be replaced, and were held back in each pass since.
	HeldBack []HeldBack `json:"heldBack,omitempty"`
	// Excluded are nodes that could not be tainted, and until when consolidation leaves them out: each would block every command that
	// includes it.
	Excluded map[types.UID]time.Time `json:"excluded,omitempty"`
	// Refused are nodes with a replacement that the API server rejected as invalid.
	Refused map[types.UID]Refusal `json:"refused,omitempty"`
	// NoReboot are nodes that are replaced instead of rebooted, and until when. RepairLater are nodes that are repaired after the others, and
	// until when.
	NoReboot    map[types.UID]time.Time `json:"noReboot,omitempty"`
	RepairLater map[types.UID]time.Time `json:"repairLater,omitempty"`
	// Prices are the last known prices of the offerings in use.
	Prices disrupt.PoolCosts `json:"prices,omitzero"`
	// Search is the last search that found nothing to consolidate.
	Search Search `json:"search,omitzero"`
	// PoolsFirst are the pools that the last search did not come to.
	PoolsFirst []string `json:"poolsFirst,omitempty"`
	// ManyPending is since when many pods have waited for nodes; zero while few do.
	ManyPending time.Time `json:"manyPending,omitzero"`
}

// Refusal is until when a node is not disrupted, and how many replacements were rejected.
type Refusal struct {
	Until time.Time `json:"until"`
	Times int       `json:"times"`
}

// Search is a complete search that found nothing.
type Search struct {
	Fingerprint uint64    `json:"fingerprint"`
	At          time.Time `json:"at"`
	// Due is when time alone makes a move right that the search rejected; zero if there is none.
	Due time.Time `json:"due,omitzero"`
}

// RepeatAt is when the search is repeated although the fingerprint is the same.
func (s Search) RepeatAt() time.Time {
	if at := s.At.Add(repeatSearchAfter); s.Due.IsZero() || at.Before(s.Due) {
		return at
	}
	return s.Due
}

// Idle reports whether the Memory has nothing that a pass may act on but the last search.
func (m *Memory) Idle() bool {
	return len(m.Proposals) == 0 && len(m.Excluded) == 0 && len(m.Refused) == 0 && len(m.NoReboot) == 0 && len(m.RepairLater) == 0
}

// What is what became of a command.
type What string

// What becomes of commands.
const (
	// Succeeded: the replacements of nodes of Pool were initialized.
	Succeeded What = "Succeeded"
	// Failed: the replacements of Claims of Pool did not come up.
	Failed What = "Failed"
	// NotStarted: the replacement of Claims of Pool, which drifted or are unhealthy, could not be started.
	NotStarted What = "NotStarted"
	// Invalid: the API server rejected a replacement of Claims as invalid.
	Invalid What = "Invalid"
	// NotTainted: the node of one of several Claims of a command could not be tainted.
	NotTainted What = "NotTainted"
	// RebootRefused: the instances of Claims cannot be rebooted. RebootUnclear: it is not known whether they can.
	RebootRefused What = "RebootRefused"
	RebootUnclear What = "RebootUnclear"
)

// Feedback is what became of a command, for the next pass.
type Feedback struct {
	What   What
	At     time.Time
	Pool   string
	Claims []types.UID
	// Jitter in [0, 1) lengthens the backoff after a failure.
	Jitter float64
}

// With returns the Memory with the feedback, in its order. The receiver stays as it is.
func (m Memory) With(feedback ...Feedback) Memory {
	if len(feedback) == 0 {
		return m
	}
	pools := disrupt.FromRecord(m.Backoff)
	m.Excluded, m.Refused = maps.Clone(m.Excluded), maps.Clone(m.Refused)
	m.NoReboot, m.RepairLater = maps.Clone(m.NoReboot), maps.Clone(m.RepairLater)
	for _, f := range feedback {
		switch f.What {
		case Succeeded:
			pools.Succeeded(f.Pool)
		case Failed:
			pools.Failed(f.Pool, f.Claims, f.At, f.Jitter)
		case NotStarted:
			pools.Refused(f.Pool, f.Claims, f.At, f.Jitter)
		case NotTainted:
			setUntil(&m.Excluded, f.Claims, f.At.Add(repeatSearchAfter))
		case RebootRefused:
			setUntil(&m.NoReboot, f.Claims, f.At.Add(rebootRefused))
		case RebootUnclear:
			setUntil(&m.RepairLater, f.Claims, f.At.Add(rebootUnclear))
		case Invalid:
			m.refuse(f)
		}
	}
	m.Backoff = pools.Record()
	return m
}

func setUntil(in *map[types.UID]time.Time, claims []types.UID, until time.Time) {
	if *in == nil {
		*in = map[types.UID]time.Time{}
	}
	for _, uid := range claims {
		(*in)[uid] = until
	}
}

// refuse excludes nodes from disruption for a while after a replacement was rejected as invalid: the next would be, too.
func (m *Memory) refuse(f Feedback) {
	if m.Refused == nil {
		m.Refused = map[types.UID]Refusal{}
	}
	for _, uid := range f.Claims {
		r := m.Refused[uid]
		pause := backoff.Doubling{First: minRefusalBackoff, Max: maxRefusalBackoff}.After(r.Times)
		m.Refused[uid] = Refusal{Until: f.At.Add(pause), Times: r.Times + 1}
	}
}

// forget drops what is over, and what is about claims that no longer exist. The maps are the Memory's own from here on.
func (m *Memory) forget(v *disrupt.View) {
	now := v.Snapshot.Now
	exists := make(map[types.UID]bool, len(v.Snapshot.Nodes))
	for i := range v.Snapshot.Nodes {
		exists[v.Snapshot.Nodes[i].ClaimUID] = true
	}
	over := func(_ types.UID, until time.Time) bool { return !now.Before(until) }
	m.Excluded, m.NoReboot, m.RepairLater = maps.Clone(m.Excluded), maps.Clone(m.NoReboot), maps.Clone(m.RepairLater)
	for _, list := range []map[types.UID]time.Time{m.Excluded, m.NoReboot, m.RepairLater} {
		maps.DeleteFunc(list, over)
	}
	m.DriftFailed, m.Refused = maps.Clone(m.DriftFailed), maps.Clone(m.Refused)
	maps.DeleteFunc(m.DriftFailed, func(uid types.UID, _ time.Time) bool { return !exists[uid] })
	// The number of refusals outlives the backoff, so that the next one is longer.
	maps.DeleteFunc(m.Refused, func(_ types.UID, r Refusal) bool { return now.Sub(r.Until) > 2*maxRefusalBackoff })
	m.Proposals, m.PoolsFirst = slices.Clone(m.Proposals), slices.Clone(m.PoolsFirst)
}

// proposes reports whether a command for the reason waits for its validation.
func (m *Memory) proposes(reason karpv1.DisruptionReason) bool {
	return slices.ContainsFunc(m.Proposals, func(p Proposal) bool { return p.Reason == reason })
}
