package dryrun

import (
	"sync"
	"time"
)

const (
	// allowedTTL is how long a positive verdict is used. Permissions are rarely taken away, and a launch reports it
	// too.
	allowedTTL = 30 * time.Minute
	// firstRejectionTTL is how long the first rejection is used. It doubles with each further rejection, up to
	// maxRejectionTTL.
	firstRejectionTTL, maxRejectionTTL = 30 * time.Second, 5 * time.Minute
	// profileNotFoundTTL is how long a missing instance profile is assumed to be missing. It is short, because IAM
	// shows a new profile within seconds.
	profileNotFoundTTL = 10 * time.Second
)

// Cache holds verdicts. It is safe for concurrent use.
type Cache struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[string]entry
}

type entry struct {
	inputHash  string
	verdict    Verdict
	expiresAt  time.Time
	rejections int // in a row
}

// NewCache returns an empty Cache.
func NewCache(now func() time.Time) *Cache { return &Cache{now: now, entries: map[string]entry{}} }

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
	believed := allowedTTL
	switch v.Reason {
	case "":
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
