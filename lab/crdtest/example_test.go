package crdtest

import (
	"fmt"
	"strings"
)

// row is one rule at one field, with an example of each outcome. Examples start from an object in which
// every field is set.
type row struct {
	// rule is a name from patterns or rules, or the schema's own word: required, enum, min, max, minLength,
	// maxLength, minItems, maxItems, maxProperties, unique, date.
	rule string
	// field is where the rule stands, for example spec.limits.cpu or spec.taints[0].key.
	field string
	// accept and refuse are values for the field, as YAML. Objects are merged into what is there (null
	// removes), anything else replaces it. Without accept the field stays as it is.
	accept, refuse string
	// given is merged into the object before.
	given string
	// names is what the message must name beside the field, when the field alone would not tell.
	names string
	// update applies the examples to an object that exists.
	update bool
}

// absent removes the field.
const absent = "null"

// required is the rule that a field must be there.
func required(fields ...string) (rows []row) {
	for _, field := range fields {
		rows = append(rows, row{rule: "required", field: field, refuse: absent})
	}
	return rows
}

func join(groups ...[]row) (rows []row) {
	for _, group := range groups {
		rows = append(rows, group...)
	}
	return rows
}

// quoted is a string of n characters.
func quoted(n int) string { return `"` + strings.Repeat("a", n) + `"` }

// list repeats item n times; %d in it becomes the index.
func list(n int, item string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = strings.ReplaceAll(item, "%d", fmt.Sprint(i))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// object has n properties.
func object(n int) string {
	return strings.NewReplacer("[", "{", "]", "}").Replace(list(n, "key%d: value"))
}

// taints are the rules of a list of taints.
func taints(field string) []row {
	return join(
		required(field+"[0].key", field+"[0].effect"),
		[]row{
			{rule: "minLength", field: field + "[0].key", accept: "a", refuse: `""`},
			{rule: "P_QNAME", field: field + "[0].key", accept: "example.com/dedicated", refuse: "dedicated?"},
			{rule: "P_QNAME", field: field + "[0].value", accept: "batch", refuse: "batch jobs"},
			{rule: "enum", field: field + "[0].effect", accept: "NoExecute", refuse: "NoEntry"},
			{rule: "date", field: field + "[0].timeAdded", accept: `"2026-01-02T03:04:05Z"`, refuse: "yesterday"},
		})
}

// requirementItem are the rules of each item of a list of requirements.
func requirementItem(field string) []row {
	key := field + "[0].key"
	return join(
		required(key, field+"[0].operator"),
		[]row{
			{rule: "maxLength", field: key, accept: quoted(316), refuse: quoted(317)},
			{rule: "P_QNAME", field: key, accept: "example.com/team", refuse: "example.com/team/a"},
			{rule: "R_KEY_DOMAIN", field: key, accept: "karpenter.sh/capacity-type", refuse: "karpenter.sh/registered"},
			{rule: "R_KEY_DOMAIN", field: key, accept: "karpenter.example.com/x", refuse: "sub.karpenter.sh/x"},
			{rule: "R_KEY_DOMAIN", field: key, accept: "example.com/karpenter.sh", refuse: "my-karpenter.sh/x"},
			{rule: "R_KEY_HOST", field: key, accept: "kubernetes.io/arch", refuse: "kubernetes.io/hostname"},
			{rule: "enum", field: field + "[0].operator", accept: "In", refuse: "Equals"},
		})
}

// requirementList are the rules of a list of requirements as a whole.
func requirementList(field string) []row {
	return []row{
		{rule: "maxItems", field: field, accept: list(100, "{key: a, operator: Exists}"), refuse: list(101, "{key: a, operator: Exists}")},
		{rule: "R_REQ_IN", field: field, accept: "[{key: a, operator: In, values: [b]}]", refuse: "[{key: a, operator: In, values: []}]"},
		{rule: "R_REQ_CMP", field: field, accept: `[{key: a, operator: Gt, values: ["0"]}]`, refuse: `[{key: a, operator: Gt, values: ["1", "2"]}]`},
		{rule: "R_REQ_CMP", field: field, accept: `[{key: a, operator: Lt, values: ["1"]}]`, refuse: `[{key: a, operator: Lt, values: ["1", "2"]}]`},
		{rule: "R_REQ_CMP", field: field, accept: `[{key: a, operator: Gte, values: ["1"]}]`, refuse: `[{key: a, operator: Gte, values: []}]`},
		{rule: "R_REQ_CMP", field: field, accept: `[{key: a, operator: Lte, values: ["8"]}]`, refuse: `[{key: a, operator: Lte, values: ["8", "9"]}]`},
	}
}

// requirementValues are the rules of each value of a requirement of NodePools and NodeClaims, which ends up as a label of nodes.
func requirementValues(field string) []row {
	value := field + "[0].values[0]"
	return []row{
		{rule: "maxLength", field: value, accept: quoted(63), refuse: quoted(64)},
		{rule: "P_LABELVAL", field: value, accept: "m7i.large", refuse: "\"x'$(touch /tmp/pwn)'\""},
		{rule: "P_LABELVAL", field: value, accept: `""`, refuse: `"team a"`},
		{rule: "P_LABELVAL", field: value, accept: `"8"`, refuse: `"-8"`},
	}
}

// minValues are the rules that NodePools and NodeClaims have for requirements, and NodeOverlays have not.
func minValues(field string) []row {
	return []row{
		{rule: "min", field: field + "[0].minValues", accept: "1", refuse: "0"},
		{rule: "max", field: field + "[0].minValues", accept: "50", refuse: "51"},
		{rule: "R_REQ_MINVAL", field: field, accept: "[{key: a, operator: In, values: [b, c], minValues: 2}]", refuse: "[{key: a, operator: In, values: [b], minValues: 2}]"},
	}
}

// nodeClassRef are the rules of the reference to a node class.
func nodeClassRef(field string) []row {
	return join(
		required(field, field+".group", field+".kind", field+".name"),
		[]row{
			{rule: "R_NONEMPTY", field: field + ".group", accept: "karpenter.k8s.aws", refuse: `""`},
			{rule: "P_NOSLASH", field: field + ".group", accept: "example.com", refuse: "karpenter.k8s.aws/v1"},
			{rule: "R_NONEMPTY", field: field + ".kind", accept: "EC2NodeClass", refuse: `""`},
			{rule: "R_NONEMPTY", field: field + ".name", accept: "default", refuse: `""`},
		})
}

// conditions are the rules of status conditions, but for those about reason and message.
func conditions() []row {
	const field = "status.conditions"
	condition := `{type: A%d, status: "True", reason: B, message: "", lastTransitionTime: "2026-01-02T03:04:05Z"}`
	return join(
		required(field+"[0].type", field+"[0].status", field+"[0].lastTransitionTime"),
		[]row{
			{rule: "unique", field: field, accept: list(2, condition), refuse: list(2, strings.ReplaceAll(condition, "%d", ""))},
			{rule: "maxLength", field: field + "[0].type", accept: quoted(316), refuse: quoted(317)},
			{rule: "P_CONDTYPE", field: field + "[0].type", accept: "example.com/Ready", refuse: "Not Ready"},
			{rule: "enum", field: field + "[0].status", accept: "Unknown", refuse: "Perhaps"},
			{rule: "date", field: field + "[0].lastTransitionTime", accept: `"2026-01-02T03:04:05Z"`, refuse: "yesterday"},
			{rule: "min", field: field + "[0].observedGeneration", accept: "0", refuse: "-1"},
			{rule: "maxLength", field: field + "[0].reason", accept: quoted(1024), refuse: quoted(1025)},
			{rule: "maxLength", field: field + "[0].message", accept: quoted(32768), refuse: quoted(32769)},
		})
}

// reasons are the rules about reason and message of every kind but NodeClaim.
func reasons() []row {
	const field = "status.conditions[0]"
	return join(
		required(field+".reason", field+".message"),
		[]row{
			{rule: "minLength", field: field + ".reason", accept: "A", refuse: `""`},
			{rule: "P_REASON", field: field + ".reason", accept: "Found:2,Lost", refuse: "2Found"},
		})
}
