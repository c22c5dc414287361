package crdtest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// readExamples are the examples here and those of the documentation, as one file.
func readExamples(t *testing.T) []byte {
	t.Helper()
	files, err := filepath.Glob("../../examples/nodepools/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d examples (%v)", len(files), err)
	}
	var all [][]byte
	for _, file := range append(files, "testdata/examples.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.ReplaceAll(text, []byte("${CLUSTER_NAME}"), []byte("shop")))
	}
	return bytes.Join(all, []byte("\n---\n"))
}

// The examples use nearly every field, in the way that people write them.
func TestExamplesAreAccepted(t *testing.T) {
	text := readExamples(t)
	byKind := map[string]kind{}
	for _, k := range kinds() {
		byKind[k.definition(t).Spec.Names.Kind] = k
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatal(err)
		}
		if _, ours := byKind[o.GetKind()]; !ours {
			continue
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
