package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// decidesNodes are the functions and types of the engine that search for nodes to disrupt, or check such a decision. A package that
// combines them builds a second pass, which decides otherwise sooner or later.
var decidesNodes = map[string][]string{
	"internal/engine/consolidate": {"Find", "Recheck"},
	"internal/engine/replace":     {"Drift", "RepairSearch", "FreedSlots", "StaticRefill"},
}

// The controller, recordings and all commands decide about nodes by engine/pass.
func TestOnlyThePassDecidesAboutNodes(t *testing.T) {
	own := 0
	goFiles(t, func(rel string, source []byte) {
		dir := path.Dir(rel)
		if strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(dir, "internal/engine/") && dir != "internal/engine/pass" {
			return
		}
		for _, use := range usesOf(t, rel, source, decidesNodes) {
			if dir == "internal/engine/pass" {
				own++
				continue
			}
			t.Errorf("%s uses %s: call pass.Decide, or a function beside it", rel, use)
		}
	})
	if own < 5 {
		t.Errorf("engine/pass uses %d of these functions: are their names still right?", own)
	}
}

// usesOf are the names of packages that a file uses, as package.Name; by the path of the package below the module.
func usesOf(t *testing.T, rel string, source []byte, names map[string][]string) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), rel, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string][]string{} // by the name in the file
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		below, ours := strings.CutPrefix(imp, module+"/")
		if !ours || names[below] == nil {
			continue
		}
		name := path.Base(below)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = names[below]
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, is := n.(*ast.SelectorExpr)
		if !is {
			return true
		}
		if x, is := sel.X.(*ast.Ident); is && slices.Contains(imported[x.Name], sel.Sel.Name) {
			out = append(out, x.Name+"."+sel.Sel.Name)
		}
		return true
	})
	return out
}
