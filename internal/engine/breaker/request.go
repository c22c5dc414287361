package breaker

import (
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Request checks whether nodes of a pool may be replaced for a reason.
type Request struct {
	Pool, Class string
	Reason      karpv1.DisruptionReason
	// Verdicts are the verdicts of AddVerdicts, Batch is what limits the first nodes of a rollout.
	Verdicts []Verdict
	Batch    Batch
	// Soaking are the creation times of all nodes that have no verdict yet, InFlight those of replacements for the reason that have no
	// outcome yet. A reader that does not know them takes a probe that is due for one that may start.
	Soaking, InFlight []time.Time
	Now               time.Time
}

// Refusal returns why nodes must not be replaced; empty if they may.
func (b *History) Refusal(q Request) string {
	switch soak := b.SoakMessage(q.Pool, q.Class); b.SoakState(q.Reason, q.Soaking, q.Now) {
	case Open:
		return soak
	case Probing:
		return soak + "; one is being tried"
	case HalfOpen: // the probe may start, whatever else fails
	case Closed:
		if why, wait := b.batch(q.Verdicts, q.Batch); wait && covered(q.Reason) {
			return why
		}
	}
	switch b.State(q.Reason, q.InFlight, q.Now) {
	case Open:
		return b.PauseMessage(q.Reason)
	case Probing:
		return b.PauseMessage(q.Reason) + "; one is being tried"
	}
	return ""
}
