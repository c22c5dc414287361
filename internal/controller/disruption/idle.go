package disruption

import (
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

// maxIdle is how long passes are left out at most. The recording then has the fleet at each minute.
const maxIdle = time.Minute

// idlePass is a pass that found nothing to do; the zero value is none. The next pass would find the same and is left out, because all
// that it depends on stays the same:
//
//   - objects, decisions of this process, and what pools may launch, at which price: they are the version;
//   - the Memory: it has nothing but the last search;
//   - the time, until the first instant that changes something: pass.Decisions.Wake.
type idlePass struct {
	version cluster.Version
	until   time.Time
}

// stillIdle reports whether a pass now would find nothing to do, as the last one did.
func (l *Loop) stillIdle(version cluster.Version) bool {
	return version == l.idle.version && l.Now().Before(l.idle.until) && l.forgotten()
}

// forgotten reports whether the Loop remembers nothing that a pass may act on.
func (l *Loop) forgotten() bool {
	remembers := l.Queue.memory.now()
	return remembers.Idle() && l.panicsInARow == 0 && (l.Quarantine == nil || l.Quarantine.Empty()) && !l.Queue.owesRollbacks()
}

// rememberIdle notes that the pass found nothing to do, if so, and until when time alone changes nothing. version is that from before
// the snapshot of the pass.
func (l *Loop) rememberIdle(decided *pass.Decisions, version cluster.Version) {
	until := decided.Wake
	if until.IsZero() || !l.forgotten() {
		return
	}
	if most := decided.View.Snapshot.Now.Add(maxIdle); most.Before(until) {
		until = most
	}
	l.idle = idlePass{version, until}
}

// owesRollbacks reports whether commands wait to be rolled back.
func (q *Queue) owesRollbacks() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pendingRollbacks) > 0
}
