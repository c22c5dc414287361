package nodereport_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
)

// What is known without a plan is what the report has after it: nothing that was shown is taken back, but for objects that keep a node that
// has expired.
func TestWhatIsKnownWithoutAPlanStaysTrue(t *testing.T) {
	whole, computing := 0, 0
	for seed := range uint64(150) {
		w := randomWorld(seed)
		v := w.view(t)
		known, decisions := nodereport.KnownOf(v), nodereport.Decide(v)
		for _, node := range w.Nodes {
			early, err := known.OfNode(node.Name)
			if err != nil {
				t.Fatal(err)
			}
			late, err := decisions.OfNode(node.Name)
			if err != nil {
				t.Fatal(err)
			}
			if late.Computing {
				t.Errorf("seed %d: the report of %s is not whole", seed, node.Name)
			}
			checkReport(t, seed, early)
			if !early.Computing {
				whole++
				if diff := cmp.Diff(late, early); diff != "" {
					t.Errorf("seed %d: %s is known, and is reported otherwise:\n%s", seed, node.Name, diff)
				}
				continue
			}
			computing++
			if early.Verdict.State != "" || early.Removal != nil {
				t.Errorf("seed %d: %s has a verdict before the plan: %+v", seed, node.Name, early.Verdict)
			}
			for i := range early.Blockers {
				same := func(b nodereport.Blocker) bool { return cmp.Equal(b, early.Blockers[i]) }
				if late.Verdict.State == nodereport.Stays && !slices.ContainsFunc(late.Blockers, same) {
					t.Errorf("seed %d: %s loses what blocks it: %+v", seed, node.Name, early.Blockers[i])
				}
			}
			late.Computing, late.Verdict, late.Removal, late.Blockers = true, early.Verdict, nil, early.Blockers
			if late.Launch != nil {
				late.Launch.Alternatives, late.Launch.Excluded, late.Launch.Rules = early.Launch.Alternatives, early.Launch.Excluded, early.Launch.Rules
				late.Launch.Split = 0
			}
			if diff := cmp.Diff(late, early); diff != "" {
				t.Errorf("seed %d: %s is reported otherwise after the plan:\n%s", seed, node.Name, diff)
			}
		}
	}
	if whole < 20 || computing < 100 {
		t.Errorf("%d reports are whole without a plan, %d are not: too few to say anything", whole, computing)
	}
}
