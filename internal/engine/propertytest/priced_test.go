package propertytest

import (
	"fmt"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// pricedWorlds sets how many worlds a test run plans under the policy Priced, at three costs each.
const pricedWorlds = 200

// checkPriced reports what is wrong with the plan of a world under the policy Priced: it must be valid, leave no more pods
// than under Respect, and cost no more if it leaves the same ones.
func checkPriced(s *snapshot.Snapshot, share float64, respecting *schedule.Plan) (schedule.Plan, error) {
	own := *s
	own.Settings.PreferencePolicy, own.Settings.PreferenceCost = snapshot.PreferencesPriced, share
	p, err := violations(&own, schedule.Budget{})
	switch {
	case err != nil:
		return p, err
	case len(p.Rejected) > len(respecting.Rejected):
		return p, fmt.Errorf("%d pods are left, %d under Respect", len(p.Rejected), len(respecting.Rejected))
	}
	theirs := rejectedPods(respecting)
	for pod := range rejectedPods(&p) {
		if !theirs[pod] {
			return p, nil
		}
	}
	if len(p.Rejected) == len(theirs) && cost(&p) > cost(respecting)*(1+1e-6) {
		return p, fmt.Errorf("the plan costs $%.4f/h, $%.4f/h under Respect", cost(&p), cost(respecting))
	}
	return p, nil
}

// TestPricedPreferences plans worlds under the policy Priced. DOVETAIL_WORLDS=first,count generates others.
func TestPricedPreferences(t *testing.T) {
	first, count := worldRange(t, pricedWorlds)
	cheaper, kept, dropped := 0, 0, 0
	for k := first; k < first+count; k++ {
		s := seeded(k + 1<<41).crowded()
		s.Settings.PreferencePolicy = snapshot.PreferencesRespect
		respecting := schedule.Solve(s, schedule.Budget{})
		for _, share := range []float64{0, 0.1, 0.5} {
			p, err := checkPriced(s, share, &respecting)
			cheaper += btoi(cost(&p) < cost(&respecting)-1e-9)
			for i := range p.Preferences {
				kept, dropped = kept+p.Preferences[i].Kept, dropped+p.Preferences[i].Dropped
			}
			if err == nil {
				continue
			}
			small := Shrink(s, func(s *snapshot.Snapshot) bool {
				respecting := schedule.Solve(s, schedule.Budget{})
				_, err := checkPriced(s, share, &respecting)
				return err != nil
			})
			respecting = schedule.Solve(small, schedule.Budget{})
			p, smallErr := checkPriced(small, share, &respecting)
			t.Fatalf("world %d at cost %v: %v\nshrunk: %v\n%s\nplan:\n%s\nunder Respect:\n%s",
				k, share, err, smallErr, Show(small), Describe(p), Describe(respecting))
		}
	}
	t.Logf("%d plans are cheaper than under Respect; pods kept %d preferences and dropped %d", cheaper, kept, dropped)
	if cheaper < int(count)/10 || kept < int(count) || dropped < int(count) {
		t.Errorf("too little happened in %d worlds", count)
	}
}
