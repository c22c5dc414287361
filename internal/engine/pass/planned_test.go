package pass

import (
	"math"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Nodes that leave, those that commands of the pass remove, and their replacements count as if all had finished.
func TestPlannedCostsAreThoseAfterAllCommands(t *testing.T) {
	pool := Pool("general", []*catalog.InstanceType{Type("m.large", 1, "cpu", "4", "memory", "16Gi")})
	s := World([]snapshot.Pool{pool})
	s.Nodes = []snapshot.Node{
		Node("stays", "general"), Node("drains", "general", func(n *snapshot.Node) { n.Deleting = true }),
		Node("waits", "general", func(n *snapshot.Node) { n.Disrupting = true }), Node("goes", "general"), Node("reboots", "general"),
	}
	view := disrupt.NewView(s)
	cost, unpriced := new(disrupt.PoolCosts).Update(view)
	each := cost["general"] / 5
	command := func(node int, launches ...schedule.Launch) Decision {
		return Decision{Command: disrupt.Command{
			Candidates: []*disrupt.Candidate{{Node: &s.Nodes[node]}}, Plan: schedule.Plan{Launches: launches}, Reboot: node == 4,
		}}
	}
	d := Decisions{
		View: view, Costs: cost, Start: []Decision{command(4)},
		Propose: []Decision{command(3, schedule.Launch{Pool: pool.NodePool, Offering: catalog.Offering{Price: 0.25}})},
	}
	if got := d.PlannedCosts()["general"]; each <= 0 || math.Abs(got-(2*each+0.25)) > 1e-9 {
		t.Errorf("of 5 nodes at $%f/h, 2 stay and one comes at $0.25/h: planned $%f/h", each, got)
	}
	if d.Costs["general"] != 5*each || len(unpriced) > 0 {
		t.Errorf("now $%f/h", d.Costs["general"])
	}
}
