package glossarytest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dovetail-k8s/dovetail/internal/glossarytest"
)

const root = "../.."

func TestDocumentsUseTheVocabulary(t *testing.T) {
	g, err := glossarytest.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 10 {
		t.Fatalf("found %d pages in docs only: is the root of the repository still %s?", len(pages), root)
	}
	designs, err := filepath.Glob(filepath.Join(root, "designs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, designs...), filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"))
	for _, page := range pages {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.ToSlash(name) == glossarytest.Path {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range g.CheckMarkdown(string(text)) {
			t.Errorf("%s: %s", name, f)
		}
	}
}

// The comments of the chart's values and the descriptions of the schema are documentation, too.
func TestReferencesUseTheVocabulary(t *testing.T) {
	g, err := glossarytest.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"docs/plan.schema.json", "deploy/chart/dovetail/values.yaml", "deploy/chart/dovetail/templates/NOTES.txt",
		"deploy/chart/dovetail-crd/values.yaml", "deploy/chart/dovetail/rules/dovetail.yaml",
	}
	for _, page := range []string{"overview", "capacity", "disruption", "performance", "failures"} {
		names = append(names, "deploy/chart/dovetail/dashboards/dovetail-"+page+".json")
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range g.Check(string(text)) {
			t.Errorf("%s: %s", name, f)
		}
	}
}

func TestMakeHelpUsesTheVocabulary(t *testing.T) {
	g, err := glossarytest.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([a-z-]+):.*## (.*)$`).FindAllStringSubmatch(string(makefile), -1)
	if len(targets) == 0 {
		t.Fatal("the Makefile has no target with a help text")
	}
	for _, target := range targets {
		for _, f := range g.Check(target[2]) {
			t.Errorf("make %s: %s", target[1], f)
		}
	}
}

const example = `
| Not | But | Checked |
|---|---|---|
| buy, buys | launch | prose |
| give back, gives back | terminate | prose |
| machine | instance | prose |
| kind (of pods) | class | code |

| Phrase | Why |
|---|---|
| machine image | AMI |

| Other | Table |
|---|---|
| node | x |
`

func TestCheck(t *testing.T) {
	g, err := glossarytest.Parse(example)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, text string
		want       []glossarytest.Finding
	}{
		{"whole words in any case", "Buy it\nbuyer buys", []glossarytest.Finding{{Line: 1, Word: "Buy", Instead: "launch"}, {
			Line: 2,
			Word: "buys", Instead: "launch",
		}}},
		{"phrases", "it gives  back", []glossarytest.Finding{{Line: 1, Word: "gives  back", Instead: "terminate"}}},
		{"phrases that a line break divides", "it gives\nback", []glossarytest.Finding{{Line: 1, Word: "gives\nback", Instead: "terminate"}}},
		{"allowed phrases", "the machine\nimage", nil},
		{"lines after an allowed phrase", "machine\nimage\nbuy", []glossarytest.Finding{{Line: 3, Word: "buy", Instead: "launch"}}},
		{"words for review", "a kind of node", nil},
		{"code spans, code blocks and link targets", "`buy` [x](buy.md)\n```sh\nbuy\n```\nbuy", []glossarytest.Finding{{
			Line: 5, Word: "buy",
			Instead: "launch",
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := g.CheckMarkdown(tt.text)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(glossarytest.Finding{}, "Text")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesAPageWithoutTables(t *testing.T) {
	if _, err := glossarytest.Parse("# Glossary\n"); err == nil {
		t.Error("no error")
	}
}

func ExampleGlossary_Check() {
	g, err := glossarytest.Parse(example)
	if err != nil {
		panic(err)
	}
	for _, f := range g.Check("dovetail buys nodes") {
		fmt.Println(f)
	}
	// Output: line 1: "buys": use launch: dovetail buys nodes
}
