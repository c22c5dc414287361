package validate_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// TestReservationsHold changes a world, or the plan for it, so that a reservation of one is counted on twice.
func TestReservationsHold(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*snapshot.Snapshot, *schedule.Plan)
		want string // empty = nothing is wrong
	}{
		{"as it was planned", func(*snapshot.Snapshot, *schedule.Plan) {}, ""},
		{"there is less than was thought", func(s *snapshot.Snapshot, _ *schedule.Plan) {
			offerings := s.Pools[0].InstanceTypes[0].Offerings
			offerings[len(offerings)-1].Remaining = 0
		}, "reservation cr-1 has 0 instances left, 1 launches may take one"},
		{"a claim on its way has it", func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
				n.Launched, n.Registered, n.Initialized = false, false, false
				n.Requirements = []karpv1.Requirement{{Key: ReservationID, Operator: corev1.NodeSelectorOpIn, Values: []string{"cr-1"}}}
			})}
		}, "reservation cr-1 has 0 instances left, 1 launches may take one"},
		{"a launch may use it, too", func(_ *snapshot.Snapshot, p *schedule.Plan) {
			for i := range p.Launches {
				p.Launches[i].Requirements = p.Launches[i].Requirements.Without(Capacity, ReservationID)
			}
		}, "reservation cr-1 has 1 instances left, 2 launches may take one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", Types())}, Pods(2, "a", Requests("cpu", "1"))...)
			s.Pools[0].InstanceTypes = s.Pools[0].InstanceTypes[:1]
			s.Pools[0].InstanceTypes[0] = WithReservation(s.Pools[0].InstanceTypes[0], "cr-1", 1)
			p := schedule.Solve(s, schedule.Budget{})
			c.edit(s, &p)
			err := validate.Plan(s, p)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestDevicesAreNotPlannedFor places pods that turn out to have resource claims.
func TestDevicesAreNotPlannedFor(t *testing.T) {
	for name, s := range map[string]*snapshot.Snapshot{
		"on node n1":  {Nodes: []snapshot.Node{Node("n1", "general")}},
		"on launch 0": {},
	} {
		pod := Pod("a")
		world := World([]snapshot.Pool{Pool("general", Types())}, pod)
		world.Nodes = s.Nodes
		p := schedule.Solve(world, schedule.Budget{})
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		if err := validate.Plan(world, p); err == nil || !strings.Contains(err.Error(), "has resource claims, and is placed "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
