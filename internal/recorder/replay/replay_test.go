package replay

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// replayedAs replays a recorded outcome as one that is decided now.
func replayedAs(t *testing.T, was, is recorder.OutcomeRecord) Result {
	t.Helper()
	data, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	run := func(*struct{}, *recorder.OutcomeRecord) (*recorder.OutcomeRecord, string) { return &is, "" }
	r, _ := call(recorder.CallRecord{Name: recorder.CallRefill, Out: data}, run, differentOutcomes)
	return r
}

func TestAnEmptyPlanIsNoDifference(t *testing.T) {
	first := func(claim string) recorder.OutcomeRecord {
		return recorder.OutcomeRecord{Command: &recorder.CommandRecord{
			Reason: "Drifted", Claims: []string{claim}, TerminateFirst: "at-limit", Plan: recorder.PlanRecord{Launches: []recorder.LaunchRecord{}},
		}}
	}
	if r := replayedAs(t, first("a"), first("a")); !r.Same {
		t.Errorf("%+v", r)
	}
	if r := replayedAs(t, first("a"), first("b")); r.Same {
		t.Error("another node is terminated first, and the decision is the same")
	}
}

// The file is the recording of the lab's scenario first-node, made by the first version that records: one pod gets a node, which is
// deleted with it. Every later version must read all of it, and decide the same.
func TestTheFirstRecordingIsReplayed(t *testing.T) {
	recording, err := recorder.Open("testdata/first-node.rec")
	if err != nil {
		t.Fatal(err)
	}
	defer recording.Close()
	var replayer Replayer
	var calls []string
	err = recording.Passes(recorder.Range{}, func(p *recorder.PassRecord) error {
		for _, c := range replayer.Run(p).Calls {
			calls = append(calls, c.Call)
			if !c.Same || c.Skipped != "" {
				t.Errorf("pass %s: %+v", p.ID, c)
			}
		}
		return nil
	})
	if err != nil || len(calls) != 8 || !slices.Contains(calls, recorder.CallSolve) || !slices.Contains(calls, recorder.CallEmpty) {
		t.Errorf("calls %q, %v", calls, err)
	}
	decisions, unreadable := recording.Decisions(recorder.Selection{})
	if unreadable != 0 || len(decisions) != 2 {
		t.Fatalf("%d decisions, %d frames cannot be read", len(decisions), unreadable)
	}
	var steps []recorder.StepKind
	for _, s := range decisions[0].Steps {
		steps = append(steps, s.What)
	}
	for _, want := range []recorder.StepKind{recorder.StepCreated, recorder.StepLaunched, recorder.StepRegistered, recorder.StepInitialized} {
		if !slices.Contains(steps, want) {
			t.Errorf("steps %q, want %q among them", steps, want)
		}
	}
}
