package planner

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

type jsonChange struct {
	Kind     string   `json:"kind"`
	Name     string   `json:"name"`
	Was      int      `json:"was"`
	Now      int      `json:"now"`
	Added    int      `json:"added"`
	Removed  int      `json:"removed"`
	Replaced int      `json:"replaced"`
	Fields   []string `json:"fields"`
}

// jsonNode is a node that is removed, or a candidate for that.
type jsonNode struct {
	Node         string  `json:"node"`
	NodePool     string  `json:"nodePool"`
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	HourlyCost   float64 `json:"hourlyCost"`
}

type jsonDrift struct {
	Nodes    []jsonDrifted  `json:"nodes"`
	Launches []jsonClaim    `json:"launches"`
	Existing []jsonExisting `json:"existing"`
	// HourlyCost is the cost of the launches, ReplacedHourlyCost that of the nodes that they replace.
	HourlyCost         float64 `json:"hourlyCost"`
	ReplacedHourlyCost float64 `json:"replacedHourlyCost"`
}

type jsonDrifted struct {
	jsonNode
	Reason string   `json:"reason"`
	Fields []string `json:"fields"`
	// Stays states why the node is not replaced; empty if it is.
	Stays string `json:"stays"`
}

type jsonCommand struct {
	Reason        string         `json:"reason"`
	Nodes         []jsonNode     `json:"nodes"`
	Launches      []jsonClaim    `json:"launches"`
	Existing      []jsonExisting `json:"existing"`
	HourlySavings float64        `json:"hourlySavings"`
}

type jsonKept struct {
	Node     string `json:"node"`
	NodePool string `json:"nodePool"`
	Reason   string `json:"reason"`
}

type jsonConsolidation struct {
	Commands      []jsonCommand `json:"commands"`
	Kept          []jsonKept    `json:"kept"`
	HourlySavings float64       `json:"hourlySavings"`
}

// disruption writes the changes to a snapshot, drift and consolidation, as far as there are any.
func (r *Report) disruption(p *jsonWriter) {
	if len(r.Changes) > 0 {
		p.list(",", "changes", len(r.Changes), func(i int) {
			c := r.Changes[i]
			p.value(itemIndent, jsonChange{c.Kind, c.Name, c.Was, c.Now, c.Added, c.Removed, c.Replaced, listOf(c.Fields)})
		})
	}
	if r.Drift != nil {
		out := jsonDrift{Nodes: []jsonDrifted{}}
		for _, d := range r.Drift.Nodes {
			out.Nodes = append(out.Nodes, jsonDrifted{newNode(d.Node, d.Price), d.Why.Reason, listOf(d.Why.Fields), d.Stays})
		}
		out.Launches, out.Existing = moves(&r.Drift.Plan)
		out.ReplacedHourlyCost, out.HourlyCost = r.Drift.Costs()
		p.text(",\n  \"drift\": ")
		p.value("  ", out)
	}
	if r.Consolidation == nil {
		return
	}
	out := jsonConsolidation{Commands: []jsonCommand{}, Kept: []jsonKept{}}
	for i := range r.Consolidation.Commands {
		cmd := &r.Consolidation.Commands[i]
		out.Commands = append(out.Commands, newCommand(cmd))
		out.HourlySavings += cmd.Savings
	}
	for _, k := range r.Consolidation.Kept {
		out.Kept = append(out.Kept, jsonKept{k.Node, k.NodePool, k.Message})
	}
	p.text(",\n  \"consolidation\": ")
	p.value("  ", out)
}

func listOf(items []string) []string { return append([]string{}, items...) }

func newNode(n *snapshot.Node, price float64) jsonNode {
	return jsonNode{
		n.Name, n.Pool, n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone], capacityType(n), price,
	}
}

func newCommand(cmd *disrupt.Command) jsonCommand {
	out := jsonCommand{Reason: string(cmd.Reason), Nodes: []jsonNode{}, HourlySavings: cmd.Savings}
	for _, c := range cmd.Candidates {
		out.Nodes = append(out.Nodes, newNode(c.Node, c.Price))
	}
	out.Launches, out.Existing = moves(&cmd.Plan)
	return out
}

// moves returns the nodes of a plan's pods.
func moves(plan *schedule.Plan) ([]jsonClaim, []jsonExisting) {
	launches, existing := []jsonClaim{}, []jsonExisting{}
	for i := range plan.Launches {
		launches = append(launches, newClaim(&plan.Launches[i]))
	}
	for _, pl := range plan.Placements {
		existing = append(existing, jsonExisting{pl.Node, names(pl.Pods)})
	}
	return launches, existing
}
