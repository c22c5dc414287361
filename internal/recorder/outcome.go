package recorder

import (
	"cmp"
	"slices"
	"time"
)

// Outcome is what has become of a decision.
type Outcome string

// The outcomes.
const (
	OutcomeInProgress Outcome = "in progress"
	OutcomeDone       Outcome = "done"
	OutcomeFailed     Outcome = "failed"
	OutcomeRejected   Outcome = "rejected"
	OutcomeRolledBack Outcome = "rolled back"
)

// setSteps sorts the steps of a decision and derives its outcome.
func (d *Decision) setSteps(steps []Step) {
	d.Steps = sortedSteps(steps)
	d.Outcome, d.Ended = d.outcome()
	d.Realized = d.realized()
}

// outcome follows from the steps: the node that a launch is for is initialized, those that a disruption removes are terminated. The
// time is zero while the decision is in progress.
func (d *Decision) outcome() (Outcome, time.Time) {
	if d.Kind == KindAdoption {
		return d.adopted()
	}
	if d.Kind != KindLaunch {
		if at, gone := d.terminated(); gone {
			return OutcomeDone, at
		}
	}
	for _, end := range d.ends() {
		if at := slices.IndexFunc(d.Steps, func(s Step) bool { return s.What == end.step }); at >= 0 {
			return end.outcome, d.Steps[at].At
		}
	}
	return OutcomeInProgress, time.Time{}
}

// adopted is the outcome of an adoption. What could not be adopted is tried again.
func (d *Decision) adopted() (out Outcome, last time.Time) {
	out = OutcomeInProgress
	failed := map[string]bool{}
	for _, s := range d.Steps {
		switch s.What {
		case StepAdopted:
			out, last = OutcomeDone, s.At
			delete(failed, s.Object)
		case StepFailed:
			last = s.At
			failed[s.Object] = true
		}
	}
	if len(failed) > 0 {
		out = OutcomeFailed
	}
	return out, last
}

type decisionEnd struct {
	step    StepKind
	outcome Outcome
}

// ends are the steps that end a decision, the strongest first.
func (d *Decision) ends() []decisionEnd {
	if d.Kind == KindLaunch {
		return []decisionEnd{{StepInitialized, OutcomeDone}, {StepFailed, OutcomeFailed}, {StepTerminated, OutcomeFailed}}
	}
	return []decisionEnd{{StepRolledBack, OutcomeRolledBack}, {StepRejected, OutcomeRejected}, {StepFailed, OutcomeFailed}}
}

// terminated reports whether all nodes are gone that the decision removes, and since when.
func (d *Decision) terminated() (last time.Time, all bool) {
	for i := range d.Removes {
		at := slices.IndexFunc(d.Steps, func(s Step) bool { return s.What == StepTerminated && s.Object == d.Removes[i].NodeClaim })
		if at < 0 {
			return time.Time{}, false
		}
		if d.Steps[at].At.After(last) {
			last = d.Steps[at].At
		}
	}
	return last, len(d.Removes) > 0
}

// stepOrder is the order of steps within a second, which is how precise the times of conditions are.
var stepOrder = []StepKind{
	StepValidated, StepRejected, StepCreated, StepStarted, StepFailed, StepRolledBack, StepLaunched, StepWaiting, StepRegistered,
	StepInitialized, StepAdopted, StepDeleting, StepDrained, StepDetached, StepTerminated,
}

// sortedSteps sorts steps by time and drops repeated ones: a process that starts anew records the conditions of claims again.
func sortedSteps(steps []Step) []Step {
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(
			a.At.Truncate(time.Second).Compare(b.At.Truncate(time.Second)),
			cmp.Compare(slices.Index(stepOrder, a.What), slices.Index(stepOrder, b.What)),
			cmp.Compare(a.Object, b.Object), a.At.Compare(b.At), cmp.Compare(a.Message, b.Message),
		)
	})
	seen := map[Step]bool{}
	return slices.DeleteFunc(steps, func(s Step) bool {
		if s.What == StepTerminated || s.What == StepCreated || s.What == StepWaiting {
			s.At = time.Time{} // known by when it was seen
		}
		s.Instance.HourlyCost = 0 // spot prices change: the first counts
		if seen[s] {
			return true
		}
		seen[s] = true
		return false
	})
}
