package crdtest

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The controller tries NodeClaims without creating them, to find the pods that an invalid value comes from: the API
// server states by field what is wrong with one, as it does at a creation, and nothing is there afterwards.
func TestInvalidNodeClaimIsRefusedByFieldInADryRun(t *testing.T) {
	k := nodeClaim()
	claims := k.client(t)
	try := func(operator, value string) error {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(k.minimal), &o); err != nil {
			t.Fatal(err)
		}
		claim := &unstructured.Unstructured{Object: o}
		claim.SetName("tried")
		requirement := map[string]any{"key": "karpenter.k8s.aws/instance-cpu", "operator": operator, "values": []any{value}}
		if err := unstructured.SetNestedSlice(o, []any{requirement}, "spec", "requirements"); err != nil {
			t.Fatal(err)
		}
		_, err := claims.Create(t.Context(), claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	err := try("Gt", "-5")
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		t.Fatalf("Gt -5: %v, want that it is invalid", err)
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 || !strings.HasPrefix(details.Causes[0].Field, "spec.requirements") {
		t.Errorf("details %+v, want a cause that names the field", details)
	}
	if err := try("Gt", "5"); err != nil {
		t.Errorf("Gt 5: %v", err)
	}
	if _, err := claims.Get(t.Context(), "tried", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after dry runs: %v, want that nothing is there", err)
	}
}
