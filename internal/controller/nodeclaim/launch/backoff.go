package launch

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// The backoff of a failed launch: at first, and at most. EC2 repeats a refusal within the same second, and the cache
// may not show yet what the attempt has written to the claim.
const initialBackoff, maxBackoff = 2 * time.Second, time.Minute

// backoffs hold when claims with a failed launch may be tried again. They are apart from the workqueue's rate limiter,
// because an update of the claim, by the attempt itself or by others, enqueues the claim at once. They are lost with
// the process. The zero value is ready for use, and safe for concurrent use.
type backoffs struct {
	mu     sync.Mutex
	claims map[string]backoff // by name
}

type backoff struct {
	uid  types.UID
	last time.Duration
	next time.Time
}

// remaining returns how long the claim has to wait for its next attempt.
func (p *backoffs) remaining(claim *karpv1.NodeClaim, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.claims[claim.Name]; known.uid == claim.UID {
		return known.next.Sub(now)
	}
	return 0
}

// failed begins a backoff that is twice as long as the previous one.
func (p *backoffs) failed(claim *karpv1.NodeClaim, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claims == nil {
		p.claims = map[string]backoff{}
	}
	length := initialBackoff
	if known := p.claims[claim.Name]; known.uid == claim.UID {
		length = min(2*known.last, maxBackoff)
	}
	p.claims[claim.Name] = backoff{uid: claim.UID, last: length, next: now.Add(length)}
}

// forget frees the state of a claim.
func (p *backoffs) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.claims, name)
}
