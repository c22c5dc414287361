package replay

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// The file is the recording of the lab's scenario consolidate with 20 nodes: its passes find, validate and reject commands. Every
// later version must read all of it, and decide the same.
func TestAConsolidationIsReplayed(t *testing.T) {
	recording, err := recorder.Open("testdata/consolidate.rec")
	if err != nil {
		t.Fatal(err)
	}
	defer recording.Close()
	calls := map[string]int{}
	err = recording.Passes(recorder.Range{}, func(p *recorder.PassRecord) error {
		for _, c := range Run(p).Calls {
			calls[c.Call]++
			if !c.Same || c.Skipped != "" {
				t.Errorf("pass %s: %+v", p.ID, c)
			}
		}
		return nil
	})
	total := 0
	for _, n := range calls {
		total += n
	}
	if err != nil || total != 60 {
		t.Errorf("%d calls replayed, want 60: %v, %v", total, calls, err)
	}
	decisions, _ := recording.Decisions(recorder.Selection{})
	removed := 0
	for _, d := range decisions {
		if d.HourlySavings > 0 {
			removed++
		}
	}
	if removed < 15 {
		t.Errorf("%d of %d decisions save something, want one for each of the nodes that went", removed, len(decisions))
	}
}
