package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/api/crds"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// ourFields returns those of the CustomResourceDefinitions. What is below an open object counts as open.
func ourFields(t *testing.T) []string {
	t.Helper()
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, crd := range all {
		for name, s := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties {
			if name == "spec" || name == "status" {
				out = append(out, fieldsOf(crd.Spec.Names.Kind+" "+name, s)...)
			}
		}
	}
	return out
}

func fieldsOf(path string, s apiextensionsv1.JSONSchemaProps) []string {
	out := []string{path}
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
		return out
	}
	if s.Items != nil && s.Items.Schema != nil {
		path, s = path+"[]", *s.Items.Schema
	}
	for name, property := range s.Properties {
		out = append(out, fieldsOf(path+"."+name, property)...)
	}
	return out
}

func ourSettings() []string {
	var s settings.Settings
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	s.Bind(fs, func(string) string { return "" })
	var out []string
	fs.VisitAll(func(f *pflag.Flag) { out = append(out, f.Name) })
	return out
}

// ourChartValues are the values of the chart, by path. A value of Karpenter's that is an object by itself is not divided.
func ourChartValues(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/chart/dovetail/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	whole := set(readKarpenter(t).ChartValues)
	var out []string
	var walk func(prefix string, at map[string]any)
	walk = func(prefix string, at map[string]any) {
		for name, value := range at {
			path := prefix + name
			if below, ok := value.(map[string]any); ok && len(below) > 0 && !whole[path] {
				walk(path+".", below)
			} else {
				out = append(out, path)
			}
		}
	}
	walk("", values)
	return out
}

// stringConstants are the string constants of each package below a directory, by name. Names that several packages have are joined.
func stringConstants(t *testing.T, dir string) map[string][]string {
	t.Helper()
	groups, all := map[string]string{}, map[string]map[string]ast.Expr{}
	eachFile(t, dir, func(dir string, f *ast.File) {
		if all[dir] == nil {
			all[dir] = map[string]ast.Expr{}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
				for i, name := range spec.Names {
					all[dir][name.Name] = spec.Values[i]
				}
			}
			return true
		})
		if group, ok := all[dir]["Group"]; ok {
			groups[dir] = constantText(group, "")
		}
	})
	out := map[string][]string{}
	for dir, constants := range all {
		for name, value := range constants {
			if text := constantText(value, groups[dir]); text != "" {
				out[name] = append(out[name], text)
			}
		}
	}
	return out
}

// constantText is the value of a literal, of Group, and of sums of these; empty for all else.
func constantText(e ast.Expr, group string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil {
			return text
		}
	case *ast.Ident:
		if e.Name == "Group" {
			return group
		}
	case *ast.BinaryExpr:
		return constantText(e.X, group) + constantText(e.Y, group)
	}
	return ""
}

// eachFile parses the Go files that ship.
func eachFile(t *testing.T, dir string, visit func(dir string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		if err == nil {
			visit(filepath.Dir(p), f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ourKeys are the label keys, annotations or taints in Karpenter's domains: the values of constants with a prefix. Those of
// Kubernetes that we use are among them.
func ourKeys(constants map[string][]string, prefix string) []string {
	out := map[string][]string{"Label": {corev1.LabelNodeExcludeBalancers}, "Annotation": {corev1.PodDeletionCost}}[prefix]
	for name, values := range constants {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, value := range values {
			if strings.Contains(value, "/") && !strings.HasPrefix(value, "dovetail.sh/") {
				out = append(out, value)
			}
		}
	}
	return out
}

func ourConditions(constants map[string][]string) []string {
	out := []string{"Ready"}
	for name, values := range constants {
		if strings.HasPrefix(name, "Condition") {
			out = append(out, values...)
		}
	}
	return out
}

// stringLiterals are all that the files below some directories contain.
func stringLiterals(t *testing.T, dirs ...string) []string {
	t.Helper()
	var out []string
	for _, dir := range dirs {
		eachFile(t, dir, func(_ string, f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					out = append(out, constantText(literal, ""))
				}
				return true
			})
		})
	}
	return out
}

// allMetrics returns those that the controller registers, on top of an empty registry: without those of its libraries.
func allMetrics(t *testing.T, inner inventory.Inner) []inventory.Metric {
	t.Helper()
	all, err := operator.Inventory(inner, settings.Settings{LeaderElectionName: "lease"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ourMetrics are the labels of all metrics that the controller registers, but those of our own domain.
func ourMetrics(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, m := range allMetrics(t, prometheus.NewRegistry()) {
		if !strings.HasPrefix(m.Name, ourPrefix) {
			out[m.Name] = m.Labels
		}
	}
	return out
}

// ourPrefix begins the names of metrics that Karpenter lacks.
const ourPrefix = "dovetail_"

// commonMetrics returns those// commonMetrics are those that both have, with labels that can be compared.
func commonMetrics(theirs map[string]karpenterMetric, ours map[string][]string) []string {
	var out []string
	for name, their := range theirs {
		if _, ok := ours[name]; ok && !slices.Contains(their.Labels, placeholder) {
			out = append(out, name)
		}
	}
	return out
}

// sameLabels are the metrics with the labels that Karpenter's have.
func sameLabels(theirs map[string]karpenterMetric, ours map[string][]string) []string {
	var out []string
	for _, name := range commonMetrics(theirs, ours) {
		if slices.Equal(slices.Sorted(slices.Values(theirs[name].Labels)), slices.Sorted(slices.Values(ours[name]))) {
			out = append(out, name)
		}
	}
	return out
}
