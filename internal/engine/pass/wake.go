package pass

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// wake is the first instant at which time alone changes the result of the pass; zero if the pass has something to do, or waits for more
// than time. A pass before that instant, on the same objects and prices, decides nothing.
func (d *decider) wake() time.Time {
	if len(d.out.Start) > 0 || !d.settled || !d.memory.Idle() {
		return time.Time{}
	}
	if empty, _ := d.view.Empty(); len(empty)+len(d.view.Drifted(false))+len(d.view.Drifted(true))+d.out.Stats.Expiring > 0 {
		return time.Time{} // they wait for budgets, limits or retries
	}
	until := d.memory.Search.RepeatAt()
	for _, at := range []time.Time{disrupt.NextBudgetChange(d.Snapshot), firstChange(d.Snapshot), d.view.NextDue()} {
		if !at.IsZero() && at.Before(until) {
			until = at
		}
	}
	return until
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
