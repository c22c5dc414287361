package schedulertest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
)

// The page about the rules of the scheduler has each plugin of the version that plans are compared with, and names those that take part.
func TestThePageHasEachPluginOfTheScheduler(t *testing.T) {
	page, err := os.ReadFile("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, compared []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \|.*\| (yes )?\|$`).FindAllStringSubmatch(string(page), -1) {
		if row[1] == "Plugin" {
			continue
		}
		listed = append(listed, row[1])
		if row[2] != "" {
			compared = append(compared, row[1])
		}
	}
	slices.Sort(listed)
	if want := slices.Sorted(maps.Keys(plugins.NewInTreeRegistry())); !slices.Equal(listed, want) {
		t.Errorf("the page lists the plugins\n%v, the scheduler has\n%v", listed, want)
	}
	if want := slices.Sorted(slices.Values(slices.Concat(filters, groupPlugins))); !slices.Equal(slices.Sorted(slices.Values(compared)), want) {
		t.Errorf("the page calls compared\n%v, the test compares\n%v", compared, want)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`k8s\.io/kubernetes v(\d+\.\d+)\.`).FindStringSubmatch(string(mod))
	if version == nil || !strings.Contains(string(page), "version "+version[1]) {
		t.Errorf("the page does not name the version %v of the scheduler", version)
	}
}
