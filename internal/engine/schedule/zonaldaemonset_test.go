package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A DaemonSet that is bound to a zone takes room on new nodes in that zone only.
func TestDaemonSetOfOneZoneTakesRoomOnlyThere(t *testing.T) {
	world := func(tied func(*corev1.Pod), pods ...*corev1.Pod) *snapshot.Snapshot {
		s := World([]snapshot.Pool{Pool("general", Types())}, pods...)
		s.DaemonSets = []snapshot.DaemonSet{{Namespace: "kube-system", Name: "agent", Pod: Pod("agent", tied, Requests("cpu", "900m"))}}
		return s
	}
	largest := func(s *snapshot.Snapshot) (cores int64, zones []string) {
		t.Helper()
		p := solveValid(t, s)
		if len(p.Launches) != 1 || len(p.Rejected) > 0 {
			t.Fatalf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
		}
		cpu := p.Launches[0].InstanceTypes[0].Capacity[corev1.ResourceCPU]
		for _, zone := range Zones() {
			if p.Launches[0].Requirements.Get(Zone).Has(zone) {
				zones = append(zones, zone)
			}
		}
		return cpu.Value(), zones
	}
	for name, tied := range map[string]func(*corev1.Pod){
		"by nodeSelector": Selects(Zone, "z1"),
		"by affinity":     Needs(Expr(Zone, in, "z1")),
	} {
		t.Run(name, func(t *testing.T) {
			plain, _ := largest(World([]snapshot.Pool{Pool("general", Types())}, Pod("a", Requests("cpu", "900m"))))
			elsewhere, _ := largest(world(tied, Pod("a", Requests("cpu", "900m"), Selects(Zone, "z2"))))
			there, _ := largest(world(tied, Pod("a", Requests("cpu", "900m"), Selects(Zone, "z1"))))
			anywhere, zones := largest(world(tied, Pod("a", Requests("cpu", "900m"))))
			if elsewhere != plain || there <= plain {
				t.Errorf("a pod's node has %d cores without the DaemonSet, %d in another zone, %d in its zone", plain, elsewhere, there)
			}
			if anywhere != plain || len(zones) == 3 {
				t.Errorf("a pod that may go anywhere gets %d cores instead of %d, in any of %v", anywhere, plain, zones)
			}
		})
	}
	many := Pods(200, "web", Requests("cpu", "300m"))
	withDaemons, none := schedule.Solve(
		world(Selects(Zone, "z1"), many...),
		schedule.Budget{},
	), schedule.Solve(
		world(Selects(Zone, "elsewhere"), many...),
		schedule.Budget{},
	)
	if withDaemons.Stats.HourlyCost > none.Stats.HourlyCost*1.01 {
		t.Errorf(
			"a DaemonSet of one zone makes nodes cost %.2f $/h instead of %.2f, though other zones are as cheap",
			withDaemons.Stats.HourlyCost,
			none.Stats.HourlyCost,
		)
	}
}
