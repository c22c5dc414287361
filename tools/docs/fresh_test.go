package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/glossarytest"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// The derived pages are those of the code, and use the vocabulary.
func TestDerivedFilesAreFresh(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	g, err := glossarytest.Load(Root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(Root, filepath.FromSlash(name)))
		if err != nil || string(got) != want {
			t.Errorf("%s is stale: run make generate (%v)", name, err)
		}
		if strings.HasSuffix(name, ".md") {
			for _, f := range g.CheckMarkdown(want) {
				t.Errorf("%s: %s", name, f)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(Root, "docs", "reference", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if _, ok := files["docs/reference/"+filepath.Base(page)]; !ok {
			t.Errorf("%s describes no kind", page)
		}
	}
}

// A variable of the page sets the flag beside it.
func TestVariablesOfTheSettingsPage(t *testing.T) {
	read := map[string]bool{}
	var s settings.Settings
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	s.Bind(flags, func(name string) string { read[name] = true; return "" })
	flags.VisitAll(func(f *pflag.Flag) {
		if variable := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")); !read[variable] {
			t.Errorf("the controller does not read %s", variable)
		}
	})
}

// Each check of the doctor has a section in the troubleshooting page, with its ID as the heading.
func TestEveryCheckHasItsSection(t *testing.T) {
	page := readPage(t, "docs/troubleshooting.md")
	known, areas := map[string]bool{}, map[string]bool{}
	for _, c := range doctor.Checks() {
		known[c.ID], areas[c.Area] = true, true
		if !page.anchors[c.ID] {
			t.Errorf("docs/troubleshooting.md has no heading %s", c.ID)
		}
	}
	for anchor := range page.anchors {
		if area, _, _ := strings.Cut(anchor, "-"); areas[area] && anchor != area && !known[anchor] {
			t.Errorf("docs/troubleshooting.md has the heading %s, and the doctor has no such check", anchor)
		}
	}
}
