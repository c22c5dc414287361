package recorder_test

import (
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/replay"
)

// disruptionPass decides a pass over the nodes, as the loop does, and records it.
func disruptionPass(w *recorder.TestWorld, r *recorder.Recorder, remembers pass.Memory, at time.Duration) (pass.Decisions, pass.Memory) {
	objects, facts := w.State()
	facts.Now = facts.Now.Add(at)
	s := cluster.BuildSnapshot(objects, facts)
	r.Saw(s, &objects, &facts)
	p := r.Begin(recorder.Disruption, s, s)
	defer p.Flush()
	in := pass.Input{
		Snapshot: s, Work: pass.Due | pass.Empty | pass.Drift | pass.Savings, Memory: remembers,
		Settings: pass.Settings{
			Consolidation: consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps}, Validate: true, ValidationDelay: 15 * time.Second,
			MaxDrift: 1, MaxDriftRejections: pass.MaxSimulations,
		},
	}
	decided, next := pass.Decide(in)
	p.Call(recorder.CallPass, recorder.RecordInput(&in, &decided), recorder.RecordDecisions(&decided))
	return decided, next
}

// replayAll replays a recording, after a change of each pass.
func replayAll(t *testing.T, path string, change func(*recorder.PassRecord)) (passes []replay.Pass) {
	t.Helper()
	recording, err := recorder.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer recording.Close()
	err = recording.Passes(recorder.Range{}, func(p *recorder.PassRecord) error {
		change(p)
		passes = append(passes, replay.Run(p))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return passes
}

func TestDisruptionIsReplayed(t *testing.T) {
	w := recorder.NewTestWorld(2, 30, 12)
	path := t.TempDir() + "/decisions.rec"
	r, err := recorder.New(recorder.Config{Path: path, Size: 16 << 20, Log: recorder.Quiet(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	found, remembers := disruptionPass(w, r, pass.Memory{}, 0)
	if len(found.Propose) == 0 {
		t.Fatal("the world has nothing to consolidate")
	}
	due, _ := disruptionPass(w, r, remembers, 15*time.Second)
	if len(due.Start) == 0 {
		t.Fatalf("no proposal is valid: %+v", due.Dropped)
	}
	r.Close()
	for _, p := range replayAll(t, path, func(*recorder.PassRecord) {}) {
		if !p.Same() || len(p.Calls) == 0 {
			t.Errorf("%+v", p)
		}
		for _, c := range p.Calls {
			if c.Skipped != "" {
				t.Errorf("%s is skipped: %s", c.Call, c.Skipped)
			}
		}
	}
	different := replayAll(t, path, func(p *recorder.PassRecord) { p.Objects.NodeClaims = p.Objects.NodeClaims[:1] })
	if different[0].Same() {
		t.Error("a pass that saw another cluster decides the same")
	}
}
