package replay

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// replayedAs replays a result as one that is decided now.
func replayedAs(t *testing.T, was, is recorder.PassResult) Result {
	t.Helper()
	data, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	run := func(*struct{}, *recorder.PassResult) (*recorder.PassResult, string) { return &is, "" }
	r, _ := call(recorder.CallRecord{Name: recorder.CallPass, Out: data}, run, differentPasses)
	return r
}

func TestWhatCountsAsADifference(t *testing.T) {
	command := func(claim string) recorder.CommandRecord {
		return recorder.CommandRecord{
			ID: "1", Reason: "Drifted", Claims: []string{claim}, TerminateFirst: "at-limit", Plan: recorder.PlanRecord{Launches: []recorder.LaunchRecord{}},
		}
	}
	a, b := []recorder.CommandRecord{command("a")}, []recorder.CommandRecord{command("b")}
	other := command("a")
	other.ID = "2"
	for name, tt := range map[string]struct {
		was, is recorder.PassResult
		want    []Change
	}{
		"equal": {recorder.PassResult{Start: a}, recorder.PassResult{Start: a}, nil},
		"an ID, and why one stays": {recorder.PassResult{Start: a}, recorder.PassResult{
			Start: []recorder.CommandRecord{other}, Stays: []recorder.StayRecord{{Claim: "c", Why: "new words"}},
		}, nil},
		"another node goes": {recorder.PassResult{Start: a}, recorder.PassResult{Start: b}, []Change{
			{Was: "first terminate (drifted) a, saves $0.0000/h", Is: "first terminate (drifted) b, saves $0.0000/h"},
		}},
		"proposed, and not started": {recorder.PassResult{Start: a}, recorder.PassResult{Propose: a}, []Change{
			{Was: "first terminate (drifted) a, saves $0.0000/h"}, {Is: "propose to first terminate (drifted) a, saves $0.0000/h"},
		}},
		"a proposal stays valid": {
			recorder.PassResult{Dropped: []recorder.DroppedRecord{{Claims: []string{"a"}}}},
			recorder.PassResult{},
			[]Change{{Was: "drop the proposal for a"}},
		},
		"a limit is gone": {
			recorder.PassResult{Withheld: []recorder.DroppedRecord{{Claims: []string{"a"}}}},
			recorder.PassResult{},
			[]Change{{Was: "hold back the command for a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := replayedAs(t, tt.was, tt.is)
			if !slices.Equal(r.Changes, tt.want) || r.Same != (len(tt.want) == 0) {
				t.Errorf("same %v, changes %+v, want %+v", r.Same, r.Changes, tt.want)
			}
		})
	}
}

// The file is the recording of the lab's scenario first-node, made by the first version that records: one pod gets a node, which is
// deleted with it. Every later version must read all of it, and plan the same. That version recorded several calls for what a pass decides
// about nodes; these are skipped.
func TestTheFirstRecordingIsReplayed(t *testing.T) {
	recording, err := recorder.Open("testdata/first-node.rec")
	if err != nil {
		t.Fatal(err)
	}
	defer recording.Close()
	var calls []string
	err = recording.Passes(recorder.Range{}, func(p *recorder.PassRecord) error {
		for _, c := range Run(p).Calls {
			calls = append(calls, c.Call)
			ofNodes := c.Call != recorder.CallSolve && c.Call != recorder.CallBuffers
			if !c.Same || (c.Skipped != "") != ofNodes {
				t.Errorf("pass %s: %+v", p.ID, c)
			}
		}
		return nil
	})
	if err != nil || len(calls) != 10 || !slices.Contains(calls, recorder.CallSolve) {
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
