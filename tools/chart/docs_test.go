package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

var (
	yamlBlock = regexp.MustCompile("(?ms)^\\s*```yaml\n(.*?)^\\s*```$")
	setFlag   = regexp.MustCompile(`--set ([A-Za-z.]+=[^\s"'` + "`" + `]+)`)
	inline    = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)(?:=([^`\\s]+))?`")
)

// prose is all pages that may name values of the chart.
func prose(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages (%v)", len(pages), err)
	}
	out := map[string]string{}
	for _, page := range append(pages, "../../README.md", "../../deploy/chart/dovetail/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(page)] = string(text)
	}
	return out
}

// accepted checks that the chart takes values, and knows all of them.
func accepted(t *testing.T, where string, given map[string]any) {
	t.Helper()
	all := set(given, []string{"settings", "clusterName"}, "shop")
	rendered, err := standard.render(all)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	if notes := rendered["dovetail/templates/NOTES.txt"]; strings.Contains(notes, "is not known") {
		t.Errorf("%s: %s", where, notes)
	}
}

// The values of the chart in blocks of YAML and in command lines are accepted.
func TestValuesInTheDocumentation(t *testing.T) {
	sections := map[string]bool{}
	for _, v := range values(t, "dovetail") {
		sections[v.Path[0]] = true
	}
	blocks, flags := 0, 0
	for page, text := range prose(t) {
		for _, block := range yamlBlock.FindAllStringSubmatch(text, -1) {
			given := map[string]any{}
			if yaml.Unmarshal([]byte(block[1]), &given) != nil || given["kind"] != nil || len(given) == 0 {
				continue // other YAML, such as a manifest
			}
			known := 0
			for name := range given {
				if sections[name] {
					known++
				}
			}
			if known > 0 {
				blocks++
				accepted(t, page, given)
			}
		}
		for _, flag := range setFlag.FindAllStringSubmatch(text, -1) {
			given, err := strvals.Parse(flag[1])
			if err != nil {
				t.Errorf("%s: %s: %v", page, flag[0], err)
				continue
			}
			flags++
			accepted(t, page+": "+flag[0], given)
		}
	}
	if blocks < 1 || flags < 3 {
		t.Errorf("only %d blocks and %d flags", blocks, flags)
	}
}

// The values that prose names, such as settings.clusterName, exist.
func TestValuesThatProseNames(t *testing.T) {
	known, sections := map[string]bool{}, map[string]bool{}
	for _, v := range values(t, "dovetail") {
		known[v.String()] = true
		if len(v.Path) == 1 && v.Section != nil {
			sections[v.Name()] = true
		}
	}
	named := 0
	for page, text := range prose(t) {
		for _, match := range inline.FindAllStringSubmatch(text, -1) {
			if section, _, _ := strings.Cut(match[1], "."); !sections[section] {
				continue
			}
			if match[1] == "controller.resource" { // the example of a typo
				continue
			}
			named++
			if !known[match[1]] {
				t.Errorf("%s names %s, which is no value of the chart", page, match[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d values are named", named)
	}
}
