package manifest

import (
	"fmt"
	"strings"
	"testing"
)

const general = `apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: general
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - key: kubernetes.io/arch
        operator: In
        values: [arm64]
`

func TestANodePoolIsReadWithItsDefaults(t *testing.T) {
	pool, faults, err := NewNodePoolReader().Read([]byte(general))
	if err != nil || len(faults) > 0 {
		t.Fatalf("%v %v", faults, err)
	}
	if pool.Name != "general" || pool.Spec.Disruption.ConsolidationPolicy == "" || len(pool.Spec.Disruption.Budgets) != 1 {
		t.Errorf("the NodePool is %+v", pool.Spec.Disruption)
	}
}

func TestFaultsOfANodePoolNameLineAndField(t *testing.T) {
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(general) }
	bomb := "a: &a [x]\nb: &b [*a, *a]\n" + general
	tests := []struct {
		name, text     string
		line           int
		field, message string
	}{
		{"an operator that does not exist", edit("operator: In", "operator: Im"), 11, "spec.template.spec.requirements[0].operator", "Im"},
		{"a field that does not exist", edit("  template:", "  weigth: 5\n  template:"), 6, "spec.weigth", "no such field"},
		{"a field of the wrong type", edit("  template:", "  weight: heavy\n  template:"), 6, "spec.weight", "integer"},
		{"a budget of an unknown form", edit("  template:", "  disruption: {budgets: [{nodes: many}]}\n  template:"), 6, "spec.disruption.budgets[0].nodes", "many"},
		{"a rule over several fields", edit("  template:", "  disruption:\n    budgets: [{nodes: \"1\", schedule: \"@daily\"}]\n  template:"), 7, "spec.disruption", "duration"},
		{"a reserved label", edit("    spec:", "    metadata: {labels: {karpenter.sh/nodepool: x}}\n    spec:"), 7, "spec.template.metadata.labels", ""},
		{"a taint twice", edit("      requirements:", "      taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]\n      requirements:"), 9, "spec.template.spec.taints[1]", "Duplicate"},
		{"no node class", edit("      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}\n", ""), 7, "spec.template.spec.nodeClassRef", "Required"},
		{"a key twice", edit("kind: NodePool", "kind: NodePool\nkind: NodePool"), 3, "", "already"},
		{"no YAML", edit("metadata:", "metadata: ["), 0, "", "not valid YAML"},
		{"a tab", edit("  name: general", "\tname: general"), 4, "", "not valid YAML"},
		{"a Deployment", "apiVersion: apps/v1\nkind: Deployment\n", 2, "kind", "Deployment"},
		{"another version", edit("karpenter.sh/v1", "karpenter.sh/v1beta1"), 1, "apiVersion", "karpenter.sh/v1"},
		{"no name", edit("  name: general", "  labels: {a: b}"), 3, "metadata.name", "missing"},
		{"two documents", general + "---\n" + general, 14, "", "second document"},
		{"nothing", "# nothing\n", 1, "", "empty"},
		{"a list", "- a\n", 1, "", "no object"},
		{"a text", "NodePool\n", 1, "", "no object"},
		{"aliases", bomb, 2, "", "alias"},
		{"an alias of itself", "a: &a [*a]\n", 1, "", "alias"},
		{"too much", strings.Repeat("#", MaxNodePoolBytes+1), 0, "", "limit"},
		{"deep nesting", "a: " + strings.Repeat("[", 20_000), 0, "", "not valid YAML"},
		{"binary", "\x00\x01\xff", 0, "", ""},
	}
	reader := NewNodePoolReader()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool, faults, err := reader.Read([]byte(tt.text))
			if err != nil || len(faults) == 0 || pool != nil {
				t.Fatalf("%v %v %v", pool, faults, err)
			}
			f := faults[0]
			if tt.line != 0 && f.Line != tt.line || !strings.HasPrefix(f.Field, tt.field) || tt.field == "" && f.Field != "" || !strings.Contains(f.Message, tt.message) {
				t.Errorf("the fault is %+v", f)
			}
		})
	}
}

func TestManyFaultsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(general)
	for i := range 99 {
		fmt.Fprintf(&b, "      - {key: key%d, operator: Im, values: [a]}\n", i)
	}
	_, faults, err := NewNodePoolReader().Read([]byte(b.String()))
	if err != nil || len(faults) == 0 || len(faults) > maxErrors {
		t.Errorf("%d faults, %v", len(faults), err)
	}
}
