package support

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// docs/aws.md states of each field of an EC2NodeClass what it does: of all of them, and of no other.
func TestEveryFieldOfNodeClassesIsExplained(t *testing.T) {
	text, err := os.ReadFile("../crds/karpenter.k8s.aws_ec2nodeclasses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	want := fieldsBelow(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], "")
	document, err := os.ReadFile("../../docs/aws.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(document), "## What each field of an EC2NodeClass does")
	if !found {
		t.Fatal("docs/aws.md has no such part")
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .+ \\|$").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-of the CRD +of docs/aws.md):\n%s", diff)
	}
}

// fieldsBelow are the paths of all fields of a schema; lists have [] at their end.
func fieldsBelow(schema apiextensionsv1.JSONSchemaProps, path string) []string {
	var out []string
	for name, field := range schema.Properties {
		below := path + name
		if field.Items != nil {
			field, below = *field.Items.Schema, below+"[]"
		}
		out = append(append(out, below), fieldsBelow(field, below+".")...)
	}
	return out
}
