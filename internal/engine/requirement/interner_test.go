package requirement_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

func TestEqualSetsHaveEqualIDs(t *testing.T) {
	var n requirement.Interner
	zones := func(values ...string) requirement.Set { return requirement.NewSet(requirement.In("zone", values...)) }
	a, b, again := n.Intern(zones("a", "b")), n.Intern(zones("a")), n.Intern(zones("b", "a"))
	if a.ID != 0 || b.ID != 1 {
		t.Errorf("IDs %d and %d, want 0 and 1", a.ID, b.ID)
	}
	if again.ID != a.ID || !again.Set.Equal(a.Set) {
		t.Errorf("an equal set has ID %d, want %d", again.ID, a.ID)
	}
}

func TestRequiresAbsent(t *testing.T) {
	var n requirement.Interner
	if n.RequiresAbsent("gpu") {
		t.Error("no set requires anything yet")
	}
	n.Intern(requirement.NewSet(requirement.DoesNotExist("gpu")))
	n.NoteAbsent(requirement.NewSet(requirement.DoesNotExist("fpga")))
	n.Intern(requirement.NewSet(requirement.In("arch", "arm64")))
	for key, want := range map[string]bool{"gpu": true, "fpga": true, "arch": false} {
		if n.RequiresAbsent(key) != want {
			t.Errorf("RequiresAbsent(%q) = %t, want %t", key, !want, want)
		}
	}
}
