package dynamicresources_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// TestMistakes breaks plans that are right.
func TestMistakes(t *testing.T) {
	two, twoClaims := batch(2, Requests("cpu", "1"))
	gpu := func(pods ...*corev1.Pod) *snapshot.Snapshot {
		return devices(World(pool(with(Type("gpu2", 1, "cpu", "8"), 2)), pods...), twoClaims)
	}
	tests := []struct {
		name  string
		world *snapshot.Snapshot
		wrong func(*schedule.Plan)
		says  string
	}{
		{
			"no devices", gpu(two...),
			func(p *schedule.Plan) { p.Launches[0].Devices = nil },
			"there are no devices for resource claim c-p0 on launch 0",
		},
		{
			"one device for two", gpu(two...),
			func(p *schedule.Plan) { p.Launches[0].Devices[1].Grants = p.Launches[0].Devices[0].Grants },
			"is allocated to resource claim c-p1 and to another",
		},
		{
			"another zone", devices(World(pool(), two[0]), twoClaims, slice(spec("net", 1), where(Expr(Zone, in, "z2")))),
			func(p *schedule.Plan) { p.Launches[0].Devices[0].Grants[0].Reach[0].Values = []string{"z3"} },
			"its devices cannot be used on launch 0",
		},
		{
			"a device of another zone",
			devices(World(pool(), two[0]), twoClaims, slice(spec("net", 1), where(Expr(Zone, in, "z2"))),
				slice(spec("net-3", 1), where(Expr(Zone, in, "z3")))),
			func(p *schedule.Plan) {
				p.Launches[0].Devices[0].Grants[0].Results[0].Devices.Results[0].Pool = "net-3"
			},
			"device dev-0 of pool net-3 cannot be used on launch 0",
		},
		{
			"on a node without", nodes(gpu(two[0]), Node("n1", "general")),
			func(p *schedule.Plan) {
				p.Placements = append(p.Placements, schedule.Placement{Node: "n1", Claim: "n1-claim", Pods: []*corev1.Pod{two[0]}})
			},
			"the devices of resource claim c-p0 come with launch 0 (pool general), and it is placed on node n1",
		},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			p := schedule.Solve(c.world, schedule.Budget{})
			if err := validate.Plan(c.world, p); err != nil {
				t.Fatal(err)
			}
			c.wrong(&p)
			if err := validate.Plan(c.world, p); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want one that says %q", err, c.says)
			}
		})
	}
}
