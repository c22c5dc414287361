package disrupt

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// Without one, each node would have a line of its own, since messages name objects.
func TestEachReasonOfTheEngineHasASummary(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "why.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	reasons, of := 0, map[string]Reason{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		reasons++
		text := summaries[Reason(value)]
		if text == "" {
			t.Errorf("%s has no summary", spec.Names[0].Name)
		}
		if other, twice := of[text]; twice {
			t.Errorf("%s and %s have the summary %q", value, other, text)
		}
		of[text] = Reason(value)
		return true
	})
	if reasons != len(summaries) || reasons < 30 {
		t.Errorf("%d reasons, %d summaries", reasons, len(summaries))
	}
}

func TestNodesThatStayForOneReasonAreCountedTogether(t *testing.T) {
	for _, tt := range []struct {
		name string
		why  []Why
		want string
	}{
		{"whatever the pod", []Why{
			{Reason: Unschedulable, Message: "Not all pods would schedule, shop/web => no room"},
			{Reason: Unschedulable, Message: "Not all pods would schedule, shop/api => no room"},
		}, "Not all pods would schedule"},
		{"whatever the NodePool", []Why{
			{Reason: StaticPool, Message: `NodePool "a" keeps a fixed number of nodes`},
			{Reason: StaticPool, Message: `NodePool "b" keeps a fixed number of nodes`},
		}, "its NodePool keeps a fixed number of nodes"},
		{"one PodDisruptionBudget", []Why{
			{Reason: PDB, Budgets: 1}, {Reason: PDB},
		}, "pdb prevents pod evictions"},
		{"several PodDisruptionBudgets", []Why{
			{Reason: PDB, Budgets: 2}, {Reason: PDB, Budgets: 3},
		}, "eviction does not support multiple PDBs"},
		{"none", []Why{{}}, ""},
	} {
		for _, why := range tt.why {
			if got := why.Summary(); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
	}
}
