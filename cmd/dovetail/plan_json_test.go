package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// planJSON plans the written world with the instance types of the examples, and returns what is printed.
func planJSON(t *testing.T, args ...string) string {
	t.Helper()
	stdout, _, err := command("", append([]string{
		"plan", "-f", examplePool, "-f", "testdata/plan/world.yaml", "--catalog", "../../examples/catalog/instance-types.json", "-o", "json",
	}, args...)...)
	var code exitCode
	if !errors.As(err, &code) || code != exitIncomplete {
		t.Fatalf("%v, want the exit code of a pod that is left over", err)
	}
	return stdout
}

// planSchema is the schema that users have.
func planSchema(t *testing.T) *spec.Schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema := &spec.Schema{}
	if err := json.Unmarshal(text, schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// judge returns what a document breaks of the schema.
func judge(t *testing.T, document string) error {
	t.Helper()
	var fields any
	if err := json.Unmarshal([]byte(document), &fields); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(planSchema(t), nil, "", strfmt.Default).Validate(fields).AsError()
}

// Programs read this: names, order, types and the spelling of quantities.
func TestJSONIsAsWritten(t *testing.T) {
	want, err := os.ReadFile("testdata/plan/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	bound := regexp.MustCompile(`"lowerBound": [0-9.e-]+`) // gets better with the engine
	alike := func(text string) string { return bound.ReplaceAllString(text, `"lowerBound": 0.1`) }
	if diff := cmp.Diff(alike(string(want)), alike(planJSON(t, "--no-timings"))); diff != "" {
		t.Errorf("plan.json (-want +got):\n%s", diff)
	}
}

func TestJSONKeepsToItsSchema(t *testing.T) {
	good := planJSON(t)
	for _, args := range [][]string{{"--no-timings"}, {"--node-overhead-cost", "0.1"}} {
		if err := judge(t, planJSON(t, args...)); err != nil {
			t.Errorf("with %q: %v", args, err)
		}
	}
	if err := judge(t, good); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct{ name, from, to string }{
		{"a field that is not known", `"nodePool": "general"`, `"nodePool": "general", "pool": ""`},
		{"a field that is missing", `"zone":`, `"zones":`},
		{"a price in words", `"price": 0`, `"price": "0", "was": 0`},
		{"a quantity that is a number", `"cpu": "3"`, `"cpu": 3`},
		{"a quantity that nobody reads", `"memory": "6Gi"`, `"memory": "6 GiB"`},
		{"a pod without its namespace", `"shop/db-0"`, `"db-0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(good, tt.from, tt.to, 1)
			if bad == good {
				t.Fatalf("there is no %s in:\n%s", tt.from, good)
			}
			if judge(t, bad) == nil {
				t.Errorf("the schema lets pass:\n%s", bad)
			}
		})
	}
}

// Anyone who validates plans against the schema finds each field that a rule can have in it.
func TestSchemaHasTheFieldsOfRules(t *testing.T) {
	pod := planSchema(t).Properties["unschedulable"].Items.Schema
	rule := pod.Properties["reasons"].Items.Schema.Properties["rule"]
	compareSchema(t, "rule", reflect.TypeFor[rejection.Rule](), &rule)
}

// compareSchema compares the fields of a type, and of the types of its fields, with a schema.
func compareSchema(t *testing.T, at string, typ reflect.Type, schema *spec.Schema) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Pointer:
		compareSchema(t, at, typ.Elem(), schema)
	case reflect.Slice:
		if schema.Items == nil || schema.Items.Schema == nil {
			t.Fatalf("%s is no list in the schema", at)
		}
		compareSchema(t, at+"[]", typ.Elem(), schema.Items.Schema)
	case reflect.Struct:
		var want []string
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			// The rule within the rule of a group is described once, and is any object here.
			if property, found := schema.Properties[name]; found && f.Type != reflect.TypeFor[*rejection.Rule]() {
				compareSchema(t, at+"."+name, f.Type, &property)
			}
			if !f.Anonymous {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
			t.Errorf("%s (-Go +schema):\n%s", at, diff)
		}
	}
}
