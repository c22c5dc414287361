package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestUnusablePoolsAreReported(t *testing.T) {
	for _, c := range []struct {
		name   string
		pool   func(*np)
		policy string
		want   schedule.Code
	}{
		{"one that can", func(*np) {}, "Strict", ""},
		{"no type is left", Require(Arch, in, "s390x"), "Strict", schedule.Requirement},
		{"contradictory zones", func(p *np) { Require(Zone, in, "z1")(p); Require(Zone, in, "z2")(p) }, "Strict", schedule.Requirement},
		{
			"too few types for minValues", func(p *np) { Require(corev1.LabelInstanceTypeStable, exists)(p); MinValues(5)(p) }, "Strict",
			schedule.MinValues,
		},
		{"which may be lowered", func(p *np) { Require(corev1.LabelInstanceTypeStable, exists)(p); MinValues(5)(p) }, "BestEffort", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World(pool(c.pool), Pod("a"))
			s.Settings.MinValuesPolicy = snapshot.MinValuesPolicy(c.policy)
			got := schedule.Solve(s, schedule.Budget{}).UnusablePools
			if (c.want == "") != (len(got) == 0) || c.want != "" && (got[0].Code != c.want || got[0].NodePool != "general") {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
}
