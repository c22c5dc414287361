package plan_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

func launch(reqs ...requirement.Requirement) *plan.Launch {
	pool := Pool("general", nil, TemplateLabel("team", "web"))
	return &plan.Launch{
		Pool: pool.NodePool, Requirements: requirement.NewSet(reqs...),
		InstanceTypes: []*catalog.InstanceType{Type("small", 1, "cpu", "2"), Type("large", 2, "cpu", "4")},
	}
}

func TestClaimsNameTypesCheapestFirst(t *testing.T) {
	l := launch(requirement.In(Capacity, "on-demand", "spot", "reserved").WithMinValues(2), requirement.In(Zone, "z1"))
	got := map[string][]string{}
	for _, r := range l.ClaimRequirements() {
		got[r.Key] = r.Values
	}
	if !slices.Equal(got[corev1.LabelInstanceTypeStable], []string{"small", "large"}) ||
		!slices.Equal(got[Capacity], []string{"on-demand", "spot"}) || !slices.Equal(got[Zone], []string{"z1"}) {
		t.Errorf("%v", got)
	}
	if want := []string{"on-demand", "spot"}; !slices.Equal(l.CapacityTypes(), want) {
		t.Errorf("capacity types %v, want %v", l.CapacityTypes(), want)
	}
}

func TestClaimLabels(t *testing.T) {
	labels := requirement.CoreLabels()
	got := launch(requirement.In("disk", "fast"), requirement.In(Zone, "z1")).ClaimLabels(labels)
	if got[karpv1.LabelNodePool] != "general" || got["team"] != "web" || got["disk"] != "fast" || got[Zone] != "" {
		t.Errorf("%v", got)
	}
}

func TestReservations(t *testing.T) {
	l := launch(requirement.In(ReservationID, "cr-1", "cr-2"))
	if got := l.Reservations(ReservationID); !slices.Equal(got, []string{"cr-1", "cr-2"}) {
		t.Errorf("%v", got)
	}
	if got := launch().Reservations(ReservationID); got != nil {
		t.Errorf("a launch outside of reservations takes %v", got)
	}
}

func TestWhatARejectionMeans(t *testing.T) {
	for _, c := range []struct {
		why               rejection.Reason
		deferred, ignored bool
	}{
		{rejection.Reason{Code: rejection.Reserved}, true, false},
		{rejection.Reason{Code: rejection.InvalidPod}, false, true},
		{rejection.Reason{Code: rejection.Volume, NodePool: "general"}, false, false},
	} {
		r := plan.Rejection{Reasons: []rejection.Reason{c.why}}
		if r.Deferred() != c.deferred || r.Ignored() != c.ignored {
			t.Errorf("%+v: deferred %v, ignored %v", c.why, r.Deferred(), r.Ignored())
		}
	}
}

func TestPodsOfAPlan(t *testing.T) {
	a, b, c, d := Pod("a"), Pod("b"), Pod("c"), Pod("d")
	p := plan.Plan{
		Placements: []plan.Placement{{Pods: []*corev1.Pod{a}}}, Launches: []plan.Launch{{Pods: []*corev1.Pod{b}}},
		Rejected: []plan.Rejection{{Pod: c}},
	}
	if got := p.Pods(); !got[a] || !got[b] || !got[c] || got[d] {
		t.Errorf("%v", got)
	}
}
