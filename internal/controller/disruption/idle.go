package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxIdle is how long passes are left out at most. The recording then has the fleet at each minute.
const maxIdle = time.Minute

// idlePass is a pass that found nothing to do; the zero value is none. The next pass would find the same and is left out, because all
// that it depends on stays the same:
//
//   - objects, decisions of this process, and what pools may launch, at which price: they are the version;
//   - what the Loop itself remembers: it is empty, but for the last search;
//   - the time, until the first instant that rememberIdle finds.
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
	return len(l.proposals) == 0 && len(l.excluded) == 0 && len(l.refusedReplacements) == 0 && l.panicsInARow == 0 &&
		(l.Quarantine == nil || l.Quarantine.Empty()) && !l.Queue.owesRollbacks()
}

// rememberIdle notes that the pass found nothing to do, if so, and until when time alone changes nothing. version is that from before
// the snapshot of the pass.
func (l *Loop) rememberIdle(r *passState, version cluster.Version) {
	if r.started > 0 || r.moved || !r.searched || !l.forgotten() {
		return
	}
	if empty, _ := r.Empty(); len(empty) > 0 || len(r.Drifted(false)) > 0 || len(r.Drifted(true)) > 0 {
		return // they wait for budgets, breakers or retries
	}
	until := l.lastSearch.repeatAt()
	for _, at := range []time.Time{r.Snapshot.Now.Add(maxIdle), disrupt.NextBudgetChange(r.Snapshot), firstChange(r.Snapshot)} {
		if !at.IsZero() && at.Before(until) {
			until = at
		}
	}
	l.idle = idlePass{version, until}
}

// firstChange is when the first node changes by time alone: a protection of its pods elapses, a nomination does, or some step of its
// termination or repair is due, which counts as now. It is zero if none does. Cost: one pass over the pods.
func firstChange(s *snapshot.Snapshot) (first time.Time) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Claim == "" {
			continue
		}
		if n.Deleting || n.Disrupting || n.Rebooting || n.Unhealthy || len(n.Nominated) > 0 || n.NominatedUntil.After(s.Now) {
			return s.Now
		}
		for _, p := range n.Pods {
			switch at := podChange(p, s.Now); {
			case at.IsZero():
			case first.IsZero() || at.Before(first):
				first = at
			}
		}
	}
	return first
}

// podChange is when the pod changes by time alone; zero if it does not.
func podChange(p *corev1.Pod, now time.Time) time.Time {
	if snapshot.Terminating(p) {
		return now // a pod that is not gone after its grace period counts differently
	}
	_, until := snapshot.DoNotDisrupt(p, now)
	return until
}

// owesRollbacks reports whether commands wait to be rolled back.
func (q *Queue) owesRollbacks() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pendingRollbacks) > 0
}
