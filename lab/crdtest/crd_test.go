package crdtest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/api/crds"
)

// kind is a kind of the API with its examples.
type kind struct {
	resource, namespace string
	// crd is the file of its definition.
	crd string
	// minimal is the least that is accepted, defaulted its spec as the API server stores it.
	minimal, defaulted string
	// full has every field.
	full     string
	examples []ruleExample
}

func kinds() []kind {
	return []kind{nodePool(), nodeClaim(), nodeOverlay(), capacityBuffer(), ec2NodeClass()}
}

func (k kind) definition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := crds.FS.ReadFile(k.crd)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func (k kind) constraints(t *testing.T) (*apiextensionsv1.JSONSchemaProps, []constraint) {
	t.Helper()
	s := k.definition(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	all, err := constraints("", s)
	if err != nil {
		t.Fatal(err)
	}
	return s, all
}

func (k kind) client(t *testing.T) dynamic.ResourceInterface {
	crd := k.definition(t)
	resource := client.Resource(schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: k.resource})
	if k.namespace == "" {
		return resource
	}
	return resource.Namespace(k.namespace)
}

func TestEveryRuleHasAnExample(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.resource, func(t *testing.T) {
			s, all := k.constraints(t)
			shown := map[int]bool{}
			for _, r := range k.examples {
				i := find(t, s, all, r)
				if i < 0 {
					t.Errorf("the schema has no rule %s at %s", r.rule, r.field)
				}
				shown[i] = true
			}
			for i, c := range all {
				if !shown[i] {
					t.Errorf("no example for %s at %s", strings.Join(c.rules, "/"), c.field)
				}
			}
		})
	}
}

func TestEveryNamedRuleIsInUse(t *testing.T) {
	used := map[string]bool{}
	for _, k := range kinds() {
		for _, r := range k.examples {
			used[r.rule] = true
		}
	}
	for _, table := range []map[string]string{patterns, rules} {
		for name := range table {
			if !used[name] {
				t.Errorf("no kind has %s", name)
			}
		}
	}
}

// find returns the index of the constraint that r is about, -1 if there is none.
func find(t *testing.T, s *apiextensionsv1.JSONSchemaProps, all []constraint, r ruleExample) int {
	t.Helper()
	field, err := general(s, r.field)
	if err != nil {
		t.Fatal(err)
	}
	return slices.IndexFunc(all, func(c constraint) bool { return c.field == field && slices.Contains(c.rules, r.rule) })
}

func TestRules(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.resource, func(t *testing.T) {
			stored := k.store(t)
			s, all := k.constraints(t)
			for _, r := range k.examples {
				t.Run(r.rule+" "+r.field, func(t *testing.T) {
					if err := k.try(t, stored, r, r.accept); err != nil {
						t.Errorf("not accepted: %s: %v", r.accept, err)
					}
					err := k.try(t, stored, r, r.reject)
					if err == nil {
						t.Fatalf("not refused: %s", r.reject)
					}
					i := find(t, s, all, r)
					if i < 0 {
						t.Fatal("the schema has no such rule")
					}
					for _, part := range []string{r.field, r.messageNames, all[i].message} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("refused for the wrong reason, or without saying %q: %v", part, err)
						}
					}
				})
			}
		})
	}
}

// store creates the full object, status included.
func (k kind) store(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object, err := build(k.full, ruleExample{}, "")
	if err != nil {
		t.Fatal(err)
	}
	want := &unstructured.Unstructured{Object: object}
	var stored *unstructured.Unstructured
	err = eventuallyServed(t.Context(), func() (err error) {
		stored, err = k.client(t).Create(t.Context(), want, strict())
		return err
	})
	if err != nil {
		t.Fatalf("the full object is not accepted: %v", err)
	}
	t.Cleanup(func() {
		if err := k.client(t).Delete(context.Background(), want.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	stored.Object["status"] = want.Object["status"]
	if stored, err = k.client(t).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{FieldValidation: "Strict"}); err != nil {
		t.Fatalf("the full status is not accepted: %v", err)
	}
	return stored
}

func strict() metav1.CreateOptions { return metav1.CreateOptions{FieldValidation: "Strict"} }

// try sends a dry-run request for the full object with value at r's field.
func (k kind) try(t *testing.T, stored *unstructured.Unstructured, r ruleExample, value string) error {
	t.Helper()
	object, err := build(k.full, r, value)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: object}
	dryRun := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"}
	switch {
	case strings.HasPrefix(r.field, "status"):
		o.SetResourceVersion(stored.GetResourceVersion())
		_, err = k.client(t).UpdateStatus(t.Context(), o, dryRun)
	case r.update:
		o.SetResourceVersion(stored.GetResourceVersion())
		_, err = k.client(t).Update(t.Context(), o, dryRun)
	default:
		o.SetName("example")
		_, err = k.client(t).Create(t.Context(), o, metav1.CreateOptions{DryRun: dryRun.DryRun, FieldValidation: "Strict"})
	}
	if err != nil && !apierrors.IsInvalid(err) {
		t.Fatalf("neither accepted nor refused: %v", err)
	}
	return err
}

func TestDefaults(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.resource, func(t *testing.T) {
			object, err := build(k.minimal, ruleExample{}, "")
			if err != nil {
				t.Fatal(err)
			}
			want, err := build(k.defaulted, ruleExample{}, "")
			if err != nil {
				t.Fatal(err)
			}
			var stored *unstructured.Unstructured
			err = eventuallyServed(t.Context(), func() (err error) {
				options := strict()
				options.DryRun = []string{metav1.DryRunAll}
				stored, err = k.client(t).Create(t.Context(), &unstructured.Unstructured{Object: object}, options)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain(t, want["spec"]), plain(t, stored.Object["spec"])); diff != "" {
				t.Errorf("stored spec (-want +got):\n%s", diff)
			}
		})
	}
}

// plain is value with the types that JSON has.
func plain(t *testing.T, value any) any {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	v, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
