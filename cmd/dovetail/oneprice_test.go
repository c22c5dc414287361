package main

import (
	"encoding/json"
	"math"
	"testing"
)

// parsed is the JSON that a command prints.
func parsed[T any](t *testing.T, args ...string) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(succeed(t, append(args, "-o", "json")...)), &out); err != nil {
		t.Fatalf("dovetail %v: %v", args, err)
	}
	return out
}

// pricedNodes are nodes as each reader lists them.
type pricedNodes []struct {
	Name, Node, NodePool string
	HourlyCost           *float64
}

// One fleet costs the same in every command that reads files, as a whole and node by node.
func TestOneFleetHasOnePriceInEveryCommand(t *testing.T) {
	top := parsed[struct {
		Cost  struct{ HourlyCost float64 }
		Nodes pricedNodes
	}](t, "top", "--once", "-f", assessedFiles)
	want, sum := map[string]float64{}, 0.0
	for _, n := range top.Nodes {
		if n.HourlyCost == nil {
			t.Fatalf("top: node %s has no price", n.Name)
		}
		want[n.Name] = *n.HourlyCost
		sum += *n.HourlyCost
	}
	same := func(reader, what string, got, want float64) {
		t.Helper()
		if want <= 0 || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %s costs $%v/h, and by top $%v/h", reader, what, got, want)
		}
	}
	same("top", "the fleet", top.Cost.HourlyCost, sum)

	assess := parsed[struct{ Now struct{ HourlyCost float64 } }](t, "assess", "-f", assessedFiles)
	same("assess", "the fleet", assess.Now.HourlyCost, sum)

	for name := range want {
		node := parsed[struct{ HourlyCost float64 }](t, "explain", "node", name, "-f", assessedFiles)
		same("explain node", name, node.HourlyCost, want[name])
	}
	pool, inPool := parsed[struct{ HourlyCost float64 }](t, "explain", "nodepool", "general", "-f", assessedFiles), 0.0
	for _, n := range top.Nodes {
		if n.NodePool == "general" {
			inPool += *n.HourlyCost
		}
	}
	same("explain nodepool", "its NodePool", pool.HourlyCost, inPool)

	plan := parsed[struct {
		Consolidation struct {
			Commands []struct {
				Nodes         pricedNodes
				Launches      []struct{ Offering struct{ Price float64 } }
				HourlySavings float64
			}
		}
	}](t, "plan", "--consolidate", "-f", assessedFiles)
	if len(plan.Consolidation.Commands) == 0 {
		t.Fatal("plan removes no node: the test compares no price of it")
	}
	for _, c := range plan.Consolidation.Commands {
		saved := 0.0
		for _, n := range c.Nodes {
			same("plan", n.Node, *n.HourlyCost, want[n.Node])
			saved += want[n.Node]
		}
		for _, l := range c.Launches {
			saved -= l.Offering.Price
		}
		same("plan", "what a command removes, without what it launches,", c.HourlySavings, saved)
	}
}
