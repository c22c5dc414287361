package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/library"
	k8syaml "sigs.k8s.io/yaml"
)

// kyvernoFile is the example of policies for Kyverno, below examples.
const kyvernoFile = "kyverno/policies.yaml"

// kyvernoHead begins the example.
const kyvernoHead = `# The policies of the chart dovetail-policies for clusters that run Kyverno (checked with 1.19): the same rules, the same messages.
# Apply them or the chart, not both. Change maxima and labels here.
# Written by: UPDATE=1 go test ./tools/docs -run Kyverno
`

// ofKyverno are the policies of the chart as those of Kyverno, which evaluates the same expressions.
func ofKyverno(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "chart", "testdata", "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := kyvernoHead
	for document := range strings.SplitSeq(string(text), "---\n") {
		if !strings.Contains(document, "kind: ValidatingAdmissionPolicy\n") {
			continue
		}
		_, named, _ := strings.Cut(document, "  name: dovetail-policies-")
		name, _, _ := strings.Cut(named, "\n")
		_, spec, found := strings.Cut(document, "spec:\n")
		if !found {
			t.Fatalf("no spec in %s", document)
		}
		out += "---\napiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata:\n  name: dovetail-" + name +
			"\nspec:\n  validationActions: [Deny]\n" + spec
	}
	return out
}

// The policies for Kyverno are those that the API server evaluates in the tests of the chart (lab/crdtest).
func TestKyvernoPoliciesAreThoseOfTheChart(t *testing.T) {
	file, want := filepath.Join("..", "..", "examples", kyvernoFile), ofKyverno(t)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(example(t, kyvernoFile)); got != want {
		t.Errorf("examples/%s is not what the chart has: run UPDATE=1 go test ./tools/docs -run Kyverno", kyvernoFile)
	}
}

// kyvernoPolicy is what the test reads of a ValidatingPolicy.
type kyvernoPolicy struct {
	Metadata struct{ Name string }
	Spec     struct {
		MatchConditions, Variables []struct{ Name, Expression string }
		Validations                []struct{ Expression, Message, MessageExpression string }
	}
}

// kyvernoSchema is that of ValidatingPolicy, which Kyverno publishes.
func kyvernoSchema(t *testing.T) *apiextensions.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "kyverno", "validatingpolicy.json"))
	if err != nil {
		t.Fatal(err)
	}
	var published apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(text, &published); err != nil {
		t.Fatal(err)
	}
	out := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&published, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// rejectedBy is what the schema states about a policy: unknown fields, and invalid values.
func rejectedBy(t *testing.T, schema *apiextensions.JSONSchemaProps, text []byte) (wrong []string) {
	t.Helper()
	var fields map[string]any
	if err := k8syaml.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range validation.ValidateCustomResource(nil, fields, validator) {
		wrong = append(wrong, err.Error())
	}
	return append(wrong, pruning.PruneWithOptions(fields, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
}

func TestKyvernoPoliciesHaveTheSchemaOfKyverno(t *testing.T) {
	schema := kyvernoSchema(t)
	all := documents(t, kyvernoFile)
	if len(all) != 8 {
		t.Errorf("%d policies, want 8", len(all))
	}
	for _, text := range all {
		if wrong := rejectedBy(t, schema, text); len(wrong) > 0 {
			t.Errorf("%v in\n%s", wrong, text)
		}
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"failurePolicy"`, `"failurePolicies"`, "spec.failurePolicies"},
		{`"Fail"`, `"Retry"`, "spec.failurePolicy"},
		{`"validations"`, `"validation"`, "spec.validation"},
		{`"messageExpression"`, `"messageExpressions"`, "spec.validations[0].messageExpressions"},
	} {
		spoiled := strings.Replace(string(all[0]), tt.old, tt.new, 1)
		if wrong := rejectedBy(t, schema, []byte(spoiled)); spoiled == string(all[0]) || !strings.Contains(strings.Join(wrong, "\n"), tt.want) {
			t.Errorf("with %q: %v, want one about %s", tt.new, wrong, tt.want)
		}
	}
}

// kyvernoEnv is the environment in which Kyverno 1.19 compiles expressions (pkg/cel/compiler/env.go), as far as the policies use it.
func kyvernoEnv(t *testing.T) *cel.Env {
	t.Helper()
	env, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Bindings(), ext.Encoders(), ext.Lists(ext.ListsVersion(3)), ext.Math(),
		ext.Sets(), ext.Strings(ext.StringsVersion(2)), library.CIDR(), library.Format(), library.IP(), library.Lists(), library.Regex(),
		library.URLs(), library.Quantity(),
		cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType),
		cel.Variable("variables", cel.MapType(cel.StringType, cel.DynType)),
	)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// evaluated is the value of an expression.
func evaluated(t *testing.T, env *cel.Env, expression string, vars map[string]any) any {
	t.Helper()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := program.Eval(vars)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return out.Value()
}

// refusal is why a policy refuses a request; empty if it does not.
func (p *kyvernoPolicy) refusal(t *testing.T, env *cel.Env, request map[string]any) string {
	t.Helper()
	vars := map[string]any{"object": request["object"], "oldObject": request["oldObject"], "request": request, "variables": map[string]any{}}
	for _, c := range p.Spec.MatchConditions {
		if evaluated(t, env, c.Expression, vars) != true {
			return ""
		}
	}
	values := map[string]any{}
	for _, v := range p.Spec.Variables {
		values[v.Name] = evaluated(t, env, v.Expression, vars)
	}
	vars["variables"] = values
	for _, v := range p.Spec.Validations {
		if evaluated(t, env, v.Expression, vars) == true {
			continue
		}
		if v.MessageExpression != "" {
			return evaluated(t, env, v.MessageExpression, vars).(string)
		}
		return v.Message
	}
	return ""
}

// Each policy refuses an object that violates it and accepts one that does not, in the environment of Kyverno.
func TestKyvernoPoliciesRefuseWhatTheChartRefuses(t *testing.T) {
	env := kyvernoEnv(t)
	policies := map[string]*kyvernoPolicy{}
	for _, text := range documents(t, kyvernoFile) {
		p := &kyvernoPolicy{}
		if err := k8syaml.Unmarshal(text, p); err != nil {
			t.Fatal(err)
		}
		policies[p.Metadata.Name] = p
	}
	const pool, class = "{operation: CREATE, object: {metadata: {name: a}, spec: {", "{operation: CREATE, object: {metadata: {name: a, labels: {env: prod}}, spec: {"
	judged := map[string]bool{}
	for _, tt := range []struct{ policy, refused, accepted, says string }{
		{
			"confirm-delete", "{operation: DELETE, oldObject: {metadata: {name: a}, status: {nodes: 3}}}",
			"{operation: DELETE, oldObject: {metadata: {name: a, annotations: {dovetail.sh/confirm-delete: a}}, status: {nodes: 3}}}",
			"NodePool a has 3 nodes",
		},
		{
			"confirm-delete", "{operation: DELETE, oldObject: {metadata: {name: a, annotations: {dovetail.sh/confirm-delete: b}}, status: {nodes: 1}}}",
			"{operation: DELETE, oldObject: {metadata: {name: a}, status: {nodes: 0}}}", "To confirm it",
		},
		{"limits", pool + "}}}", pool + "limits: {cpu: 1k}}}}", "neither cpu nor nodes"},
		{"limits", pool + "limits: {cpu: 1000001m}}}}", pool + "limits: {nodes: 100}}}}", "spec.limits.cpu is above 1000"},
		{"limits", pool + "limits: {nodes: 101}}}}", pool + "limits: {cpu: 1, nodes: 1}}}}", "spec.limits.nodes is above 100"},
		{
			"node-age", pool + "template: {spec: {expireAfter: 721h, terminationGracePeriod: 1h}}}}}",
			pool + "template: {spec: {expireAfter: 720h, terminationGracePeriod: 1h}}}}}", "expireAfter is above 720h",
		},
		{
			"pinned-images", class + "amiSelectorTerms: [{alias: al2023@latest}]}}}",
			class + "amiSelectorTerms: [{alias: al2023@v20260601}]}}}", "is @latest",
		},
		{ // the label of another environment
			"pinned-images", class + "amiSelectorTerms: [{tags: {a: b}}, {alias: bottlerocket@latest}]}}}",
			pool + "amiSelectorTerms: [{alias: bottlerocket@latest}]}}}", "is @latest",
		},
		{
			"required-labels", pool + "}}}", "{operation: CREATE, object: {metadata: {name: a, labels: {team: b}}, spec: {}}}",
			"metadata.labels has no team",
		},
		{ // the controller may change what was there before
			"required-labels", "{operation: UPDATE, object: {metadata: {name: a}, spec: {weight: 2}}, oldObject: {metadata: {name: a}, spec: {}}}",
			"{operation: UPDATE, object: {metadata: {name: a, finalizers: [x]}, spec: {}}, oldObject: {metadata: {name: a}, spec: {}}}",
			"metadata.labels has no team",
		},
		{
			"required-node-labels", pool + "template: {}}}}", pool + "template: {metadata: {labels: {example.com/team: b}}}}}}",
			"has no example.com/team",
		},
		{
			"instance-metadata", class + "metadataOptions: {httpPutResponseHopLimit: 2}}}}",
			class + "metadataOptions: {httpPutResponseHopLimit: 1}}}}", "HopLimit is above 1",
		},
		{
			"encrypted-volumes", class + "blockDeviceMappings: [{ebs: {volumeSize: 1Gi}}]}}}",
			class + "blockDeviceMappings: [{ebs: {encrypted: true}}]}}}", "ebs.encrypted",
		},
	} {
		judged["dovetail-"+tt.policy] = true
		policy := policies["dovetail-"+tt.policy]
		if policy == nil {
			t.Errorf("there is no policy %s", tt.policy)
			continue
		}
		if got := policy.refusal(t, env, requestOf(t, tt.refused)); !strings.Contains(got, tt.says) {
			t.Errorf("%s: %s: %q, want %q", tt.policy, tt.refused, got, tt.says)
		}
		if got := policy.refusal(t, env, requestOf(t, tt.accepted)); got != "" {
			t.Errorf("%s: %s: %q", tt.policy, tt.accepted, got)
		}
	}
	for name := range policies {
		if !judged[name] {
			t.Errorf("no example of %s", name)
		}
	}
}

// requestOf is a request for admission.
func requestOf(t *testing.T, text string) map[string]any {
	t.Helper()
	asJSON, err := k8syaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(asJSON)))
	decoder.UseNumber()
	if err := decoder.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return integers(out).(map[string]any)
}

// integers has numbers as the API server has them: integers stay integers.
func integers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = integers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = integers(item)
		}
	case json.Number:
		n, _ := v.Int64() // the examples have no others
		return n
	}
	return value
}
