package crdtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The planner is tested with pods that tenants could make, not with those that the API server refuses.
func TestHostilePodsAreAdmitted(t *testing.T) {
	all := hostilePods(t)
	resource := func(o *unstructured.Unstructured, plural string) schema.GroupVersionResource {
		return o.GroupVersionKind().GroupVersion().WithResource(plural)
	}
	for _, object := range all["classes"] {
		of := client.Resource(resource(&object, strings.ToLower(object.GetKind())+"es"))
		if _, err := of.Create(t.Context(), &object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	accounts := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace("default")
	if err := eventuallyServed(t.Context(), func() error { // the controller manager makes it
		_, err := accounts.Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	delete(all, "classes")
	if len(all) != 3 {
		t.Errorf("%d kinds of pods, want 3", len(all))
	}
	for name, pods := range all {
		t.Run(name, func(t *testing.T) {
			refused := 0
			for i := range pods {
				pod := &pods[i]
				unstructured.RemoveNestedField(pod.Object, "metadata", "uid")
				_, err := client.Resource(resource(pod, "pods")).Namespace("default").Create(t.Context(), pod, metav1.CreateOptions{
					DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
				})
				if err == nil {
					continue
				}
				if refused++; refused <= 10 {
					t.Errorf("pod %d: %.600v", i, err)
				}
			}
			if refused > 0 {
				t.Errorf("%d of %d are refused", refused, len(pods))
			}
		})
	}
}

// hostilePods has the planner's module draw pods, by kind, and the classes that they refer to.
func hostilePods(t *testing.T) (out map[string][]unstructured.Unstructured) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pods.json")
	draw := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run=TestEqualBytesDrawEqualPods",
		"github.com/dovetail-k8s/dovetail/internal/engine/hostilepods")
	draw.Env = append(os.Environ(), "DOVETAIL_HOSTILE_PODS="+file)
	if output, err := draw.CombinedOutput(); err != nil {
		t.Fatalf("draw pods: %v\n%s", err, output)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
