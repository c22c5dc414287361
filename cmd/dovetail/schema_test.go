package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/randfill"

	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/clusters"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/poolreport"
	"github.com/dovetail-k8s/dovetail/internal/instancetypelist"
	"github.com/dovetail-k8s/dovetail/internal/migrate"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	recordertext "github.com/dovetail-k8s/dovetail/internal/recorder/text"
	"github.com/dovetail-k8s/dovetail/internal/report"
	"github.com/dovetail-k8s/dovetail/internal/shadow"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// documents are what commands print with -o json, by kind, but Plan: docs/plan.schema.json is written by hand.
var documents = map[string]reflect.Type{
	"Assessment":          reflect.TypeFor[assess.Report](),
	"AssessmentList":      reflect.TypeFor[clusters.List[assess.Report]](),
	"Decision":            reflect.TypeFor[recorder.Decision](),
	"DecisionList":        reflect.TypeFor[recordertext.List](),
	"DeletionList":        reflect.TypeFor[recordertext.Deletions](),
	"Findings":            reflect.TypeFor[doctor.Report](),
	"FindingsList":        reflect.TypeFor[clusters.List[doctor.Report]](),
	"Fleet":               reflect.TypeFor[top.Report](),
	"FleetList":           reflect.TypeFor[clusters.List[top.Report]](),
	"InstanceTypeList":    reflect.TypeFor[instancetypelist.Document](),
	"MigrationCheck":      reflect.TypeFor[migrate.Report](),
	"MigrationPlan":       reflect.TypeFor[migrate.Plan](),
	"NodeExplanation":     reflect.TypeFor[nodereport.Report](),
	"NodePoolExplanation": reflect.TypeFor[poolreport.Report](),
	"PodExplanation":      reflect.TypeFor[podreport.Report](),
	"ReplayReport":        reflect.TypeFor[replayReport](),
	"ShadowReport":        reflect.TypeFor[shadow.Report](),
	"Version":             reflect.TypeFor[versionReport](),
}

// schemaDir has a file for each kind.
const schemaDir = "../../docs/schema"

// schemaOf is the schema of a kind: that of its type, with apiVersion and kind.
func schemaOf(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	text, number := &jsonschema.Schema{Type: "string"}, &jsonschema.Schema{Type: "number"}
	s, err := jsonschema.ForType(documents[kind], &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[resource.Quantity](): text,
		reflect.TypeFor[quantity.Number]():   number,
		reflect.TypeFor[disrupt.PoolCosts](): {Type: "array", Items: &jsonschema.Schema{Type: "object"}},
		reflect.TypeFor[rejection.Rule]():    {Type: "object", Description: "As rule in plan.schema.json."},
		reflect.TypeFor[podreport.Operation](): {
			Type: "object", Properties: map[string]*jsonschema.Schema{"op": text, "path": text, "value": {}}, Required: []string{"op", "path"},
		},
	}})
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	fixed := func(text string) *jsonschema.Schema {
		var value any = text
		return &jsonschema.Schema{Const: &value}
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "dovetail -o json, kind "+kind
	s.Properties["apiVersion"], s.Properties["kind"] = fixed(report.APIVersion), fixed(kind)
	s.Required = append([]string{"apiVersion", "kind"}, s.Required...)
	s.PropertyOrder = append([]string{"apiVersion", "kind"}, s.PropertyOrder...)
	return s
}

// The published schemas are those of the program. UPDATE=1 writes them.
func TestSchemasAreFresh(t *testing.T) {
	if os.Getenv("UPDATE") != "" {
		if err := os.RemoveAll(schemaDir); err != nil {
			t.Fatal(err)
		}
	}
	for kind := range documents {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(schemaOf(t, kind)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(schemaDir, kind+".schema.json")
		if os.Getenv("UPDATE") != "" {
			if err := os.MkdirAll(schemaDir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text.Bytes()) {
			t.Errorf("%s is not that of the program (%v): UPDATE=1 go test ./cmd/dovetail -run TestSchemasAreFresh", path, err)
		}
	}
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind := range documents {
		if !strings.Contains(string(page), "`"+kind+"`") {
			t.Errorf("docs/cli.md does not name %s", kind)
		}
	}
	files, err := filepath.Glob(filepath.Join(schemaDir, "*"))
	if err != nil || len(files) != len(documents) {
		t.Errorf("%d files for %d kinds: %v", len(files), len(documents), err)
	}
}

// checkDocument checks what a command has printed against the schema of its kind.
func checkDocument(t *testing.T, document string) string {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal([]byte(document), &value); err != nil {
		t.Fatalf("%v in %.200s", err, document)
	}
	kind, _ := value["kind"].(string)
	if documents[kind] == nil {
		t.Fatalf("kind %q in %.100s", kind, document)
	}
	if !strings.HasPrefix(document, "{\n  \"apiVersion\": \""+report.APIVersion+"\",\n  \"kind\": ") {
		t.Errorf("begins with %.100s", document)
	}
	resolved, err := schemaOf(t, kind).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%s: %v\n%.300s", kind, err, document)
	}
	return kind
}

// What commands print keeps to the schema of its kind.
func TestDocumentsKeepToTheirSchemas(t *testing.T) {
	for _, args := range [][]string{
		{"version"},
		{"instance-types", "m5.large", "t3.*"},
		{"instance-types", "m5.large", "-f", examplePool, "--all"},
		{"assess", "-f", "testdata/assess.yaml"},
		{"explain", "pod", "ml/train-0", "-f", "../../examples/explain"},
		{"explain", "nodepool", "general", "-f", "../../examples/explain"},
		{"explain", "node", "ip-10-0-1-12", "-f", assessedFiles},
		{"recording", "list", "-f", consolidationRecording},
		{"recording", "show", consolidatedAt, "-f", consolidationRecording},
		{"replay", consolidationRecording, "--at", consolidatedAt},
	} {
		stdout, _, err := command("", append(slices.Clone(args), "-o", "json")...)
		if err != nil && codeOf(err) != exitIncomplete {
			t.Errorf("%q: %v", args, err)
			continue
		}
		checkDocument(t, stdout)
	}
}

// Whatever a document has, it keeps to the schema of its kind.
func TestFilledDocumentsKeepToTheirSchemas(t *testing.T) {
	for seed := range int64(20) {
		fill := randfill.NewWithSeed(seed).NilChance(0).NumElements(0, 3).MaxDepth(8).Funcs(
			func(r *rejection.Rule, _ randfill.Continue) { *r = rejection.Rule{} },
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
			},
			func(at *time.Time, c randfill.Continue) { *at = time.Unix(c.Int63n(1e9), 0).UTC() },
			func(value *any, c randfill.Continue) { *value = c.Uint64() },
			func(n *float64, c randfill.Continue) { *n = c.Float64() },
			func(o *podreport.Operation, c randfill.Continue) {
				*o = podreport.Operation{Op: "add", Path: "/" + c.String(3), Value: c.Int()}
			},
		)
		for kind, of := range documents {
			filled := reflect.New(of)
			fill.Fill(filled.Interface())
			var text bytes.Buffer
			if err := report.JSON(&text, kind, filled.Interface()); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if got := checkDocument(t, text.String()); got != kind {
				t.Errorf("kind %s, want %s", got, kind)
			}
		}
	}
}
