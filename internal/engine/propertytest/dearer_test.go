package propertytest

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// plainWorlds sets how many worlds a test run compares with the plain planner, which takes a fifth of a second each.
const plainWorlds = 50

// crowded is a world with more pods, at most some 60. Preferences are ignored: the plain planner may break a soft spread
// later that it keeps now, and the search does not.
func (d random) crowded() *snapshot.Snapshot {
	s := d.world()
	s.Settings.PreferencePolicy = snapshot.PreferencesIgnore
	for i := range d.n(7) {
		s.Pods = append(s.Pods, d.family(fmt.Sprintf("e%d", i), 12)...)
	}
	return s
}

// comparison is a plan of ours beside that of the plain planner.
type comparison struct {
	ours, plain schedule.Plan
	relaxed     int // preferences that the plain plan drops
	comparable  bool
}

func cost(p *schedule.Plan) float64 { return p.Stats.HourlyCost + p.Stats.NodeCost }

// rejectedPods are the pods that a plan does not place.
func rejectedPods(p *schedule.Plan) map[*corev1.Pod]bool {
	out := map[*corev1.Pod]bool{}
	for _, r := range p.Rejected {
		out[r.Pod] = true
	}
	return out
}

// compare plans a world twice. The plans are comparable if the plain one places all pods that ours places, and drops no
// more preferences.
func compare(s *snapshot.Snapshot, order claimOrder) comparison {
	c := comparison{ours: schedule.Solve(s, schedule.Budget{})}
	if len(c.ours.Launches) == 0 {
		return c
	}
	var ok bool
	if c.plain, c.relaxed, ok = planPlainly(s, order); !ok {
		return c
	}
	mine := rejectedPods(&c.ours)
	for pod := range rejectedPods(&c.plain) {
		if !mine[pod] {
			return c
		}
	}
	c.comparable = c.relaxed <= c.ours.Stats.RelaxedPreferences
	return c
}

func (c comparison) dearer() bool { return c.comparable && cost(&c.ours) > cost(&c.plain)+1e-9 }

// TestNeverDearerThanAPlainPlan compares plans with those of a planner that does not search. DOVETAIL_WORLDS=first,count
// generates others.
func TestNeverDearerThanAPlainPlan(t *testing.T) {
	first, count := worldRange(t, plainWorlds)
	compared, cheaper := 0, 0
	for k := first; k < first+count; k++ {
		s := seeded(k + 1<<40).crowded()
		for _, order := range []claimOrder{oldestFirst, fewestPodsFirst} {
			c := compare(s, order)
			compared += btoi(c.comparable)
			cheaper += btoi(c.comparable && cost(&c.ours) < cost(&c.plain)-1e-9)
			if !c.dearer() {
				continue
			}
			small := Shrink(s, func(t *snapshot.Snapshot) bool { return compare(t, order).dearer() })
			c = compare(small, order)
			t.Fatalf("world %d: $%.4f/h, by a plain planner $%.4f/h\n%s\nours:\n%s\nplain:\n%s",
				k, cost(&c.ours), cost(&c.plain), Show(small), Describe(c.ours), Describe(c.plain))
		}
	}
	t.Logf("%d plans compared, %d cheaper", compared, cheaper)
	if compared < int(count)/2 {
		t.Errorf("too few plans are comparable: %d in %d worlds", compared, count)
	}
}
