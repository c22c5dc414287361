package disrupt

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
)

// DriftBackoff is the backoff of drift: it remembers the results of replacing nodes, so that a pool with replacements
// that do not come up neither wastes launches nor delays others. It is plain data; the zero value remembers nothing.
type DriftBackoff struct {
	pools map[string]poolHistory
	// failed counts, by claim, the replacements that did not come up.
	failed map[types.UID]int
}

// poolHistory describes what happened to the replacements of a pool.
type poolHistory struct {
	// lastStarted is the time when a command of the pool was last started. Pools that have waited longer go first.
	lastStarted time.Time
	// failures in a row, and when the backoff after them finishes.
	failures     int
	backoffUntil time.Time
}

const (
	// The backoff doubles from minBackoff to maxBackoff. A minute is about as long as an instance takes to boot, so a
	// passing failure costs little; with ten minutes, a permanent one costs six launches in an hour.
	minBackoff = time.Minute
	maxBackoff = 10 * time.Minute
)

// Started records that nodes of the pool are being replaced.
func (a *DriftBackoff) Started(pool string, now time.Time) {
	a.update(pool, func(p *poolHistory) { p.lastStarted = now })
}

// Succeeded records that a replacement of the pool was initialized.
func (a *DriftBackoff) Succeeded(pool string) {
	a.update(pool, func(p *poolHistory) { p.failures, p.backoffUntil = 0, time.Time{} })
}

// Failed records that claims of the pool were not replaced. The pool backs off exponentially, from a minute to ten,
// plus up to a quarter for jitter, which is in [0, 1).
func (a *DriftBackoff) Failed(pool string, claims []types.UID, now time.Time, jitter float64) {
	a.update(pool, func(p *poolHistory) {
		pause := backoff.Doubling{First: minBackoff, Max: maxBackoff}.After(p.failures)
		p.failures++
		p.backoffUntil = now.Add(pause + time.Duration(jitter*float64(pause)/4))
	})
	a.countFailed(claims)
}

// Refused records that replacing claims of the pool could not be started. The first time may be by chance, and the
// claims only go last; after that it counts as a failure.
func (a *DriftBackoff) Refused(pool string, claims []types.UID, now time.Time, jitter float64) {
	if slices.ContainsFunc(claims, func(uid types.UID) bool { return a.failed[uid] > 0 }) {
		a.Failed(pool, claims, now, jitter)
		return
	}
	a.countFailed(claims)
}

// countFailed counts a failed attempt for each claim.
func (a *DriftBackoff) countFailed(claims []types.UID) {
	if a.failed == nil {
		a.failed = map[types.UID]int{}
	}
	for _, uid := range claims {
		a.failed[uid]++
	}
}

func (a *DriftBackoff) update(pool string, f func(*poolHistory)) {
	if a.pools == nil {
		a.pools = map[string]poolHistory{}
	}
	p := a.pools[pool]
	f(&p)
	a.pools[pool] = p
}

// BacksOff reports whether the pool backs off: its nodes must not be replaced yet.
func (a *DriftBackoff) BacksOff(pool string, now time.Time) bool {
	return now.Before(a.pools[pool].backoffUntil)
}

// Prune drops claims that no longer exist.
func (a *DriftBackoff) Prune(v *View) {
	there := make(map[types.UID]bool, len(v.Snapshot.Nodes))
	for i := range v.Snapshot.Nodes {
		there[v.Snapshot.Nodes[i].ClaimUID] = true
	}
	for uid := range a.failed {
		if !there[uid] {
			delete(a.failed, uid)
		}
	}
}

// BackoffRecord is a DriftBackoff as plain data, for recordings.
type BackoffRecord struct {
	Pools map[string]PoolBackoffRecord `json:"pools,omitempty"`
	// Failed counts, by claim, the replacements that did not come up.
	Failed map[types.UID]int `json:"failed,omitempty"`
}

// PoolBackoffRecord describes what happened to the replacements of a pool.
type PoolBackoffRecord struct {
	LastStarted  time.Time `json:"lastStarted,omitzero"`
	Failures     int       `json:"failures,omitempty"`
	BackoffUntil time.Time `json:"backoffUntil,omitzero"`
}

// Record returns a copy as plain data.
func (a *DriftBackoff) Record() BackoffRecord {
	out := BackoffRecord{Pools: make(map[string]PoolBackoffRecord, len(a.pools)), Failed: maps.Clone(a.failed)}
	for name, p := range a.pools {
		out.Pools[name] = PoolBackoffRecord{p.lastStarted, p.failures, p.backoffUntil}
	}
	return out
}

// FromRecord returns the backoff that was recorded.
func FromRecord(d BackoffRecord) *DriftBackoff {
	a := &DriftBackoff{pools: make(map[string]poolHistory, len(d.Pools)), failed: maps.Clone(d.Failed)}
	for name, p := range d.Pools {
		a.pools[name] = poolHistory{p.LastStarted, p.Failures, p.BackoffUntil}
	}
	return a
}
