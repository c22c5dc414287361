package disruption

import (
	"sync"

	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

// memory is the Memory of passes, and what has become of commands since the last pass. It is safe for concurrent use: the Queue reports
// while a pass decides. The zero value remembers nothing.
type memory struct {
	mu    sync.Mutex
	last  pass.Memory
	since []pass.Feedback
}

// report adds what became of a command.
func (m *memory) report(f pass.Feedback) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = append(m.since, f)
}

// now returns the Memory for a pass that begins now.
func (m *memory) now() pass.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.since = m.last.With(m.since...), nil
	return m.last
}

// keep replaces the Memory by that of a pass. What has become of commands since the pass began is for the next.
func (m *memory) keep(next pass.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = next
}

// change edits the Memory in place, between passes.
func (m *memory) change(edit func(*pass.Memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	edit(&m.last)
}
