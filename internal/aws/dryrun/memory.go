package dryrun

import (
	"sync"
	"time"
)

const (
	// yesFor is how long a yes is believed.
	yesFor = 30 * time.Minute
	// noFor is how long the first no is believed, and noAtMost the last.
	noFor, noAtMost = 30 * time.Second, 5 * time.Minute
	// profileFor is how long it is believed that EC2 does not know an instance profile.
	profileFor = 10 * time.Second
)

// Memory remembers verdicts. It is safe for concurrent use.
type Memory struct {
	now func() time.Time

	mu    sync.Mutex
	known map[string]entry
}

type entry struct {
	about   string
	verdict Verdict
	until   time.Time
	noes    int // in a row
}

// NewMemory returns a Memory that knows nothing.
func NewMemory(now func() time.Time) *Memory { return &Memory{now: now, known: map[string]entry{}} }

// Verdict returns what is known of a node class as long as it is believed, and for how long it still is. About is all that the
// verdict depends on: one about anything else is none.
func (m *Memory) Verdict(class, about string) (v Verdict, left time.Duration, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.known[class]
	left = e.until.Sub(m.now())
	if !ok || e.about != about || left <= 0 {
		return Verdict{}, 0, false
	}
	return e.verdict, left, true
}

// Put remembers a verdict, and returns for how long it is believed.
func (m *Memory) Put(class, about string, v Verdict) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := entry{about: about, verdict: v}
	if before := m.known[class]; v.Reason != "" && before.about == about {
		e.noes = before.noes
	}
	believed := yesFor
	switch v.Reason {
	case "":
	case InstanceProfileNotFound:
		believed = profileFor
	default:
		believed = min(noFor<<min(e.noes, 10), noAtMost)
		e.noes++
	}
	e.until = m.now().Add(believed)
	m.known[class] = e
	return believed
}

// Forget drops what is known of a class.
func (m *Memory) Forget(class string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, class)
}
