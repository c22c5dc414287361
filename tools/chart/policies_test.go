package chart

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

var policies = release{"dovetail-policies", "dovetail-policies", "kube-system"}

// policyNames are the policies that values make, each with its binding, without the name of the release.
func policyNames(t *testing.T, values string) (out []string) {
	t.Helper()
	text, err := policies.manifests(valuesOf(t, values))
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	bound := map[string]int{}
	for doc := range strings.SplitSeq(text, "---\n") {
		o := valuesOf(t, doc)
		metadata, ok := o["metadata"].(map[string]any)
		if !ok {
			continue
		}
		name := strings.TrimPrefix(metadata["name"].(string), policies.name+"-")
		if bound[name]++; o["kind"] == "ValidatingAdmissionPolicy" {
			out = append(out, name)
		}
	}
	for name, n := range bound {
		if n != 2 {
			t.Errorf("%s: %d objects of %s, want the policy and its binding", values, n, name)
		}
	}
	slices.Sort(out)
	return out
}

// Each policy has a switch, which is its own. Only the policy that needs a choice of labels is off by default.
func TestPoliciesCanBeSwitchedOff(t *testing.T) {
	all := policyNames(t, "{}")
	want := []string{"confirm-delete", "encrypted-volumes", "instance-metadata", "limits", "node-age", "pinned-images"}
	if !slices.Equal(all, want) {
		t.Errorf("by default %v, want %v", all, want)
	}
	switches := 0
	for _, v := range values(t, "dovetail-policies") {
		section, found := strings.CutSuffix(v.String(), ".enabled")
		if !found || section == "requiredLabels" {
			continue
		}
		switches++
		left := policyNames(t, fmt.Sprintf("{%s: {enabled: false}}", section))
		gone := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(left, name) })
		if len(gone) != 1 || strings.ReplaceAll(gone[0], "-", "") != strings.ToLower(section) || len(left) != len(all)-1 {
			t.Errorf("%s switches off %v", section, gone)
		}
	}
	if switches != len(all) {
		t.Errorf("%d switches of %d policies", switches, len(all))
	}
	labels := policyNames(t, "{requiredLabels: {enabled: true, nodes: [team]}}")
	if !slices.Contains(labels, "required-labels") || !slices.Contains(labels, "required-node-labels") {
		t.Errorf("with required labels: %v", labels)
	}
}

// A misspelled switch would leave a policy on or a maximum off, so that the chart refuses it.
func TestPoliciesRefuseUnknownValues(t *testing.T) {
	for values, says := range map[string]string{
		"{limits: {maxCpu: 10}}":                       "maxCpu",
		"{encryptedVolume: {enabled: false}}":          "encryptedVolume",
		"{confirmDelete: {enabled: \"no\"}}":           "enabled",
		"{requiredLabels: {enabled: true, nodes: {}}}": "nodes",
	} {
		if _, err := policies.render(valuesOf(t, values)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want %q", values, err, says)
		}
	}
}

// Null takes a default away. A policy without its section is off, and one without what it compares with is refused.
func TestAnyValueOfPoliciesMayBeNull(t *testing.T) {
	c, err := loader.Load(filepath.Join(charts, policies.chart))
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, v := range values(t, policies.chart) {
		given := set(valuesOf(t, "{requiredLabels: {enabled: true}}"), strings.Split(v.String(), "."), nil)
		options := chartutil.ReleaseOptions{Name: policies.name, Namespace: policies.namespace, IsInstall: true}
		all, err := chartutil.ToRenderValues(c, given, options, nil)
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		rendered, err := engine.Render(c, all)
		if err != nil {
			if refused = append(refused, v.String()); !strings.Contains(err.Error(), v.String()+" is required") {
				t.Errorf("%s: %v", v, err)
			}
		}
		for name, text := range rendered {
			if strings.Contains(text, "<no value>") || strings.Contains(text, "<nil>") || strings.Contains(text, "null") {
				t.Errorf("%s: %s has the text of a missing value", v, name)
			}
		}
	}
	if want := []string{"validationActions", "nodeAge.maxExpireAfter", "instanceMetadata.maxHopLimit"}; !slices.Equal(refused, want) {
		t.Errorf("refused %v, want %v", refused, want)
	}
}

// The page about policies has each of them, and its values are accepted.
func TestPageNamesEachPolicy(t *testing.T) {
	text := prose(t)["gitops.md"]
	for _, v := range values(t, policies.chart) {
		if v.Section != nil && !strings.Contains(text, "| `"+v.Name()+"`") {
			t.Errorf("docs/gitops.md has no row of %s", v)
		}
	}
	blocks := 0
	for _, block := range yamlBlock.FindAllStringSubmatch(text, -1) {
		if strings.Contains(block[1], "objectSelector") {
			blocks++
			if names := policyNames(t, block[1]); !slices.Contains(names, "required-node-labels") {
				t.Errorf("the values make %v", names)
			}
		}
	}
	if blocks != 1 {
		t.Errorf("%d blocks of values", blocks)
	}
}
