package crdtest

import (
	"bytes"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The examples use nearly every field, in the way that people write them.
func TestExamplesAreAccepted(t *testing.T) {
	text, err := os.ReadFile("testdata/examples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]kind{}
	for _, k := range kinds() {
		byKind[k.definition(t).Spec.Names.Kind] = k
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatal(err)
		}
		t.Run(o.GetKind()+" "+o.GetName(), func(t *testing.T) {
			resource := byKind[o.GetKind()].client(t)
			if namespace := o.GetNamespace(); namespace != "" {
				o.SetNamespace("default")
			}
			err := eventuallyServed(t.Context(), func() error {
				_, err := resource.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
