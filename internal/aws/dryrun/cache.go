package dryrun

import (
	"sync"
	"time"
)

const (
	// allowedTTL is how long a yes is believed.
	allowedTTL = 30 * time.Minute
	// firstRejectionTTL is how long the first no is believed, and maxRejectionTTL the last.
	firstRejectionTTL, maxRejectionTTL = 30 * time.Second, 5 * time.Minute
	// profileNotFoundTTL is how long it is believed that EC2 does not know an instance profile.
	profileNotFoundTTL = 10 * time.Second
)

// Memory remembers verdicts. It is safe for concurrent use.
type Memory struct {
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

// NewMemory returns a Memory that knows nothing.
func NewMemory(now func() time.Time) *Memory { return &Memory{now: now, entries: map[string]entry{}} }

// Verdict returns what is known of a node class as long as it is believed, and for how long it still is. About is all that the
// verdict depends on: one about anything else is none.
func (m *Memory) Verdict(class, about string) (v Verdict, left time.Duration, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[class]
	left = e.expiresAt.Sub(m.now())
	if !ok || e.inputHash != about || left <= 0 {
		return Verdict{}, 0, false
	}
	return e.verdict, left, true
}

// Put remembers a verdict, and returns for how long it is believed.
func (m *Memory) Put(class, about string, v Verdict) time.Duration {
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

// Forget drops what is known of a class.
func (m *Memory) Forget(class string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, class)
}
