package quarantine

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Pass is a kind of planning.
type Pass string

// The passes. What a NodeClaim was refused for is remembered apart from panics: it fails no plan, but its creation.
const (
	Provisioning Pass = "provisioning"
	Disruption   Pass = "disruption"
	Buffers      Pass = "capacity-buffers"
	Refused      Pass = "refused-claims"
)

const (
	// leastPause and mostPause bound for how long a unit is left out: long enough that most passes do not search again, short
	// enough that a pod does not wait for a day once the cause is gone.
	leastPause, mostPause = time.Minute, time.Hour
	// mostRefused is the same for refused claims: what refuses them may be a policy of the cluster, which changes without the pods.
	mostRefused = 5 * time.Minute
	// soon is for how long units are left out that a search did not get to: until the next pass, which goes on searching.
	soon = 10 * time.Second
	// forget is after how long a unit that is not left out any more is forgotten, and begins anew.
	forget = 2 * mostPause
)

// Book remembers which units are left out, and until when. It is safe for concurrent use.
type Book struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[entryKey]*Entry
}

type entryKey struct {
	pass Pass
	unit Unit
}

// Entry is why a unit is left out.
type Entry struct {
	Until time.Time
	// Why is for the people who own the pods.
	Why string

	times int
}

// NewBook returns an empty Book.
func NewBook(now func() time.Time) *Book { return &Book{now: now, entries: map[entryKey]*Entry{}} }

// Hold leaves units out of a pass from now on: for a minute, and twice as long each time that it comes to that again.
func (b *Book) Hold(pass Pass, units Set, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, most := b.now(), mostPause
	if pass == Refused {
		most = mostRefused
	}
	for u := range units {
		e := b.entry(entryKey{pass, u})
		e.Until, e.Why = now.Add(panics.Backoff(leastPause, most, e.times)), why
		e.times++
	}
}

// HoldBriefly leaves units out until the next pass.
func (b *Book) HoldBriefly(pass Pass, units Set, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	until := b.now().Add(soon)
	for u := range units {
		e := b.entry(entryKey{pass, u})
		e.Until, e.Why = until, why
	}
}

func (b *Book) entry(key entryKey) *Entry {
	e := b.entries[key]
	if e == nil {
		e = &Entry{}
		b.entries[key] = e
	}
	return e
}

// Out are the units of a snapshot that passes leave out now, each with why.
func (b *Book) Out(s *snapshot.Snapshot, census *Census, passes ...Pass) (Set, map[Unit]Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	owners := map[types.UID]bool{}
	for key, e := range b.entries {
		if now.Sub(e.Until) > forget {
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
				add(census.Unit(pod))
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
		if d := &s.DaemonSets[i]; d.Pod != nil && owners[daemonsOwner(d)] {
			add(census.Daemons(d))
		}
	}
	return out, why
}

// Before are the units that a pass has ever left out, as far as they are remembered.
func (b *Book) Before(pass Pass) Set {
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
