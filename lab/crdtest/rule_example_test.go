package crdtest

import (
	"fmt"
	"strings"
)

// ruleExample is one rule at one field, with a valid and an invalid value. Examples start from an object in which
// every field is set.
type ruleExample struct {
	// rule is a name from patterns or rules, or the schema's own word: required, enum, min, max, minLength,
	// maxLength, minItems, maxItems, maxProperties, unique, date.
	rule string
	// field is where the rule stands, for example spec.limits.cpu or spec.taints[0].key.
	field string
	// accept and reject are values for the field, as YAML. Objects are merged into what is there (null
	// removes), anything else replaces it. Without accept the field stays as it is.
	accept, reject string
	// given is merged into the object before.
	given string
	// messageNames is what the message must name beside the field, when the field alone would not report.
	messageNames string
	// update applies the examples to an object that exists.
	update bool
}

// absent removes the field.
const absent = "null"

// required is the rule that a field must be there.
func required(fields ...string) (rows []ruleExample) {
	for _, field := range fields {
		rows = append(rows, ruleExample{rule: "required", field: field, reject: absent})
	}
	return rows
}

func join(groups ...[]ruleExample) (rows []ruleExample) {
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
func taints(field string) []ruleExample {
	return join(
		required(field+"[0].key", field+"[0].effect"),
		[]ruleExample{
			{rule: "minLength", field: field + "[0].key", accept: "a", reject: `""`},
			{rule: "P_QNAME", field: field + "[0].key", accept: "example.com/dedicated", reject: "dedicated?"},
			{rule: "P_QNAME", field: field + "[0].value", accept: "batch", reject: "batch jobs"},
			{rule: "enum", field: field + "[0].effect", accept: "NoExecute", reject: "NoEntry"},
			{rule: "date", field: field + "[0].timeAdded", accept: `"2026-01-02T03:04:05Z"`, reject: "yesterday"},
		})
}

// requirementItem are the rules of each item of a list of requirements.
func requirementItem(field string) []ruleExample {
	key := field + "[0].key"
	return join(
		required(key, field+"[0].operator"),
		[]ruleExample{
			{rule: "maxLength", field: key, accept: quoted(316), reject: quoted(317)},
			{rule: "P_QNAME", field: key, accept: "example.com/team", reject: "example.com/team/a"},
			{rule: "R_KEY_DOMAIN", field: key, accept: "karpenter.sh/capacity-type", reject: "karpenter.sh/registered"},
			{rule: "R_KEY_DOMAIN", field: key, accept: "karpenter.example.com/x", reject: "sub.karpenter.sh/x"},
			{rule: "R_KEY_DOMAIN", field: key, accept: "example.com/karpenter.sh", reject: "my-karpenter.sh/x"},
			{rule: "R_KEY_HOST", field: key, accept: "kubernetes.io/arch", reject: "kubernetes.io/hostname"},
			{rule: "enum", field: field + "[0].operator", accept: "In", reject: "Equals"},
		})
}

// requirementList are the rules of a list of requirements as a whole.
func requirementList(field string) []ruleExample {
	return []ruleExample{
		{rule: "maxItems", field: field, accept: list(100, "{key: a, operator: Exists}"), reject: list(101, "{key: a, operator: Exists}")},
		{rule: "R_REQ_IN", field: field, accept: "[{key: a, operator: In, values: [b]}]", reject: "[{key: a, operator: In, values: []}]"},
		{
			rule:   "R_REQ_CMP",
			field:  field,
			accept: `[{key: a, operator: Gt, values: ["0"]}]`,
			reject: `[{key: a, operator: Gt, values: ["1", "2"]}]`,
		},
		{
			rule:   "R_REQ_CMP",
			field:  field,
			accept: `[{key: a, operator: Lt, values: ["1"]}]`,
			reject: `[{key: a, operator: Lt, values: ["1", "2"]}]`,
		},
		{
			rule:   "R_REQ_CMP",
			field:  field,
			accept: `[{key: a, operator: Gte, values: ["1"]}]`,
			reject: `[{key: a, operator: Gte, values: []}]`,
		},
		{
			rule:   "R_REQ_CMP",
			field:  field,
			accept: `[{key: a, operator: Lte, values: ["8"]}]`,
			reject: `[{key: a, operator: Lte, values: ["8", "9"]}]`,
		},
	}
}

// requirementValues are the rules of each value of a requirement of NodePools and NodeClaims, which becomes a label
// of nodes.
func requirementValues(field string) []ruleExample {
	value := field + "[0].values[0]"
	return []ruleExample{
		{rule: "maxLength", field: value, accept: quoted(63), reject: quoted(64)},
		{rule: "P_LABELVAL", field: value, accept: "m7i.large", reject: "\"x'$(touch /tmp/pwn)'\""},
		{rule: "P_LABELVAL", field: value, accept: `""`, reject: `"team a"`},
		{rule: "P_LABELVAL", field: value, accept: `"8"`, reject: `"-8"`},
	}
}

// minValues are the rules that NodePools and NodeClaims have for requirements, and NodeOverlays have not.
func minValues(field string) []ruleExample {
	return []ruleExample{
		{rule: "min", field: field + "[0].minValues", accept: "1", reject: "0"},
		{rule: "max", field: field + "[0].minValues", accept: "50", reject: "51"},
		{
			rule:   "R_REQ_MINVAL",
			field:  field,
			accept: "[{key: a, operator: In, values: [b, c], minValues: 2}]",
			reject: "[{key: a, operator: In, values: [b], minValues: 2}]",
		},
	}
}

// nodeClassRef are the rules of the reference to a node class.
func nodeClassRef(field string) []ruleExample {
	return join(
		required(field, field+".group", field+".kind", field+".name"),
		[]ruleExample{
			{rule: "R_NONEMPTY", field: field + ".group", accept: "karpenter.k8s.aws", reject: `""`},
			{rule: "P_NOSLASH", field: field + ".group", accept: "example.com", reject: "karpenter.k8s.aws/v1"},
			{rule: "R_NONEMPTY", field: field + ".kind", accept: "EC2NodeClass", reject: `""`},
			{rule: "R_NONEMPTY", field: field + ".name", accept: "default", reject: `""`},
		})
}

// conditions are the rules of status conditions, but for those about reason and message.
func conditions() []ruleExample {
	const field = "status.conditions"
	condition := `{type: A%d, status: "True", reason: B, message: "", lastTransitionTime: "2026-01-02T03:04:05Z"}`
	return join(
		required(field+"[0].type", field+"[0].status", field+"[0].lastTransitionTime"),
		[]ruleExample{
			{rule: "unique", field: field, accept: list(2, condition), reject: list(2, strings.ReplaceAll(condition, "%d", ""))},
			{rule: "maxLength", field: field + "[0].type", accept: quoted(316), reject: quoted(317)},
			{rule: "P_CONDTYPE", field: field + "[0].type", accept: "example.com/Ready", reject: "Not Ready"},
			{rule: "enum", field: field + "[0].status", accept: "Unknown", reject: "Perhaps"},
			{rule: "date", field: field + "[0].lastTransitionTime", accept: `"2026-01-02T03:04:05Z"`, reject: "yesterday"},
			{rule: "min", field: field + "[0].observedGeneration", accept: "0", reject: "-1"},
			{rule: "maxLength", field: field + "[0].reason", accept: quoted(1024), reject: quoted(1025)},
			{rule: "maxLength", field: field + "[0].message", accept: quoted(32768), reject: quoted(32769)},
		})
}

// reasons are the rules about reason and message of every kind but NodeClaim.
func reasons() []ruleExample {
	const field = "status.conditions[0]"
	return join(
		required(field+".reason", field+".message"),
		[]ruleExample{
			{rule: "minLength", field: field + ".reason", accept: "A", reject: `""`},
			{rule: "P_REASON", field: field + ".reason", accept: "Found:2,Lost", reject: "2Found"},
		})
}
