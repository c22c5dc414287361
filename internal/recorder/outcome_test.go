package recorder

import (
	"slices"
	"testing"
	"time"
)

func TestTheOutcomeFollowsFromTheSteps(t *testing.T) {
	began := time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC)
	step := func(seconds int, what StepKind, claim string) Step {
		return Step{At: began.Add(time.Duration(seconds) * time.Second), What: what, Object: claim}
	}
	for name, c := range map[string]struct {
		kind  string
		steps []Step
		want  Outcome
		after time.Duration
	}{
		"a launch that has just begun": {KindLaunch, []Step{step(0, StepCreated, "n")}, OutcomeInProgress, 0},
		"a launch that waits":          {KindLaunch, []Step{step(0, StepCreated, "n"), step(3, StepWaiting, "n")}, OutcomeInProgress, 0},
		"a node that is ready, and went later": {
			KindLaunch, []Step{step(0, StepCreated, "n"), step(9, StepInitialized, "n"), step(99, StepTerminated, "n")}, OutcomeDone, 9 * time.Second,
		},
		"no capacity": {
			KindLaunch, []Step{step(2, StepFailed, "n"), step(3, StepDeleting, "n"), step(4, StepTerminated, "n")}, OutcomeFailed, 2 * time.Second,
		},
		"a node that went before it was ready": {KindLaunch, []Step{step(2, StepDeleting, "n"), step(4, StepTerminated, "n")}, OutcomeFailed, 4 * time.Second},
		"one of two nodes is gone":             {"drifted", []Step{step(1, StepStarted, ""), step(4, StepTerminated, "a")}, OutcomeInProgress, 0},
		"both nodes are gone": {
			"drifted", []Step{step(5, StepTerminated, "b"), step(1, StepStarted, ""), step(4, StepTerminated, "a")}, OutcomeDone, 5 * time.Second,
		},
		"the replacement did not come": {"drifted", []Step{step(1, StepStarted, ""), step(7, StepRolledBack, "")}, OutcomeRolledBack, 7 * time.Second},
		"no longer valid":              {"underutilized", []Step{step(15, StepRejected, "")}, OutcomeRejected, 15 * time.Second},
		"refused":                      {"underutilized", []Step{step(15, StepFailed, "")}, OutcomeFailed, 15 * time.Second},
	} {
		d := Decision{Kind: c.kind, At: began}
		if c.kind != KindLaunch {
			d.Removes = []NodeRecord{{NodeClaim: "a"}, {NodeClaim: "b"}}
		}
		d.setSteps(c.steps)
		ended := time.Time{}
		if c.after > 0 {
			ended = began.Add(c.after)
		}
		if d.Outcome != c.want || !d.Ended.Equal(ended) {
			t.Errorf("%s: %s at %v, want %s at %v", name, d.Outcome, d.Ended, c.want, ended)
		}
	}
}

// Conditions have times in full seconds, and a process that starts anew records them again.
func TestStepsOfASecondAreInTheirOrderAndOnce(t *testing.T) {
	at := time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC)
	d := Decision{Kind: KindLaunch}
	d.setSteps([]Step{
		{At: at, What: StepLaunched},
		{At: at, What: StepInitialized},
		{At: at.Add(300 * time.Millisecond), What: StepCreated},
		{At: at, What: StepRegistered},
		{At: at, What: StepLaunched},
		{At: at.Add(time.Second), What: StepTerminated},
		{At: at.Add(2 * time.Second), What: StepTerminated},
		{At: at.Add(time.Second), What: StepWaiting, Message: "x"},
		{At: at.Add(3 * time.Second), What: StepWaiting, Message: "x"},
	})
	var got []StepKind
	for _, s := range d.Steps {
		got = append(got, s.What)
	}
	want := []StepKind{StepCreated, StepLaunched, StepRegistered, StepInitialized, StepWaiting, StepTerminated}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
