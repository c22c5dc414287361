package screen

import (
	"fmt"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Boot shows the components that start and how long each takes.
type Boot struct {
	painter *Painter
	now     func() time.Time
	begin   time.Time

	mu    sync.Mutex
	parts []part
	ended bool
}

type part struct {
	cluster, name string
	since, until  time.Time // until is zero while it starts
}

// NewBoot starts to show a boot. Finish stops it.
func NewBoot(p *Painter, now func() time.Time) *Boot {
	return &Boot{painter: p, now: now, begin: now()}
}

// Progress records the progress of a component. It is safe for concurrent use.
func (b *Boot) Progress(e world.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	if !e.Healthy {
		b.parts = append(b.parts, part{cluster: e.Cluster, name: e.Part, since: b.now()})
		b.paint()
		return
	}
	for i := range b.parts {
		p := &b.parts[i]
		if p.cluster == e.Cluster && p.name == e.Part && p.until.IsZero() {
			p.until = b.now()
			if !b.painter.InPlace() {
				b.painter.Print(b.line(*p))
			}
		}
	}
	b.paint()
}

// Tick repaints the durations of starting components.
func (b *Boot) Tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.paint()
	}
}

// Finish leaves the last lines on the screen and returns the total duration.
func (b *Boot) Finish() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.painter.Keep()
	return b.now().Sub(b.begin)
}

func (b *Boot) paint() {
	if !b.painter.InPlace() {
		return
	}
	var lines []string
	for _, p := range b.parts {
		lines = append(lines, b.line(p))
	}
	b.painter.Paint(lines)
}

func (b *Boot) line(p part) string {
	mark, end := "✓", p.until
	if p.until.IsZero() {
		mark, end = "…", b.now()
	}
	name := p.name
	if p.cluster != "" {
		name = p.cluster + ": " + name
	}
	return fmt.Sprintf("  %s %-32s %5.1f s", mark, name, end.Sub(p.since).Seconds())
}
