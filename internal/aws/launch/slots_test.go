package launch

import (
	"fmt"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

func TestAssign(t *testing.T) {
	launchedAt := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	shown := func(ids ...string) (all []cloudprovider.Instance) {
		for _, id := range ids {
			all = append(all, cloudprovider.Instance{ID: id, State: cloudprovider.Running, LaunchedAt: launchedAt})
		}
		return all
	}
	leaving := func(all []cloudprovider.Instance, places ...int) []cloudprovider.Instance {
		for n := range all {
			all[n].UnusedSlots = places
		}
		return all
	}
	ended := func(all []cloudprovider.Instance, at int) []cloudprovider.Instance {
		all[at].State = cloudprovider.Terminated
		return all
	}
	for _, tt := range []struct {
		name  string
		place int
		found []cloudprovider.Instance
		// after the launch, and after the first lookup.
		after time.Duration
		want  string // "?" while unknown
	}{
		{"all three are there", 1, shown("i-a", "i-b", "i-c"), 0, "i-b"},
		{"one does not show yet", 0, shown("i-b", "i-c"), time.Second, "?"},
		{"one does not show, and never will", 0, shown("i-b", "i-c"), instance.VisibleWithin, "i-b"},
		{"there were two, and this is the third place", 2, shown("i-b", "i-c"), instance.VisibleWithin, ""},
		{"nothing shows yet", 0, nil, time.Second, "?"},
		{"nothing was launched", 0, nil, instance.VisibleWithin, ""},
		{"a place before was left out", 1, leaving(shown("i-a", "i-b"), 0), 0, "i-a"},
		{"a place after was left out", 1, leaving(shown("i-a", "i-b"), 2), 0, "i-b"},
		{"this place was left out", 2, leaving(shown("i-a", "i-b"), 2), 0, ""},
		{"another has terminated since, and counts", 2, ended(shown("i-a", "i-b", "i-c"), 0), 0, "i-c"},
		{"it has terminated since", 0, ended(shown("i-a", "i-b", "i-c"), 0), 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i, assigned, final := assign(
				cloudprovider.BatchSlot{Launch: "x", Index: tt.place, Of: 3},
				tt.found,
				launchedAt,
				launchedAt.Add(tt.after),
			)
			got := i.ID
			if !final {
				got = "?"
			}
			if got != tt.want || assigned != (tt.want != "" && tt.want != "?") {
				t.Errorf("%q, %v; want %q", got, assigned, tt.want)
			}
		})
	}
}

// In whatever order EC2 lists the instances of a batch, no instance is assigned to two slots.
func TestAssignedInstancesAreDisjoint(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for of := 2; of < 8; of++ {
		for mask := range 1 << of {
			var leftOut []int
			for place := range of {
				if mask>>place&1 == 1 {
					leftOut = append(leftOut, place)
				}
			}
			var all []cloudprovider.Instance
			for n := range of - len(leftOut) {
				all = append(
					all,
					cloudprovider.Instance{ID: fmt.Sprintf("i-%d", n), State: cloudprovider.Running, LaunchedAt: at, UnusedSlots: leftOut},
				)
			}
			seen := map[string]bool{}
			for place := range of {
				if i, assigned, _ := assign(cloudprovider.BatchSlot{Launch: "x", Index: place, Of: of}, all, at, at.Add(time.Hour)); assigned {
					if seen[i.ID] {
						t.Fatalf("of %d, left out %v: %s is assigned twice", of, leftOut, i.ID)
					}
					seen[i.ID] = true
				}
			}
			if len(seen) != len(all) {
				t.Fatalf("of %d, left out %v: %d of %d are assigned", of, leftOut, len(seen), len(all))
			}
		}
	}
}
