package quarantine

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Pass is the kind of pass that units are quarantined for.
type Pass string

// The passes. Units with NodeClaims that the API server rejects are kept apart from panics: their plan passes, but not
// the creation of the claim.
const (
	Provisioning Pass = "provisioning"
	Disruption   Pass = "disruption"
	Buffers      Pass = "capacity-buffers"
	Refused      Pass = "refused-claims"
)

const (
	// minBackoff and maxBackoff bound how long a unit is quarantined: long enough that most passes need no search,
	// short enough that a pod does not wait for a day after the cause is gone.
	minBackoff, maxBackoff = time.Minute, time.Hour
	// maxRefusedBackoff is the upper bound for rejected claims: an admission policy may reject them, which can change
	// without the pods.
	maxRefusedBackoff = 5 * time.Minute
	// unprovenBackoff sets how long units are quarantined that a search did not reach: until the next pass, which
	// searches on.
	unprovenBackoff = 10 * time.Second
	// retention sets how long an expired entry is kept, with its backoff.
	retention = 2 * maxBackoff
)

// Registry holds the quarantined units, and until when. It is safe for concurrent use.
type Registry struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[entryKey]*Entry
}

type entryKey struct {
	pass Pass
	unit Unit
}

// Entry is the quarantine of a unit.
type Entry struct {
	Until time.Time
	// Why is the message for the owners of the pods.
	Why string
	// Pass is the one that the unit is quarantined for.
	Pass Pass

	times int
}

// NewRegistry returns an empty Book.
func NewRegistry(now func() time.Time) *Registry {
	return &Registry{now: now, entries: map[entryKey]*Entry{}}
}

// Add quarantines units for a pass: for a minute, and twice as long each further time.
func (b *Registry) Add(pass Pass, units Set, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, limit := b.now(), maxBackoff
	if pass == Refused {
		limit = maxRefusedBackoff
	}
	for u := range units {
		e := b.entry(entryKey{pass, u})
		e.Until, e.Why = now.Add(backoff.Doubling{First: minBackoff, Max: limit}.After(e.times)), why
		e.times++
	}
}

// AddBriefly quarantines units until the next pass.
func (b *Registry) AddBriefly(pass Pass, units Set, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	until := b.now().Add(unprovenBackoff)
	for u := range units {
		e := b.entry(entryKey{pass, u})
		e.Until, e.Why = until, why
	}
}

func (b *Registry) entry(key entryKey) *Entry {
	e := b.entries[key]
	if e == nil {
		e = &Entry{Pass: key.pass}
		b.entries[key] = e
	}
	return e
}

// Excluded returns the units of a snapshot that are quarantined for any of the passes, each with its entry.
func (b *Registry) Excluded(s *snapshot.Snapshot, unitIndex *Units, passes ...Pass) (Set, map[Unit]Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	owners := map[types.UID]bool{}
	for key, e := range b.entries {
		if now.Sub(e.Until) > retention {
			delete(b.entries, key)
			continue
		}
		owners[key.unit.Owner] = owners[key.unit.Owner] || now.Before(e.Until)
	}
	out, why := Set{}, map[Unit]Entry{}
	if len(owners) == 0 {
		return out, why
	}
	add := func(u Unit) {
		for _, pass := range passes {
			if e := b.entries[entryKey{pass, u}]; e != nil && now.Before(e.Until) {
				out[u], why[u] = true, *e
				return
			}
		}
	}
	pods := func(list []*corev1.Pod) {
		for _, pod := range list {
			if owners[ownerOf(pod)] {
				add(unitIndex.Unit(pod))
			}
		}
	}
	pods(s.Pods)
	pods(s.Arriving)
	pods(s.Virtual)
	for i := range s.Nodes {
		pods(s.Nodes[i].Pods)
	}
	for i := range s.DaemonSets {
		if d := &s.DaemonSets[i]; d.Pod != nil && owners[daemonSetOwner(d)] {
			add(unitIndex.DaemonSetUnit(d))
		}
	}
	return out, why
}

// Empty reports whether no unit is quarantined, nor was within the retention.
func (b *Registry) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries) == 0
}

// Suspected returns the units that have been quarantined for a pass, within the retention.
func (b *Registry) Suspected(pass Pass) Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := Set{}
	for key := range b.entries {
		if key.pass == pass {
			out[key.unit] = true
		}
	}
	return out
}
