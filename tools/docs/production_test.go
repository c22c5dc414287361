package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The production checklist has the defaults of the chart.
func TestProductionPageHasTheDefaultsOfTheChart(t *testing.T) {
	read := func(path ...string) []byte {
		content, err := os.ReadFile(filepath.Join(append([]string{Root}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	var chart struct {
		Replicas            int
		PriorityClassName   string
		PodDisruptionBudget struct{ MaxUnavailable int }
		Controller          struct {
			Resources        map[string]any
			DefaultResources struct{ Requests, Limits struct{ CPU, Memory string } }
		}
	}
	if err := yaml.Unmarshal(read("deploy", "chart", "dovetail", "values.yaml"), &chart); err != nil {
		t.Fatal(err)
	}
	requests, limits := chart.Controller.DefaultResources.Requests, chart.Controller.DefaultResources.Limits
	if chart.Replicas != 2 || limits.CPU != "" || len(chart.Controller.Resources) > 0 {
		t.Errorf("the page describes two replicas without a limit of CPU, and the chart has %d and %q", chart.Replicas, limits.CPU)
	}
	page := string(read("docs", "production.md"))
	for _, want := range []string{
		fmt.Sprintf("| requests | %s CPU, %s memory |", requests.CPU, requests.Memory),
		fmt.Sprintf("| limits | %s memory, no CPU limit |", limits.Memory),
		fmt.Sprintf("**PodDisruptionBudget** with `maxUnavailable: %d`, the default", chart.PodDisruptionBudget.MaxUnavailable),
		fmt.Sprintf("**Priority** `%s`, the default", chart.PriorityClassName),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/production.md has no %q", want)
		}
	}
}
