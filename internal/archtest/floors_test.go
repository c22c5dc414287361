package archtest

import (
	"cmp"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors are the packages of the engine, from the ground up. A package imports packages of its own floor and of floors below.
// As importRules, they are policy: change the import, not the table.
var floors = [][]string{
	{ // ground: data, and algorithms that know nothing of Kubernetes' rules
		"quantity", "requirement", "catalog", "resources", "rejection", "repair", "breaker", "backoff", "snapshot", "lp", "orders", "roomtree",
		"parallel", "wording", "savings", "rollout",
	},
	{ // models: what pods, pools, nodes and zones require and allow
		"plan", "topology", "volume", "reservation", "overlay", "preference", "nodepool", "podclass", "devices", "price", "cover",
		"disrupt", "static", "deletioncost", "refusal", "support",
	},
	{"bin", "existing", "zonedivision", "sizing", "explain"},                                // nodes, existing and planned
	{"schedule", "buffer", "validate", "attribution", "replace", "consolidate"},             // search
	{"pass", "inflight", "drain", "advance", "bound"},                                       // a pass over the whole cluster
	{"enginetest", "workload", "hostilepods", "propertytest", "scripttest", "decisiontext"}, // test support, which nothing else imports
}

// planned are packages of floors that do not exist yet.
var planned = []string{"advance"}

const (
	// maxGroundDepth limits how many packages of the ground may import each other in a row.
	maxGroundDepth = 3
	// maxDepth limits how many packages above the ground import each other in a row, today. It only falls.
	maxDepth = 8
	// maxFanOut limits how many packages above the ground one may import.
	maxFanOut = 8
)

// wideFanOut are the packages that import more than maxFanOut, and how many today. The numbers only fall.
var wideFanOut = map[string]int{"schedule": 15}

// graph has the imports of the engine's packages within the engine, by the first part of their path. Tests are left out.
type graph map[string]map[string]bool

const enginePath = "internal/engine/"

func engineGraph(t *testing.T) graph {
	t.Helper()
	out := graph{}
	goFiles(t, func(rel string, source []byte) {
		below, is := strings.CutPrefix(path.Dir(rel), strings.TrimSuffix(enginePath, "/")+"/")
		if !is || strings.HasSuffix(rel, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), rel, source, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		own := firstPart(below)
		if out[own] == nil {
			out[own] = map[string]bool{}
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if p, ours := strings.CutPrefix(imp, module+"/"+enginePath); ours && firstPart(p) != own {
				out[own][firstPart(p)] = true
			}
		}
	})
	return out
}

func firstPart(p string) string {
	first, _, _ := strings.Cut(p, "/")
	return first
}

// floorOf is the number of a package's floor; -1 if it has none.
func floorOf(name string) int {
	return slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, name) })
}

// depth is the longest row of packages that import each other, from one down. Only those count that counts selects.
func (g graph) depth(name string, counts func(string) bool) int {
	return g.depths(name, counts, map[string]int{})
}

// depths is depth with what is known. A package in progress has depth 0 there, so that a cycle, which does not compile, finishes.
func (g graph) depths(name string, counts func(string) bool, known map[string]int) int {
	if d, is := known[name]; is {
		return d
	}
	known[name] = 0
	deepest := 0
	for imp := range g[name] {
		deepest = max(deepest, g.depths(imp, counts, known))
	}
	if counts(name) {
		deepest++
	}
	known[name] = deepest
	return deepest
}

func aboveGround(name string) bool { return floorOf(name) > 0 }

func onGround(name string) bool { return floorOf(name) == 0 }

// fanOut returns how many packages above the ground one imports.
func (g graph) fanOut(name string) (n int) {
	for imp := range g[name] {
		if aboveGround(imp) {
			n++
		}
	}
	return n
}

func TestEngineHasFloors(t *testing.T) {
	g := engineGraph(t)
	if len(g) < 30 {
		t.Fatalf("the engine has %d packages: is it still in %s?", len(g), enginePath)
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		own := floorOf(name)
		if own < 0 {
			t.Errorf("package %s%s is on no floor: add it to the lowest that its imports allow", enginePath, name)
		}
		for _, imp := range slices.Sorted(maps.Keys(g[name])) {
			if floorOf(imp) > own {
				t.Errorf("%s (floor %d) imports %s (floor %d): imports point down", name, own, imp, floorOf(imp))
			}
		}
	}
	for _, f := range floors {
		for _, name := range f {
			if _, exists := g[name]; exists == slices.Contains(planned, name) && name != "propertytest" {
				t.Errorf("%s: it exists is %v; planned lists those that do not", name, exists)
			}
		}
	}
}

func TestEngineIsNeitherDeepNorWide(t *testing.T) {
	g := engineGraph(t)
	product := slices.DeleteFunc(slices.Sorted(maps.Keys(g)), func(name string) bool { return floorOf(name) == len(floors)-1 })
	deepest := slices.MaxFunc(product, func(a, b string) int { return cmp.Compare(g.depth(a, aboveGround), g.depth(b, aboveGround)) })
	if d := g.depth(deepest, aboveGround); d != maxDepth {
		t.Errorf("%s has depth %d above the ground, want %d: let it import less if it is deeper, or lower maxDepth", deepest, d, maxDepth)
	}
	for _, name := range product {
		if d := g.depth(name, onGround); onGround(name) && d > maxGroundDepth {
			t.Errorf("%s has depth %d on the ground, at most %d are allowed", name, d, maxGroundDepth)
		}
		n := g.fanOut(name)
		switch most, wide := wideFanOut[name]; {
		case wide && n != most:
			t.Errorf("%s imports %d packages above the ground, want %d: let it import less if these are more, or lower wideFanOut", name, n, most)
		case !wide && n > maxFanOut:
			t.Errorf("%s imports %d packages above the ground, at most %d are allowed", name, n, maxFanOut)
		}
	}
}

func TestDepthAndFanOut(t *testing.T) {
	g := graph{
		"schedule": {"bin": true, "snapshot": true}, "bin": {"topology": true, "nodepool": true}, "topology": {"snapshot": true},
		"nodepool": {}, "snapshot": {"catalog": true}, "catalog": {},
	}
	if d := g.depth("schedule", aboveGround); d != 3 {
		t.Errorf("depth %d above the ground", d)
	}
	if d := g.depth("snapshot", onGround); d != 2 {
		t.Errorf("depth %d on the ground", d)
	}
	if n := g.fanOut("schedule"); n != 1 {
		t.Errorf("fan-out %d", n)
	}
}
