package join

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// How long after a failure the next instance is tried: at first, and at most.
const (
	firstProbe = time.Minute
	lastProbe  = 30 * time.Minute
)

// probeTime is how long one instance is tried at most: more than a claim has until its node must have registered. One that has
// joined and is not ready by then has failed, too.
const probeTime = 20 * time.Minute

// Breakers keep instances from being launched that would share the fate of one that certainly cannot join. Each is
// about what those instances have in common: a role, an image, a node class. While one is open, a single instance
// is tried from time to time, ever more seldom; when one joins, the breaker is closed. Breakers are forgotten with the
// process: the next one learns by one instance. They are safe for concurrent use.
type Breakers struct {
	now func() time.Time
	// changed is called, without the lock, when what Held says has changed.
	changed func()

	mu   sync.Mutex
	open map[string]*breaker
}

// breaker is what is known of one scope in which nodes do not join.
type breaker struct {
	finding cloudprovider.Finding
	opened  time.Time
	wait    time.Duration
	next    time.Time // when another instance may be tried
	probe   types.UID // the claim whose instance is tried now; empty for none
	tried   time.Time // since when
}

// settle gives up a probe that has had its time.
func (k *breaker) settle(now time.Time) {
	if over := k.tried.Add(probeTime); k.probe != "" && !now.Before(over) {
		k.wait = min(2*k.wait, lastProbe)
		k.probe, k.next = "", over.Add(k.wait)
	}
}

// NewBreakers returns Breakers of which none is open. changed is called whenever Held may have changed; it must not block.
func NewBreakers(now func() time.Time, changed func()) *Breakers {
	return &Breakers{now: now, changed: changed, open: map[string]*breaker{}}
}

// Report opens the breaker of a certain finding that others share. A standing fault needs none: the node class itself
// is not ready while it stands.
func (b *Breakers) Report(f cloudprovider.Finding) {
	if f.Certainty != cloudprovider.Certain || f.Scope == "" || f.Standing {
		return
	}
	b.mu.Lock()
	if known := b.open[f.Scope]; known != nil {
		known.finding = f
		b.mu.Unlock()
		return
	}
	now := b.now()
	b.open[f.Scope] = &breaker{finding: f, opened: now, wait: firstProbe, next: now.Add(firstProbe)}
	b.mu.Unlock()
	b.changed()
}

// Failed notes that the instance of a claim has not joined in time. If it was tried by a breaker, the next one
// is tried later.
func (b *Breakers) Failed(claim types.UID) { b.release(claim, true) }

// Gone notes that a claim is gone, whatever came of it.
func (b *Breakers) Gone(claim types.UID) { b.release(claim, false) }

func (b *Breakers) release(claim types.UID, failed bool) {
	b.mu.Lock()
	released := false
	for _, k := range b.open {
		if k.probe != claim || claim == "" {
			continue
		}
		if failed {
			k.wait = min(2*k.wait, lastProbe)
		}
		k.probe, k.next, released = "", b.now().Add(k.wait), true
	}
	b.mu.Unlock()
	if released {
		b.changed()
	}
}

// Joined closes the breakers of the scopes of an instance that has become a node at that time.
func (b *Breakers) Joined(scopes []string, at time.Time) {
	b.mu.Lock()
	closed := false
	for _, scope := range scopes {
		// A node may have joined in the last moment before; times of conditions are whole seconds.
		if k := b.open[scope]; k != nil && at.After(k.opened.Truncate(time.Second)) {
			delete(b.open, scope)
			closed = true
		}
	}
	b.mu.Unlock()
	if closed {
		b.changed()
	}
}

// Held says why no instance of these scopes may be launched now, and until when at least that stays so; the time is zero
// while an instance is being tried.
func (b *Breakers) Held(scopes []string) (f cloudprovider.Finding, until time.Time, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for _, scope := range scopes {
		k := b.open[scope]
		if k != nil {
			k.settle(now)
		}
		switch {
		case k == nil || (k.probe == "" && !now.Before(k.next)):
			continue
		case k.probe != "":
			return k.said("another instance is being tried"), time.Time{}, true
		default:
			return k.said("the next instance is tried at " + k.next.UTC().Format(time.RFC3339)), k.next, true
		}
	}
	return cloudprovider.Finding{}, time.Time{}, false
}

// Admit lets the claim launch, as the one that is tried if a breaker of its scopes is open; or says why not.
func (b *Breakers) Admit(scopes []string, claim types.UID) (cloudprovider.Finding, bool) {
	b.mu.Lock()
	now := b.now()
	var tried []*breaker
	for _, scope := range scopes {
		k := b.open[scope]
		if k == nil {
			continue
		}
		if k.settle(now); k.probe == claim {
			continue
		}
		if k.probe != "" || now.Before(k.next) {
			b.mu.Unlock()
			return k.finding, false
		}
		tried = append(tried, k)
	}
	for _, k := range tried {
		k.probe, k.tried = claim, now
	}
	b.mu.Unlock()
	if len(tried) > 0 {
		b.changed()
	}
	return cloudprovider.Finding{}, true
}

// Open returns the findings of all open breakers by scope.
func (b *Breakers) Open() map[string]cloudprovider.Finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]cloudprovider.Finding, len(b.open))
	for scope, k := range b.open {
		out[scope] = k.finding
	}
	return out
}

func (k *breaker) said(more string) cloudprovider.Finding {
	f := k.finding
	f.Message = fmt.Sprintf("%s (%s)", f.Message, more)
	return f
}
