package propertytest

import "testing"

// wideWorlds sets how many worlds TestWideWorlds generates. 1,500 take four CPU seconds.
const wideWorlds = 1_500

// TestWideWorlds finds no violation in worlds with rarer things. DOVETAIL_WORLDS=first,count generates others.
func TestWideWorlds(t *testing.T) {
	first, count := worldRange(t, wideWorlds)
	failed := 0
	for seed := first; seed < first+count && failed < 3; seed++ {
		d := seeded(3_000_000_000 + seed)
		if _, _, err := examineWorld(d.wideWorld(), d.budget()); err != nil {
			failed++
			t.Errorf("world %d: %v", seed, err)
		}
	}
}
