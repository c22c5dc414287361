package recorder

import (
	"fmt"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A recording may have 50,000 decisions: anyone who requests some, or for their lines, must not hold all of them.
func TestDecisionsAreSelected(t *testing.T) {
	cfg := testConfig(t, MinSize)
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 10, 0)
	began := w.facts.Now
	for n := range 3 {
		objects, facts := w.objects, w.facts
		facts.Now = began.Add(time.Duration(n) * time.Minute)
		s := &snapshot.Snapshot{Now: facts.Now}
		r.Saw(s, &objects, &facts)
		p := r.Begin(Provisioning, s, s)
		id := fmt.Sprintf("d-%d", n)
		p.Decide(Decision{
			ID: id, Kind: KindLaunch, Alternatives: []Alternative{{What: "a"}, {What: "b"}}, PriceTable: []PriceRow{{InstanceType: "m"}},
			Launches: []LaunchRecord{{InstanceTypes: []string{"m", "n"}}},
		})
		p.Call(CallSolve, SolveInput{}, PlanRecord{})
		p.Flush()
		r.Step(Step{Decision: id, At: facts.Now.Truncate(time.Second), What: StepCreated})
		r.settle()
	}
	r.Close()
	rec, err := Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	for _, c := range []struct {
		in   Selection
		want string
	}{
		{Selection{}, "d-0 d-1 d-2 "},
		{Selection{From: began.Add(time.Minute)}, "d-1 d-2 "},
		{Selection{ID: "d-1"}, "d-1 "},
		{Selection{From: began.Add(2 * time.Minute), ID: "d-1"}, ""},
		{Selection{Brief: true}, "d-0 d-1 d-2 "},
	} {
		found, unreadable := rec.Decisions(c.in)
		if unreadable != 0 {
			t.Errorf("%+v: %d frames cannot be read", c.in, unreadable)
		}
		got := ""
		for _, d := range found {
			got += d.ID + " "
			if len(d.Steps) != 1 {
				t.Errorf("%+v: %s has the steps %v", c.in, d.ID, d.Steps)
			}
			long := len(d.Alternatives) == 2 && len(d.PriceTable) == 1 && len(d.Launches[0].InstanceTypes) == 2
			short := len(d.Alternatives) == 0 && d.MoreAlternatives == 2 && len(d.PriceTable) == 0 && len(d.Launches[0].InstanceTypes) == 1
			if c.in.Brief && !short || !c.in.Brief && !long {
				t.Errorf("%+v: %+v", c.in, d)
			}
		}
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.in, got, c.want)
		}
	}
}
