package schedule_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// TestKeptPreferencesCostNoMoreThanTheShare checks what plans report about preferences.
func TestKeptPreferencesCostNoMoreThanTheShare(t *testing.T) {
	paid, free := 0, 0
	for seed := range uint64(worlds / 2) {
		s := randomWorld(seed)
		share := []float64{0, 0.02, 0.1, 0.3}[seed%4]
		s.Settings.PreferencePolicy, s.Settings.PreferenceCost = snapshot.PreferencesPriced, share
		p := schedule.Solve(s, schedule.Budget{})
		total, own := 0.0, 0.0
		for i := range p.Preferences {
			c := &p.Preferences[i]
			if c.KeptCost < 0 || c.KeptCost > share*c.OwnPrice*(1+1e-6) {
				t.Errorf("world %d: %s of %s costs $%v/h for %d pods, which cost $%v/h themselves",
					seed, c.Text, c.Pod.Name, c.KeptCost, c.Kept, c.OwnPrice)
			}
			if c.DroppedCost < 0 || c.Dropped == 0 && c.DroppedCost != 0 {
				t.Errorf("world %d: %s of %s would cost $%v/h for %d pods", seed, c.Text, c.Pod.Name, c.DroppedCost, c.Dropped)
			}
			total, own = total+c.KeptCost, own+c.OwnPrice
			if c.KeptCost > 0 {
				paid++
			} else if c.Kept > 0 {
				free++
			}
		}
		if total > p.Stats.PreferenceCost*(1+1e-6) || p.Stats.PreferenceCost > share*own*(1+1e-6) {
			t.Errorf("world %d: preferences cost $%v/h, together $%v/h, the pods $%v/h", seed, total, p.Stats.PreferenceCost, own)
		}
	}
	if paid < 3 || free < 100 {
		t.Errorf("only %d preferences cost something, and %d nothing", paid, free)
	}
}

func TestPricedPlanDoesNotDependOnSnapshotOrder(t *testing.T) {
	for seed := range uint64(worlds / 4) {
		s := randomWorld(seed)
		s.Settings.PreferencePolicy, s.Settings.PreferenceCost = snapshot.PreferencesPriced, 0.1
		want := schedule.Solve(s, schedule.Budget{})
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(s.Pods), func(i, j int) { s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i] })
		r.Shuffle(len(s.Nodes), func(i, j int) { s.Nodes[i], s.Nodes[j] = s.Nodes[j], s.Nodes[i] })
		got := schedule.Solve(s, schedule.Budget{})
		if !reflect.DeepEqual(fingerprint(got), fingerprint(want)) {
			t.Fatalf("world %d: the plan depends on the order of the snapshot", seed)
		}
		for i := range want.Preferences {
			a, b := want.Preferences[i], got.Preferences[i]
			if a.Text != b.Text || a.Kept != b.Kept || a.Dropped != b.Dropped || math.Abs(a.KeptCost-b.KeptCost) > 0 {
				t.Fatalf("world %d: %+v becomes %+v", seed, a, b)
			}
		}
	}
}

// TestPricedFirstFitPlansAreValid plans as consolidation does, without a linear program.
func TestPricedFirstFitPlansAreValid(t *testing.T) {
	for seed := range uint64(worlds / 2) {
		s := randomWorld(seed)
		s.Settings.PreferencePolicy, s.Settings.PreferenceCost = snapshot.PreferencesPriced, 0.1
		p := schedule.Solve(s, schedule.Budget{FirstFitOnly: true})
		if err := validate.Plan(s, p); err != nil {
			t.Errorf("world %d: %v", seed, err)
		}
	}
}

// TestSpentBudgetDropsPreferences plans with a budget that stops the lookahead at once.
func TestSpentBudgetDropsPreferences(t *testing.T) {
	for seed := range uint64(worlds / 4) {
		s := randomWorld(seed)
		s.Settings.PreferencePolicy, s.Settings.PreferenceCost = snapshot.PreferencesPriced, 0.1
		for _, steps := range []int{1, 200, 2000} {
			p := schedule.Solve(s, schedule.Budget{LookaheadSteps: steps})
			if err := validate.Plan(s, p); err != nil {
				t.Errorf("world %d after %d steps: %v", seed, steps, err)
			}
		}
	}
}
