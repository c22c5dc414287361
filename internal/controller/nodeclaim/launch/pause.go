package launch

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// How long a launch that has failed rests before the next attempt: at first, and at most. The first is more than a moment, since what
// EC2 has refused it refuses again within the same second, and a cache may not show yet what the attempt has written on the claim.
const firstPause, longestPause = 2 * time.Second, time.Minute

// pauses say when claims with a launch that has failed may be tried again. What an attempt writes on its claim is a change of it, and
// so is what others write: neither may end the pause, so that no queue can keep it. They are forgotten with the process. The zero
// value is ready for use, by several at a time.
type pauses struct {
	mu     sync.Mutex
	claims map[string]pause // by name
}

type pause struct {
	uid  types.UID
	last time.Duration
	next time.Time
}

// rest is how long the claim is to be left alone.
func (p *pauses) rest(claim *karpv1.NodeClaim, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.claims[claim.Name]; known.uid == claim.UID {
		return known.next.Sub(now)
	}
	return 0
}

// failed begins a pause that is twice as long as the one before.
func (p *pauses) failed(claim *karpv1.NodeClaim, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claims == nil {
		p.claims = map[string]pause{}
	}
	length := firstPause
	if known := p.claims[claim.Name]; known.uid == claim.UID {
		length = min(2*known.last, longestPause)
	}
	p.claims[claim.Name] = pause{uid: claim.UID, last: length, next: now.Add(length)}
}

// forget frees what is kept of a claim.
func (p *pauses) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.claims, name)
}
