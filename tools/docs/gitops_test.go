package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/api/crds"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

const (
	chartRepository = "ghcr.io/dovetail-k8s/dovetail/charts"
	syncWave        = "argocd.argoproj.io/sync-wave"
)

// documents are the YAML documents of an example, as JSON.
func documents(t *testing.T, name string) (out [][]byte) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(example(t, name)))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := yaml.Marshal(&node)
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := k8syaml.YAMLToJSONStrict(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, asJSON)
	}
}

// strictly decodes JSON, and refuses what the type does not have.
func strictly[T any](t *testing.T, text []byte) (out T) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// nodesOf are the EC2NodeClass and the NodePool of an example.
func nodesOf(t *testing.T, directory string) (class, pool *unstructured.Unstructured) {
	t.Helper()
	all := documents(t, directory+"/nodes/nodes.yaml")
	if len(all) != 2 {
		t.Fatalf("%s: %d objects", directory, len(all))
	}
	var out [2]unstructured.Unstructured
	for i, text := range all {
		if err := out[i].UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
	}
	if out[0].GetKind() != "EC2NodeClass" || out[1].GetKind() != "NodePool" {
		t.Fatalf("%s: %s, %s", directory, out[0].GetKind(), out[1].GetKind())
	}
	return &out[0], &out[1]
}

// checkChart checks the name, the version and the values that an example gives a chart.
func checkChart(t *testing.T, name, version string, given map[string]any) {
	t.Helper()
	dir := filepath.Join(Root, "deploy", "chart", name)
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		t.Error(err)
		return
	}
	var chart struct{ Name, Version string }
	if err := k8syaml.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}
	if name != chart.Name || version != chart.Version {
		t.Errorf("chart %s %s, want %s %s", name, version, chart.Name, chart.Version)
	}
	compiled, err := jsonschema.NewCompiler().Compile(filepath.Join(dir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	if err := k8syaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := compiled.Validate(merged(all, given)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	var names valueSchema
	text, err = os.ReadFile(filepath.Join(dir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &names); err != nil {
		t.Fatal(err)
	}
	checkNames(t, name, given, names)
}

// merged are the defaults of a chart with the values that are given.
func merged(defaults, given map[string]any) any {
	for name, value := range given {
		below, isMap := defaults[name].(map[string]any)
		inner, alsoMap := value.(map[string]any)
		if isMap && alsoMap {
			value = merged(below, inner)
		}
		defaults[name] = value
	}
	return defaults
}

// checkNames compares the names of values with a schema. Below a value that takes any names, none is compared.
func checkNames(t *testing.T, path string, given map[string]any, schema valueSchema) {
	t.Helper()
	for name, value := range given {
		below, ok := schema.Properties[name]
		if !ok {
			t.Errorf("%s: %s is no value of the chart", path, name)
		}
		if inner, isMap := value.(map[string]any); isMap && below.Properties != nil {
			checkNames(t, path+"."+name, inner, below)
		}
	}
}

// Both examples make the same nodes. Only Argo CD needs the order on the objects.
func TestGitOpsExamplesHaveTheSameNodes(t *testing.T) {
	class, pool := nodesOf(t, "argocd")
	fluxClass, fluxPool := nodesOf(t, "flux")
	for _, o := range []*unstructured.Unstructured{class, pool} {
		annotations := o.GetAnnotations()
		if delete(annotations, syncWave); len(annotations) > 0 {
			t.Errorf("%s has %v", o.GetKind(), annotations)
		}
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	if diff := cmp.Diff([]any{class.Object, pool.Object}, []any{fluxClass.Object, fluxPool.Object}); diff != "" {
		t.Errorf("(-argocd +flux)\n%s", diff)
	}
	if got, _, _ := unstructured.NestedString(pool.Object, "spec", "template", "spec", "nodeClassRef", "name"); got != class.GetName() {
		t.Errorf("the NodePool refers to the node class %q", got)
	}
}

// The API server takes the objects, with no unknown field.
func TestGitOpsNodesAreValid(t *testing.T) {
	conformer := manifest.NewConformer()
	for _, directory := range []string{"argocd", "flux"} {
		class, pool := nodesOf(t, directory)
		for _, o := range []*unstructured.Unstructured{class, pool} {
			got, err := conformer.Check(o)
			if err != nil || len(got.Unknown) > 0 || len(got.Invalid) > 0 {
				t.Errorf("%s, %s: unknown %v, invalid %v (%v)", directory, o.GetKind(), got.Unknown, got.Invalid, err)
			}
		}
	}
}

// defaulted is an object as the API server stores it.
func defaulted(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	gvk := o.GroupVersionKind()
	crd, err := crds.Of(gvk.Group, gvk.Kind)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version })
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema, internal, nil,
	); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	out := o.DeepCopy().Object
	defaulting.Default(out, structural)
	return out
}

// differences are the fields that an apply would change forever. What only the API server has is no difference, but within a list: it
// belongs as a whole to who wrote it.
func differences(path string, inGit, live any) []string {
	fields, isMap := inGit.(map[string]any)
	other, otherIsMap := live.(map[string]any)
	if !isMap || !otherIsMap {
		if cmp.Equal(inGit, live) {
			return nil
		}
		return []string{path}
	}
	var out []string
	for name, value := range fields {
		out = append(out, differences(path+"."+name, value, other[name])...)
	}
	return out
}

// Defaults that the API server adds need no ignoreDifferences.
func TestSecondSyncChangesNothing(t *testing.T) {
	added := 0
	for _, directory := range []string{"argocd", "flux"} {
		class, pool := nodesOf(t, directory)
		for _, o := range []*unstructured.Unstructured{class, pool} {
			live := defaulted(t, o)
			if got := differences(o.GetKind(), o.Object, live); len(got) > 0 {
				t.Errorf("%s: a second sync changes %v", directory, got)
			}
			if !cmp.Equal(o.Object, live) {
				added++
			}
		}
	}
	if added != 4 { // metadataOptions and disruption.budgets
		t.Errorf("the API server adds defaults to %d objects of 4: the test shows nothing", added)
	}
	_, pool := nodesOf(t, "flux") // a default within a list would be one
	budgets := []any{map[string]any{"reasons": []any{"Drifted"}}}
	if err := unstructured.SetNestedSlice(pool.Object, budgets, "spec", "disruption", "budgets"); err != nil {
		t.Fatal(err)
	}
	if got := differences("", pool.Object, defaulted(t, pool)); !slices.Equal(got, []string{".spec.disruption.budgets"}) {
		t.Errorf("of a budget without nodes: %v", got)
	}
}

// ociAddress is a chart in the registry of the releases.
func ociAddress(chart string) string {
	return "oci://" + strings.Join([]string{chartRepository, chart}, "/")
}
