package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/dovetail-k8s/dovetail/internal/aws/interruption"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// terraform is the Terraform example: all blocks of its files.
func terraform(t *testing.T) []*hclsyntax.Block {
	t.Helper()
	return blocksOf(t, "terraform")
}

// terraformExamples are the directories of both: plain resources, and the usual module.
var terraformExamples = []string{"terraform", "terraform-module"}

// blocksOf are all blocks of a Terraform example.
func blocksOf(t *testing.T, directory string) (blocks []*hclsyntax.Block) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Root, "examples", directory, "*.tf"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	parser := hclparse.NewParser()
	for _, file := range files {
		parsed, diags := parser.ParseHCLFile(file)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		blocks = append(blocks, parsed.Body.(*hclsyntax.Body).Blocks...)
	}
	return blocks
}

// declared are the names that expressions may refer to, such as var.region, and how often each may be there: once.
func declared(t *testing.T, blocks []*hclsyntax.Block) map[string]*hclsyntax.Block {
	out := map[string]*hclsyntax.Block{}
	add := func(name string, b *hclsyntax.Block) {
		if _, twice := out[name]; twice {
			t.Errorf("%s is declared twice", name)
		}
		out[name] = b
	}
	for _, b := range blocks {
		switch b.Type {
		case "variable":
			add("var."+b.Labels[0], b)
		case "resource":
			add(strings.Join(b.Labels, "."), b)
		case "data":
			add("data."+strings.Join(b.Labels, "."), b)
		case "module":
			add("module."+b.Labels[0], b)
		case "output":
			add("output."+b.Labels[0], b)
		case "locals":
			for name := range b.Body.Attributes {
				add("local."+name, b)
			}
		}
	}
	return out
}

// reference is the name that a traversal refers to; empty for what Terraform itself defines.
func reference(traversal hcl.Traversal) string {
	names := []string{traversal.RootName()}
	for _, step := range traversal[1:] {
		attribute, ok := step.(hcl.TraverseAttr)
		if !ok {
			break
		}
		names = append(names, attribute.Name)
	}
	parts := map[string]int{"var": 2, "local": 2, "module": 2, "data": 3, "path": 0, "each": 0, "count": 0, "self": 0, "terraform": 0}
	n, special := parts[names[0]]
	if !special {
		n = 2 // a resource
	}
	return strings.Join(names[:min(n, len(names))], ".")
}

// expressions calls f for each attribute of a body and of the blocks in it.
func expressions(body *hclsyntax.Body, f func(*hclsyntax.Attribute)) {
	for _, a := range body.Attributes {
		f(a)
	}
	for _, b := range body.Blocks {
		expressions(b.Body, f)
	}
}

// Every name that an expression uses is declared, and every variable and local value is used.
func TestTerraformReferencesResolve(t *testing.T) {
	for _, directory := range terraformExamples {
		t.Run(directory, func(t *testing.T) { checkReferences(t, blocksOf(t, directory)) })
	}
}

func checkReferences(t *testing.T, blocks []*hclsyntax.Block) {
	t.Helper()
	known, used := declared(t, blocks), map[string]bool{}
	for _, b := range blocks {
		expressions(b.Body, func(a *hclsyntax.Attribute) {
			if b.Type == "variable" && a.Name == "type" { // a type, not a value
				return
			}
			for _, traversal := range a.Expr.Variables() {
				name := reference(traversal)
				if name == "" {
					continue
				}
				used[name] = true
				if _, ok := known[name]; !ok {
					t.Errorf("%s: %s is not declared", traversal.SourceRange(), name)
				}
			}
		})
	}
	for name := range known {
		kind, _, _ := strings.Cut(name, ".")
		if (kind == "var" || kind == "local" || kind == "data") && !used[name] {
			t.Errorf("nothing uses %s", name)
		}
	}
}

// Each provider that resources need is required, and no other.
func TestTerraformProvidersAreRequired(t *testing.T) {
	for _, directory := range terraformExamples {
		t.Run(directory, func(t *testing.T) { checkProviders(t, blocksOf(t, directory)) })
	}
}

func checkProviders(t *testing.T, blocks []*hclsyntax.Block) {
	t.Helper()
	required, used := map[string]bool{}, map[string]bool{}
	for _, b := range blocks {
		switch b.Type {
		case "terraform":
			for name := range b.Body.Blocks[0].Body.Attributes {
				required[name] = true
			}
		case "resource", "data":
			provider, _, _ := strings.Cut(b.Labels[0], "_")
			used[provider] = true
		}
	}
	if diff := cmp.Diff(used, required); diff != "" {
		t.Errorf("(-used +required)\n%s", diff)
	}
}

// The rules of the example send exactly the events that the controller acts on.
func TestTerraformRulesAreThoseOfTheController(t *testing.T) {
	var got []interruption.Event
	for _, b := range terraform(t) {
		events, ok := b.Body.Attributes["events"]
		if b.Type != "locals" || !ok {
			continue
		}
		value, diags := events.Expr.Value(nil)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		for _, rule := range value.AsValueMap() {
			event := rule.AsValueMap()
			got = append(got, interruption.Event{Source: event["source"].AsString(), DetailType: event["detail_type"].AsString()})
		}
	}
	if diff := cmp.Diff(interruption.Events(), sorted(got)); diff != "" {
		t.Errorf("(-controller +examples/terraform)\n%s", diff)
	}
}

func sorted(events []interruption.Event) []interruption.Event {
	slices.SortFunc(events, func(a, b interruption.Event) int {
		return strings.Compare(a.Source+a.DetailType, b.Source+b.DetailType)
	})
	return events
}

// The policy of the example is that of `dovetail iam-policy` for the same cluster.
func TestTerraformPolicyIsTheCommands(t *testing.T) {
	want, err := Policy()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(Root, PolicyTemplate))
	if err != nil || string(got) != want {
		t.Fatalf("%s is stale: run make generate (%v)", PolicyTemplate, err)
	}
	values := map[string]string{
		"identity": "3f2c1a9e-7d44-4c0b-9a55-0d6e1f2b3c4d", "account": "111122223333", "region": "eu-west-1", "cluster_name": "shop",
		"queue": "shop", "node_role": "KarpenterNodeRole-shop", "partition": "aws",
	}
	document, err := policy.New(policy.Params{
		Cluster: "shop", Identity: values["identity"], Region: values["region"], Account: values["account"], Queues: []string{"shop"},
		NodeRoles: []string{values["node_role"]},
	})
	if err != nil {
		t.Fatal(err)
	}
	own, err := document.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, own), decode(t, []byte(fill(t, string(got), values)))); diff != "" {
		t.Errorf("(-dovetail iam-policy +examples/terraform)\n%s", diff)
	}
	for _, b := range terraform(t) { // templatefile gets the same names
		if b.Type != "resource" || b.Labels[0] != "aws_iam_role_policy" {
			continue
		}
		call := b.Body.Attributes["policy"].Expr.(*hclsyntax.FunctionCallExpr)
		for _, item := range call.Args[1].(*hclsyntax.ObjectConsExpr).Items {
			name := hcl.ExprAsKeyword(item.KeyExpr)
			if _, ok := values[name]; !ok {
				t.Errorf("the template has no %s", name)
			}
			delete(values, name)
		}
	}
	if len(values) > 0 {
		t.Errorf("templatefile is not given %v", values)
	}
}

// fill is what Terraform's templatefile makes of a template.
func fill(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	expression, diags := hclsyntax.ParseTemplate([]byte(text), PolicyTemplate, hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	ctx := &hcl.EvalContext{Variables: map[string]cty.Value{}}
	for name, value := range values {
		ctx.Variables[name] = cty.StringVal(value)
	}
	out, diags := expression.Value(ctx)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return out.AsString()
}

func decode(t *testing.T, text []byte) (out any) {
	t.Helper()
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The values that the example gives the chart are in the chart's schema.
func TestTerraformValuesAreTheCharts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(Root, "deploy", "chart", "dovetail", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema valueSchema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, b := range append(terraform(t), blocksOf(t, "terraform-module")...) {
		values, ok := b.Body.Attributes["values"]
		if b.Type != "resource" || b.Labels[0] != "helm_release" || !ok {
			continue
		}
		encode := values.Expr.(*hclsyntax.TupleConsExpr).Exprs[0].(*hclsyntax.FunctionCallExpr)
		given := encode.Args
		if merge, ok := given[0].(*hclsyntax.FunctionCallExpr); ok {
			given = merge.Args
		}
		for _, given := range given {
			seen += checkValues(t, "", given, schema)
		}
	}
	if seen < 8 {
		t.Errorf("only %d values", seen)
	}
}

// valueSchema is what is needed of a schema to know names.
type valueSchema struct {
	Properties map[string]valueSchema `json:"properties"`
}

// checkValues compares the keys of an object, or of the object that a for expression makes, with a schema, and counts them.
func checkValues(t *testing.T, path string, given hclsyntax.Expression, schema valueSchema) (n int) {
	check := func(key hclsyntax.Expression, value hclsyntax.Expression) {
		name := hcl.ExprAsKeyword(key)
		if literal, diags := key.Value(nil); name == "" && !diags.HasErrors() {
			name = literal.AsString()
		}
		below, ok := schema.Properties[name]
		if !ok {
			t.Errorf("%s: %s%s is no value of the chart", key.Range(), path, name)
		}
		n += 1 + checkValues(t, path+name+".", value, below)
	}
	switch given := given.(type) {
	case *hclsyntax.ObjectConsExpr:
		for _, item := range given.Items {
			check(item.KeyExpr, item.ValueExpr)
		}
	case *hclsyntax.ForExpr:
		check(given.KeyExpr, given.ValExpr)
	}
	return n
}

// The template of the example for the module is given its variables, and what it makes fits into a managed policy.
func TestPolicyBesideTheTerraformModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(Root, ModulePolicyTemplate))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"identity": "3f2c1a9e-7d44-4c0b-9a55-0d6e1f2b3c4d", "account": "111122223333", "region": "ap-southeast-1",
		"cluster_name": strings.Repeat("x", 46), "node_role": strings.Repeat("r", 64), "partition": "aws-us-gov",
	}
	for _, b := range blocksOf(t, "terraform-module") {
		if b.Type != "resource" || b.Labels[0] != "aws_iam_policy" {
			continue
		}
		given := map[string]string{}
		for _, item := range b.Body.Attributes["policy"].Expr.(*hclsyntax.FunctionCallExpr).Args[1].(*hclsyntax.ObjectConsExpr).Items {
			name := hcl.ExprAsKeyword(item.KeyExpr)
			given[name] = values[name]
		}
		filled := fill(t, string(text), given)
		decode(t, []byte(filled))
		if size := len(strings.Join(strings.Fields(filled), "")); size > policy.ManagedLimit {
			t.Errorf("%d characters, and a managed policy has %d", size, policy.ManagedLimit)
		}
		return
	}
	t.Error("no policy")
}
