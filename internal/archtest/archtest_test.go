package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/dovetail-k8s/dovetail"

// layer describes what the packages in and below a directory may import. The longest matching dir wins.
type layer struct {
	dir string
	// ours are directories of this repository (with all below them); a package may always import
	// its own layer.
	ours []string
	// theirs are prefixes of import paths of other modules; empty means any.
	theirs []string
	// inTests are directories of this repository that only tests of the layer may import.
	inTests []string
}

// importRules is policy, not a record: when it stops a build, change the import, not the table. Widen it in a change of
// its own that explains why. It is sorted bottom up. The standard library is allowed everywhere except where banned
// forbids it.
var importRules = []layer{
	{dir: "api", theirs: []string{"k8s.io/api/", "k8s.io/apimachinery/", "github.com/mitchellh/hashstructure/v2"}},
	{
		dir:    "api/crds",
		ours:   []string{"api"},
		theirs: []string{"k8s.io/apiextensions-apiserver/", "k8s.io/apimachinery/", "sigs.k8s.io/yaml"},
	},
	{dir: "deploy", theirs: []string{"-"}},
	{dir: "hack", theirs: []string{"-"}},

	{dir: "internal/engine", ours: []string{"api"}, theirs: []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/component-helpers/"}},
	// Disruption budgets are cron schedules.
	{
		dir:    "internal/engine/disrupt",
		ours:   []string{"api", "internal/engine"},
		theirs: []string{"k8s.io/api/", "k8s.io/apimachinery/", "github.com/robfig/cron/v3"},
	},
	// Bulk data about EC2; reads its own file and nothing else.
	{dir: "internal/engine/catalog/offline", theirs: []string{"-"}},

	{dir: "internal/cloudprovider", ours: []string{"api"}, theirs: []string{"k8s.io/api/", "k8s.io/apimachinery/"}},
	// The only way to delete what runs: controllers and the cloud adapter call it.
	{
		dir: "internal/destroy", ours: []string{"api", "internal/cloudprovider"}, inTests: []string{"internal/cluster/apitest"},
		theirs: []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/kubernetes/typed/core/v1", "sigs.k8s.io/controller-runtime/pkg/"},
	},
	{
		dir: "internal/aws",
		ours: []string{
			"api", "internal/cloudprovider", "internal/destroy", "internal/engine/requirement", "internal/engine/catalog", "internal/spelling",
		},
	},
	{
		dir:     "internal/aws/noderepair",
		ours:    []string{"api", "internal/cloudprovider"},
		inTests: []string{"internal/engine/repair"}, // which compiles the policies
	},
	{dir: "internal/cluster", ours: []string{"api", "internal/engine", "internal/cloudprovider", "internal/spelling"}},
	{dir: "internal/cluster/reduced", ours: []string{"api"}, inTests: []string{"internal/manifest"}}, // which has what plans depend on
	{
		dir:     "internal/controller",
		ours:    []string{"api", "internal/engine", "internal/cloudprovider", "internal/cluster", "internal/destroy", "internal/recorder"},
		inTests: []string{"internal/controllertest"},
	},
	// Test support for reconcilers; nothing that ships imports it.
	{
		dir:  "internal/controllertest",
		ours: []string{"api", "internal/engine", "internal/cloudprovider", "internal/cluster", "internal/controller", "internal/destroy"},
	},
	// How readers print: pages, tables, amounts, JSON. It knows nothing of what is printed.
	{dir: "internal/report", theirs: []string{"-"}},
	// Facts about nodes that all readers share.
	{dir: "internal/fleet", ours: []string{"api", "internal/engine"}},
	// Manifests contain the objects of a cluster; the same code makes the Snapshot.
	{dir: "internal/manifest", ours: []string{"api", "internal/engine", "internal/cluster", "internal/spelling"}},
	// A recording has the objects of a cluster, scrubbed as manifests are; replaying it calls the engine.
	{
		dir:  "internal/recorder",
		ours: []string{"api", "internal/engine", "internal/fleet", "internal/cluster", "internal/destroy", "internal/manifest", "internal/report"},
	},
	{
		dir:  "internal/planner",
		ours: []string{"api", "internal/engine", "internal/cluster", "internal/manifest", "internal/report", "internal/settings"},
	},
	// What read-only commands see, and what they find out.
	{
		dir: "internal/inspect",
		ours: []string{
			"api", "internal/engine", "internal/fleet", "internal/cluster", "internal/manifest", "internal/planner", "internal/spelling",
			"internal/report",
		},
	},
	// What a cluster costs, and would cost; it shows what the doctor finds.
	{
		dir: "internal/assess",
		ours: []string{
			"api", "internal/engine", "internal/fleet", "internal/cluster", "internal/manifest", "internal/planner", "internal/inspect",
			"internal/doctor", "internal/report",
		},
	},
	// The live view in a terminal.
	{
		dir: "internal/top",
		ours: []string{
			"api", "internal/engine", "internal/fleet", "internal/cluster", "internal/manifest", "internal/planner", "internal/inspect",
			"internal/report",
		},
		inTests: []string{"internal/terminalpicture"},
	},
	// What a controller that does not act would have done.
	{dir: "internal/shadow", ours: []string{"api", "internal/engine", "internal/fleet", "internal/planner", "internal/report"}},
	// One table over several clusters.
	{dir: "internal/clusters", ours: []string{"internal/assess", "internal/doctor", "internal/top", "internal/report"}},
	// The live view in a browser: the same model as the terminal's, and what explains its objects.
	{
		dir: "internal/console",
		ours: []string{
			"api", "internal/engine", "internal/fleet", "internal/cluster", "internal/manifest", "internal/planner", "internal/inspect",
			"internal/top", "internal/doctor", "internal/recorder", "internal/assess",
		},
	},
	// Pictures for the documentation. Tests draw them; nothing that ships imports it.
	{dir: "internal/terminalpicture", theirs: []string{"github.com/charmbracelet/x/ansi"}},
	// Lists of what can be launched.
	{
		dir: "internal/instancetypelist", ours: []string{"api", "internal/engine", "internal/report", "internal/spelling"},
		theirs: []string{"k8s.io/api/", "k8s.io/apimachinery/"},
	},
	// Checks evaluate what was read of cluster and cloud; the cloud adapter defines the causes of nodes that do not join.
	{
		dir:  "internal/doctor",
		ours: []string{"api", "internal/engine", "internal/cloudprovider", "internal/aws", "internal/spelling", "internal/report"},
	},
	// Going over from Karpenter: compares what was read with what the other packages know, and changes nothing.
	{
		dir: "internal/migrate",
		ours: []string{
			"api", "internal/engine", "internal/cluster", "internal/manifest", "internal/planner", "internal/inspect", "internal/doctor",
			"internal/cloudprovider", "internal/aws", "internal/settings", "internal/spelling", "internal/report",
		},
	},
	// Tools for AI agents: what explains, plans and checks comes from the command.
	{dir: "internal/mcp", ours: []string{"internal/recorder"}, theirs: []string{"github.com/modelcontextprotocol/go-sdk/"}},
	{dir: "internal/settings", ours: []string{"internal/spelling"}, theirs: []string{"github.com/spf13/pflag"}},
	// Suggestions for misspelled words.
	{dir: "internal/spelling", theirs: []string{"-"}},
	// How a program uses memory.
	{dir: "internal/gctuning", theirs: []string{"-"}},
	{dir: "internal/peakrss", theirs: []string{"-"}},
	// The controller as a whole. It and cmd alone may import both controllers and AWS.
	{dir: "internal/operator", ours: []string{"api", "internal"}},
	{dir: "internal/archtest"},
	// The vocabulary of docs/glossary.md; tests of the binaries check their help texts with it.
	{dir: "internal/glossarytest", theirs: []string{"-"}},
	{dir: "cmd", ours: []string{"api", "internal"}},

	// The lab uses the product as a user does: its API, its manifests, its binary. EC2's own data is shared.
	{dir: "lab", ours: []string{"api", "deploy", "internal/engine/catalog/offline"}, inTests: []string{"internal/glossarytest"}},
	// The cloud adapter is tested against the lab's AWS API simulator, up to the NodeClaims that AWS events terminate.
	{
		dir: "lab/awstest",
		ours: []string{
			"api",
			"deploy",
			"internal/aws",
			"internal/cloudprovider",
			"internal/cluster",
			"internal/controller",
			"internal/controllertest",
			"internal/destroy",
			"internal/engine",
			"lab",
		},
	},
	// Plans of the engine are held against kube-scheduler, which only the lab has.
	{dir: "lab/schedulertest", ours: []string{"api", "internal/engine", "internal/cluster"}},

	// Generators are modules of their own and may use what they like, but nothing of ours beyond the data format.
	{dir: "tools", ours: []string{"internal/engine/catalog/offline"}},
	// The chart has to reach every setting.
	{dir: "tools/chart", ours: []string{"internal/settings", "internal/spelling", "internal/glossarytest", "tools/chart"}},
	// Reference pages are made from the code, and the examples compared with it.
	{dir: "tools/docs", ours: []string{"api", "internal", "tools/docs"}},
}

// banned are imports that a layer's shipped code must do without.
var banned = map[string][]string{
	"internal/engine": {"context", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os"},
	"api":             {"context", "log", "log/slog", "net/http"},
}

func TestImportsFollowTheRules(t *testing.T) {
	root := "../.."
	seen := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && skipped(p, root) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		seen++
		checkFile(t, p, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("checked %d files only: is the root of the repository still %s?", seen, root)
	}
}

// skipped reports whether a directory has no source of ours: hidden ones, data of tests, and bin, where make puts programs.
// internal/engine/bin is source.
func skipped(dir, root string) bool {
	name := filepath.Base(dir)
	return strings.HasPrefix(name, ".") || name == "testdata" || filepath.Clean(dir) == filepath.Join(root, "bin")
}

func checkFile(t *testing.T, file, rel string) {
	dir := path.Dir(rel)
	l, ok := layerOf(dir)
	if !ok {
		t.Errorf("%s: no import rule covers directory %s", rel, dir)
		return
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	isTest := strings.HasSuffix(rel, "_test.go")
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if reason := violation(l, dir, imp, isTest); reason != "" {
			t.Errorf("%s imports %s: %s", rel, imp, reason)
		}
	}
}

// violation returns why a file of layer l in dir must not import imp; empty if it may.
func violation(l layer, dir, imp string, isTest bool) string {
	if own, ok := strings.CutPrefix(imp, module+"/"); ok {
		if within(own, l.dir) || slices.ContainsFunc(l.ours, func(d string) bool { return within(own, d) }) {
			return ""
		}
		if isTest && slices.ContainsFunc(l.inTests, func(d string) bool { return within(own, d) }) {
			return ""
		}
		return l.dir + " may import only these directories of this repository: " + strings.Join(append([]string{l.dir}, l.ours...), ", ")
	}
	if strings.Contains(imp, "sigs.k8s.io/karpenter") || strings.Contains(imp, "karpenter-provider-aws") {
		return "this is an independent implementation"
	}
	if isTest {
		return ""
	}
	for layerDir, imports := range banned {
		if within(dir, layerDir) && slices.Contains(imports, imp) {
			return layerDir + " is pure: its callers pass what it needs as data"
		}
	}
	if !strings.Contains(strings.Split(imp, "/")[0], ".") || len(l.theirs) == 0 {
		return ""
	}
	if slices.ContainsFunc(l.theirs, func(p string) bool { return imp == p || strings.HasPrefix(imp, p) }) {
		return ""
	}
	return l.dir + " may import only these of other modules: " + strings.Join(l.theirs, ", ")
}

func layerOf(dir string) (layer, bool) {
	best, found := layer{}, false
	for _, l := range importRules {
		if within(dir, l.dir) && (!found || len(l.dir) > len(best.dir)) {
			best, found = l, true
		}
	}
	return best, found
}

func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

func TestViolation(t *testing.T) {
	tests := []struct {
		name, dir, imp  string
		test, forbidden bool
	}{
		{"engine reads the API types", "internal/engine/schedule", module + "/api/karpenter/v1", false, false},
		{"engine knows no cloud", "internal/engine/schedule", module + "/internal/cloud", false, true},
		{"engine has no clock-bound context", "internal/engine/schedule", "context", false, true},
		{"engine has no client", "internal/engine/schedule", "k8s.io/client-go/kubernetes", false, true},
		{"engine's tests may use test libraries", "internal/engine/schedule", "pgregory.net/rapid", true, false},
		{"aws does not know controllers", "internal/aws/launch", module + "/internal/controller/launch", false, true},
		{"controllers do not know AWS", "internal/controller/nodeclaim/launch", module + "/internal/aws", false, true},
		{"the product does not know the lab", "internal/aws/launch", module + "/lab/awsim", false, true},
		{
			"tests of controllers use their test support",
			"internal/controller/nodeclaim/launch",
			module + "/internal/controllertest",
			true,
			false,
		},
		{
			"code that ships does not use test support",
			"internal/controller/nodeclaim/launch",
			module + "/internal/controllertest",
			false,
			true,
		},
		{"the lab does not use internals", "lab/scenario", module + "/internal/cluster", false, true},
		{"the lab reads EC2's data", "lab/awsim/ec2", module + "/internal/engine/catalog/offline", false, false},
		{"nobody imports Karpenter", "cmd/dovetail", "sigs.k8s.io/karpenter/pkg/apis", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, ok := layerOf(tt.dir)
			if !ok {
				t.Fatalf("no layer for %s", tt.dir)
			}
			if got := violation(l, tt.dir, tt.imp, tt.test); (got != "") != tt.forbidden {
				t.Errorf("violation = %q, want forbidden = %v", got, tt.forbidden)
			}
		})
	}
}
