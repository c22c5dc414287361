package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/glossarytest"
	"github.com/dovetail-k8s/dovetail/internal/spelling"
	"github.com/dovetail-k8s/dovetail/tools/chart/reference"
)

// A misspelled value is refused with the name that was meant, at each level, and where it belongs if it is in a wrong section.
func TestTyposAreRefusedWithTheRightName(t *testing.T) {
	for values, says := range map[string]string{
		"{controller: {resource: {}}}":                     "controller.resource: unknown; did you mean controller.resources?",
		"{replica: 3}":                                     "replica: unknown; did you mean replicas?",
		"{nodeselector: {}}":                               "nodeselector: unknown; did you mean nodeSelector?",
		"{settings: {clusternmae: b}}":                     "settings.clusternmae: unknown; did you mean settings.clusterName?",
		"{settings: {featureGates: {nodeRepiar: true}}}":   "did you mean settings.featureGates.nodeRepair?",
		"{controller: {metrics: {prot: 1}}}":               "controller.metrics.prot: unknown; did you mean controller.metrics.port?",
		"{clusterName: b}":                                 "clusterName: unknown; did you mean settings.clusterName?",
		"{resources: {limits: {}}}":                        "resources: unknown; did you mean controller.resources?",
		"{controller: {logLevel: debug}}":                  "controller.logLevel: unknown; did you mean logLevel?",
		"{dashboard: {enabled: true}}":                     "dashboard: unknown; did you mean dashboards?",
		"{replica: 3, settings: {interuptionQueue: shop}}": "did you mean settings.interruptionQueue?",
	} {
		all := set(valuesOf(t, values), []string{"settings", "clusterName"}, "a")
		if _, err := standard.render(all); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want %q", values, err, says)
		}
	}
}

// The schema refuses values of a wrong type; maps with names of the user's own, and the values that charts share, are accepted.
func TestTypesAreChecked(t *testing.T) {
	for values, refused := range map[string]bool{
		"{replicas: two}":                         true,
		"{settings: {isolatedVPC: yes please}}":   true,
		"{settings: {preferencePolicy: Price}}":   true,
		"{logOutputPaths: stdout}":                true,
		"{tolerations: {operator: Exists}}":       true,
		"{imagePullSecrets: [registry]}":          true,
		"{settings: {reservedENIs: 1}}":           false,
		"{settings: {reservedENIs: \"1\"}}":       false,
		"{settings: {kubeClientQPS: null}}":       false,
		"{nodeSelector: {example.com/any: name}}": false,
		"{global: {imageRegistry: x}}":            false,
		"{podSecurityContext: {runAsUser: 1000}}": false,
	} {
		_, err := standard.render(set(valuesOf(t, values), []string{"settings", "clusterName"}, "a"))
		if (err != nil) != refused {
			t.Errorf("%s: error %v, want one: %v", values, err, refused)
		}
	}
}

// Names are compared as internal/spelling does.
func TestEditDistanceOfTheTemplate(t *testing.T) {
	known := []string{"replicas", "controller", "settings", "nodeSelector", "strategy", "affinity"}
	for _, word := range []string{"replica", "controler", "setings", "nodeselektor", "stratgey", "afinity", "hook", "x", "settingss"} {
		want := spelling.Nearest(word, known, max(2, len(word)/3))
		_, err := standard.render(set(valuesOf(t, "{settings: {clusterName: a}}"), []string{word}, "x"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "did you mean "+want+"?")) {
			t.Errorf("%s: error %v, want %q", word, err, want)
		}
	}
}

// Every value of Karpenter 1.15's chart is a value of the chart, or of a map that takes any names.
func TestValuesOfKarpenterAreAccepted(t *testing.T) {
	var karpenter struct {
		ChartValues []string                      `json:"chartValues"`
		Differences []struct{ Sort, Name string } `json:"differences"`
	}
	text, err := os.ReadFile("../../cmd/dovetail/testdata/karpenter-1.15.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &karpenter); err != nil {
		t.Fatal(err)
	}
	lacking := map[string]bool{}
	for _, d := range karpenter.Differences {
		lacking[d.Name] = true
	}
	known := map[string]bool{}
	for _, v := range values(t, "dovetail") {
		known[v.String()] = true
	}
	if len(karpenter.ChartValues) < 80 {
		t.Fatalf("only %d values", len(karpenter.ChartValues))
	}
	for _, name := range karpenter.ChartValues {
		if !known[name] && !lacking[name] {
			t.Errorf("%s is not known", name)
		}
	}
}

// values are those of a chart, sections included.
func values(t *testing.T, name string) (out []reference.Value) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(charts, name, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := reference.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	reference.Each(all, func(v reference.Value) { out = append(out, v) })
	return out
}

// README.md, values.schema.json and the list of known names are those of values.yaml, and use the vocabulary. No file is a link: Helm
// prints a line for each, with each command.
func TestDerivedFilesAreFresh(t *testing.T) {
	g, err := glossarytest.Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dovetail", "dovetail-crd", "dovetail-policies"} {
		files, err := reference.Files(filepath.Join(charts, name))
		if err != nil {
			t.Fatal(err)
		}
		for file, want := range files {
			got, err := os.ReadFile(filepath.Join(charts, name, file))
			if err != nil || string(got) != string(want) {
				t.Errorf("%s/%s is not fresh: run make generate (%v)", name, file, err)
			}
			if info, err := os.Lstat(filepath.Join(charts, name, file)); err == nil && !info.Mode().IsRegular() {
				t.Errorf("%s/%s is a link", name, file)
			}
		}
		for _, f := range g.CheckMarkdown(string(files["README.md"])) {
			t.Errorf("%s/README.md: %s", name, f)
		}
	}
}

// helm lint finds nothing in any chart.
func TestLint(t *testing.T) {
	for name, text := range map[string]string{"dovetail": "{settings: {clusterName: shop}}", "dovetail-crd": "{}", "dovetail-policies": "{}"} {
		result := lint.AllWithKubeVersion(filepath.Join(charts, name), valuesOf(t, text), "kube-system", nil)
		for _, m := range result.Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// withFile is the chart with one more file, which the repository need not have.
func withFile(t *testing.T, name, text string) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join(charts, "dovetail"))
	if err != nil {
		t.Fatal(err)
	}
	c.Files = append(c.Files, &chart.File{Name: name, Data: []byte(text)})
	return c
}
