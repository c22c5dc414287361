package join

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// The time from a failure to the next probe: at first, and at most. A minute gives an operator's fix a chance to take
// effect; at the maximum a lasting fault costs two instances per hour and scope.
const (
	firstProbe = time.Minute
	lastProbe  = 30 * time.Minute
)

// probeTime sets how long one probe lasts at most: longer than the registration timeout of a claim. A probe that has
// joined and is not ready by then has failed, too.
const probeTime = 20 * time.Minute

// Breakers are circuit breakers for launches: they hold back instances that would fail to join for the same certain
// cause as an earlier one. Each breaker has a scope, which is what those instances share: a role, an image, a node
// class. While a breaker is open, it admits one instance at a time as a probe, with growing intervals; it closes when
// one joins. Breakers are lost with the process: the next process learns from one instance. They are safe for
// concurrent use.
type Breakers struct {
	now func() time.Time
	// changed is called, without the lock, when the result of Held has changed.
	changed func()

	mu   sync.Mutex
	open map[string]*breaker
}

// breaker is the state of one scope in which nodes do not join.
type breaker struct {
	finding cloudprovider.Finding
	opened  time.Time
	wait    time.Duration
	next    time.Time // when the next probe may launch
	probe   types.UID // the claim that is the current probe; empty for none
	tried   time.Time // when the current probe began
}

// settle stops a probe that has had its time.
func (k *breaker) settle(now time.Time) {
	if over := k.tried.Add(probeTime); k.probe != "" && !now.Before(over) {
		k.wait = min(2*k.wait, lastProbe)
		k.probe, k.next = "", over.Add(k.wait)
	}
}

// NewBreakers returns Breakers that are all closed. It calls changed whenever the result of Held may have changed;
// changed must not block.
func NewBreakers(now func() time.Time, changed func()) *Breakers {
	return &Breakers{now: now, changed: changed, open: map[string]*breaker{}}
}

// Report opens the breaker of a finding that is certain and that other instances share. A standing fault needs no
// breaker: it keeps the node class from being ready.
func (b *Breakers) Report(f cloudprovider.Finding) {
	if f.Certainty != cloudprovider.Certain || f.Scope == "" || f.FromConfiguration {
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

// Failed records that the instance of a claim has not joined in time. If the claim was a probe, the interval to the
// next one doubles.
func (b *Breakers) Failed(claim types.UID) { b.release(claim, true) }

// Gone records that a claim is gone, whatever its result.
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

// Joined closes the breakers in these scopes: one of their instances has become a node at that time.
func (b *Breakers) Joined(scopes []string, at time.Time) {
	b.mu.Lock()
	closed := false
	for _, scope := range scopes {
		// A node may have joined just before the breaker opened; condition times are whole seconds.
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

// Held returns why no instance of these scopes may launch now, and until when at least; the time is zero while a probe
// is in flight.
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
			return k.withDetail("another instance is being tried"), time.Time{}, true
		default:
			return k.withDetail("the next instance is tried at " + k.next.UTC().Format(time.RFC3339)), k.next, true
		}
	}
	return cloudprovider.Finding{}, time.Time{}, false
}

// Admit lets the claim launch, as the probe if a breaker of its scopes is open; otherwise it returns why not.
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

// withDetail returns the breaker's finding with a detail added to its message.
func (k *breaker) withDetail(detail string) cloudprovider.Finding {
	f := k.finding
	f.Message = fmt.Sprintf("%s (%s)", f.Message, detail)
	return f
}
