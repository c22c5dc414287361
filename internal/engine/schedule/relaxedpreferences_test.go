package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// An alternative of required node affinity that nothing offers is no preference that is given up.
func TestOnlyPreferencesCountAsRelaxed(t *testing.T) {
	pools := []snapshot.Pool{Pool("general", Types())}
	nowhere, somewhere := Expr(Zone, in, "nowhere"), Expr(Zone, in, "z1")
	alternatives := func(p *corev1.Pod) {
		Needs(nowhere)(p)
		Needs(somewhere)(p)
	}
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want int
	}{
		{"the second alternative", Pod("p", Requests("cpu", "1"), alternatives), 0},
		{"a preference", Pod("p", Requests("cpu", "1"), Prefers(1, nowhere)), 1},
		{"both", Pod("p", Requests("cpu", "1"), alternatives, Prefers(1, nowhere), Prefers(2, nowhere)), 2},
	} {
		p := schedule.Solve(World(pools, c.pod), schedule.Budget{})
		if len(p.Rejected) > 0 || p.Stats.RelaxedPreferences != c.want {
			t.Errorf("%s: %d preferences relaxed, want %d; %d pods rejected", c.name, p.Stats.RelaxedPreferences, c.want, len(p.Rejected))
		}
	}
}
