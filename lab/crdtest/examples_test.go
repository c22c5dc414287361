package crdtest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

// GitOps applies the same objects again and again. The second time changes nothing, not even while the controller writes annotations and
// the API server adds defaults.
func TestSecondSyncOfGitOpsExamplesChangesNothing(t *testing.T) {
	text, err := os.ReadFile("../../examples/argocd/nodes/nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects(t, text) {
		in := of(t, o.GetKind())
		body, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		sync := func() (*unstructured.Unstructured, error) {
			return in.Patch(t.Context(), o.GetName(), types.ApplyPatchType, body,
				metav1.PatchOptions{FieldManager: "argocd-controller", FieldValidation: metav1.FieldValidationStrict})
		}
		if err := eventuallyServed(t.Context(), func() error { _, err := sync(); return err }); err != nil {
			t.Fatal(err)
		}
		written := []byte(`{"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1"}, "finalizers": ["karpenter.sh/termination"]}}`)
		before, err := in.Patch(t.Context(), o.GetName(), types.MergePatchType, written, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		after, err := sync()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before.Object, after.Object); diff != "" {
			t.Errorf("%s: a second sync changes (-before +after)\n%s", o.GetKind(), diff)
		}
		freed := []byte(`{"metadata": {"finalizers": null}}`)
		if _, err := in.Patch(t.Context(), o.GetName(), types.MergePatchType, freed, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := in.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
