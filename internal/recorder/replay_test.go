package recorder_test

import (
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/replay"
)

// disruptionPass finds nodes to consolidate, or validates what an earlier pass found, as the loop does, and records it.
func disruptionPass(w *recorder.TestWorld, r *recorder.Recorder, earlier []disrupt.Command) []disrupt.Command {
	objects, facts := w.State()
	s := cluster.BuildSnapshot(objects, facts)
	r.Saw(s, &objects, &facts)
	p := r.Begin(recorder.Disruption, s, s)
	defer p.Flush()
	view := disrupt.NewView(s)
	problem := consolidate.Compile(s)
	for i := range earlier {
		c := earlier[i]
		err := consolidate.Recheck(problem, s, &c, consolidate.Settings{})
		p.Call(recorder.CallRecheck, recorder.RecheckInput{ID: c.ID, Claims: recorder.ClaimNames(c.Candidates)}, recorder.RecordError(err))
	}
	if len(earlier) > 0 {
		return nil
	}
	budgets := view.RemainingBudgets(disrupt.Allowances(s, "Underutilized"))
	costs, _ := (&disrupt.PoolCosts{}).Update(view)
	found := consolidate.Find(consolidate.Input{
		Problem: problem, Snapshot: s, Candidates: view.Candidates, Budgets: budgets.Allowances(),
		Totals: consolidate.PoolTotals(s, view.Candidates, costs),
	}, consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps})
	for i := range found.Commands {
		found.Commands[i].ID = string(rune('A' + i))
		p.Decide(recorder.CommandDecision(&found.Commands[i], recorder.Basis{Snapshot: s, Allowances: budgets.Allowances(), Found: &found}))
	}
	p.Call(recorder.CallFind, recorder.FindInput{Costs: recorder.Costs(costs), MaxSteps: consolidate.DefaultMaxSteps}, recorder.RecordFind(&found))
	return found.Commands
}

// replayAll replays a recording, after a change of each pass.
func replayAll(t *testing.T, path string, change func(*recorder.PassRecord)) (passes []replay.Pass) {
	t.Helper()
	recording, err := recorder.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer recording.Close()
	var replayer replay.Replayer
	err = recording.Passes(recorder.Range{}, func(p *recorder.PassRecord) error {
		change(p)
		passes = append(passes, replayer.Run(p))
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
	commands := disruptionPass(w, r, nil)
	if len(commands) == 0 {
		t.Fatal("the world has nothing to consolidate")
	}
	disruptionPass(w, r, commands)
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
