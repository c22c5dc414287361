package dryrun

import (
	"sync"
	"time"
)

const (
	// minAllowedTTL and maxAllowedTTL bound how long a positive verdict is used. Permissions are rarely taken away, and a
	// launch reports it too. The time varies, so that classes that became valid together, as after a restart, do not stay
	// together: each dry run is two or more calls of EC2's launch APIs.
	minAllowedTTL, maxAllowedTTL = 25 * time.Minute, 35 * time.Minute
	// firstRejectionTTL sets how long the first rejection is used. It doubles with each further rejection, up to
	// maxRejectionTTL.
	firstRejectionTTL, maxRejectionTTL = 30 * time.Second, 5 * time.Minute
	// profileNotFoundTTL sets how long a missing instance profile is assumed to be missing. It is short, because IAM
	// shows a new profile within seconds.
	profileNotFoundTTL = 10 * time.Second
)

// Cache holds verdicts. It is safe for concurrent use.
type Cache struct {
	now    func() time.Time
	jitter func() float64

	mu      sync.Mutex
	entries map[string]entry
}

type entry struct {
	inputHash  string
	verdict    Verdict
	expiresAt  time.Time
	rejections int // in a row
}

// NewCache returns an empty Cache. jitter returns a number in [0, 1).
func NewCache(now func() time.Time, jitter func() float64) *Cache {
	return &Cache{now: now, jitter: jitter, entries: map[string]entry{}}
}

// Get returns the verdict for a node class and its remaining TTL. about identifies everything that the verdict depends
// on: a verdict for other inputs does not count.
func (m *Cache) Get(class, about string) (v Verdict, left time.Duration, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[class]
	left = e.expiresAt.Sub(m.now())
	if !ok || e.inputHash != about || left <= 0 {
		return Verdict{}, 0, false
	}
	return e.verdict, left, true
}

// Put stores a verdict, and returns its TTL.
func (m *Cache) Put(class, about string, v Verdict) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := entry{inputHash: about, verdict: v}
	if before := m.entries[class]; v.Reason != "" && before.inputHash == about {
		e.rejections = before.rejections
	}
	var believed time.Duration
	switch v.Reason {
	case "":
		believed = minAllowedTTL + time.Duration(m.jitter()*float64(maxAllowedTTL-minAllowedTTL))
	case InstanceProfileNotFound:
		believed = profileNotFoundTTL
	default:
		believed = min(firstRejectionTTL<<min(e.rejections, 10), maxRejectionTTL)
		e.rejections++
	}
	e.expiresAt = m.now().Add(believed)
	m.entries[class] = e
	return believed
}

// Invalidate removes the verdict for a class.
func (m *Cache) Invalidate(class string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, class)
}
