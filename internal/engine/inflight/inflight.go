// Package inflight decides the next step of a disruption command that has started: wait for its replacements, delete its
// candidates, or roll it back and why.
package inflight

import (
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Command is all that the next step of a command depends on. What its claims record is enough for any process to go on.
type Command struct {
	// Record is what the candidates have in their annotation. It is zero if no candidate is left.
	Record karpv1.DisruptionCommand
	// Candidates are the claims with the record that are not deleting.
	Candidates []*karpv1.NodeClaim
	// Replacements are those of the record, in its order.
	Replacements []Replacement
	// Created is true if all replacements are known to have existed at the same time: one that is missing was lost since.
	Created bool
	// Paused is why the breaker has paused such commands in one of Pools since this one started; empty if it has not.
	Paused string
	// Surges are the Deployments that are restarted before the candidates are deleted.
	Surges []Surge
	// Timeout is how long the replacements may take; see the function.
	Timeout time.Duration
}

// Of is a command as far as its claims record it; the claims are its candidates and replacements, and may be others.
func Of(id string, claims []karpv1.NodeClaim) (c Command) {
	for i := range claims {
		r, ok, err := claims[i].DisruptionCommand()
		if !ok || err != nil || r.ID != id || claims[i].DeletionTimestamp != nil {
			continue
		}
		c.Record = r
		c.Candidates = append(c.Candidates, &claims[i])
	}
	return c
}

// Replacement is a claim that has to be initialized before the candidates are deleted.
type Replacement struct {
	Name, Pool string
	State      State
}

// State is how far a replacement is.
type State string

// The states.
const (
	// Missing: it does not exist, is deleting, or is no replacement of the command any more.
	Missing State = "Missing"
	// Launching: it has no registered node yet.
	Launching   State = "Launching"
	Registered  State = "Registered"
	Initialized State = "Initialized"
)

// ReplacementOf is a replacement of the command with an ID; claim is nil if it does not exist.
func ReplacementOf(id, name string, claim *karpv1.NodeClaim) Replacement {
	if claim == nil || claim.DeletionTimestamp != nil || claim.Annotations[karpv1.AnnotationReplacementOf] != id {
		return Replacement{Name: name, State: Missing}
	}
	out := Replacement{Name: name, Pool: claim.Labels[karpv1.LabelNodePool], State: Launching}
	switch {
	case condition.IsTrue(claim, karpv1.ConditionInitialized):
		out.State = Initialized
	case condition.IsTrue(claim, karpv1.ConditionRegistered):
		out.State = Registered
	}
	return out
}

// Pools are those in which the breaker may halt the command, sorted: its replacements would likely fail like those before, and keep its
// nodes tainted until the timeout. There are none if all replacements have registered: the command then continues.
func (c *Command) Pools() []string {
	var out []string
	for _, r := range c.Replacements {
		if r.State == Launching {
			out = append(out, r.Pool)
		}
	}
	if len(out) == 0 {
		return nil
	}
	for _, claim := range c.Candidates {
		out = append(out, claim.Labels[karpv1.LabelNodePool])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Timeout is how long replacements may take while so many nodes wait for theirs: 80 ms for each, since launches are
// rate limited, between ten minutes for ordinary boot times and one hour. The values are Karpenter's.
func Timeout(candidates int) time.Duration {
	return min(max(time.Duration(candidates)*80*time.Millisecond, 10*time.Minute), time.Hour)
}

// reverted reports whether the command is for drift, and none of its candidates is drifted any more: an edit was reverted, or the pod that
// waited for room has it.
func (c *Command) reverted() bool {
	return c.Record.Reason == karpv1.DisruptionDrifted && !slices.ContainsFunc(c.Candidates, func(claim *karpv1.NodeClaim) bool {
		return condition.IsTrue(claim, karpv1.ConditionDrifted)
	})
}

// Action is what is done about a command.
type Action string

// The actions.
const (
	// CleanUp: no candidate is left. Replacements that nothing Needs are deleted.
	CleanUp Action = "CleanUp"
	// Wait for the replacements.
	Wait Action = "Wait"
	// Restart the Surges that are not done.
	Restart Action = "Restart"
	// Delete the candidates.
	Delete Action = "Delete"
	// RollBack as Undo states.
	RollBack Action = "RollBack"
)

// Step is what is done next. Equal facts give equal steps, so that any process can go on.
type Step struct {
	Action Action
	// Why is the reason of a rollback.
	Why Why
	// Failed counts the replacements that did not come up, or is 1 if a restart failed. It is 0 if neither is the reason of a rollback:
	// nothing is known against another attempt.
	Failed int
	// Until is when time alone changes a wait, or what the Surges wait for.
	Until time.Time
}

// restart decides about a command that waits for nothing but its Surges.
func (c *Command) restart(now time.Time) Step {
	out := Step{Action: Delete}
	for i := range c.Surges {
		switch s := c.Surges[i].Next(now); {
		case s.Action == SurgeFailed:
			return Step{Action: RollBack, Why: Why{Code: RestartFailed, Deployment: c.Surges[i].name()}, Failed: 1}
		case s.Action != SurgeDone:
			out.Action = Restart
			if !s.Until.IsZero() && (out.Until.IsZero() || s.Until.Before(out.Until)) {
				out.Until = s.Until
			}
		}
	}
	return out
}

// Next decides what is done about a command now. A process that has started a command is not done before it has created the
// replacements, or deleted candidates that need none; until then only that process decides about it.
func Next(c Command, now time.Time) Step {
	var missing string
	ready := 0
	for _, r := range c.Replacements {
		switch r.State {
		case Missing:
			missing = r.Name
		case Initialized:
			ready++
		}
	}
	failed := Step{Action: RollBack, Failed: len(c.Replacements) - ready}
	ends := c.Record.Started.Add(c.Timeout)
	switch {
	case len(c.Candidates) == 0:
		return Step{Action: CleanUp}
	case len(c.Replacements) == 0 && len(c.Surges) == 0:
		// The process that decides to delete nodes without replacements does so at once. It has exited, so the decision
		// is stale.
		return Step{Action: RollBack, Why: Why{Code: NotCompleted}}
	case missing != "" && !c.Created:
		return Step{Action: RollBack, Why: Why{Code: NotCreated, Replacement: missing}}
	case c.reverted():
		return Step{Action: RollBack, Why: Why{Code: NotDrifted}}
	case missing != "":
		failed.Why = Why{Code: Lost, Replacement: missing}
	case ready == len(c.Replacements):
		return c.restart(now)
	case c.Paused != "" && len(c.Pools()) > 0:
		failed.Why = Why{Code: Paused, Pause: c.Paused}
	case !now.Before(ends):
		failed.Why = Why{Code: Late, Ready: ready, Of: len(c.Replacements)}
	default:
		return Step{Action: Wait, Until: ends}
	}
	return failed
}
