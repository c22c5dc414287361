package crdtest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// resources are those of the kinds in the Helm charts, and whether they are in a namespace.
var resources = map[string]struct {
	schema.GroupVersionResource
	namespaced bool
}{
	"Pod":        {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, true},
	"Deployment": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, true},
	"NetworkPolicy": {
		schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		true,
	},
	"PodDisruptionBudget": {schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, true},
	"ClusterRole": {
		schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		false,
	},
	"ClusterRoleBinding": {
		schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		false,
	},
	"Role": {schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, true},
	"RoleBinding": {
		schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
		true,
	},
	"Service":        {schema.GroupVersionResource{Version: "v1", Resource: "services"}, true},
	"ServiceAccount": {schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, true},
	"ServiceMonitor": {
		schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"},
		true,
	},
	"PrometheusRule": {
		schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"},
		true,
	},
	"CustomResourceDefinition": {
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		false,
	},
	"Namespace": {schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, false},
	"ValidatingAdmissionPolicy": {
		schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		false,
	},
	"ValidatingAdmissionPolicyBinding": {
		schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
		false,
	},
}

// monitoring are the kinds of the Prometheus operator that the chart makes. The chart does not ship their schemas.
const monitoring = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors, singular: servicemonitor}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PrometheusRule, plural: prometheusrules, singular: prometheusrule}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// apply does what `kubectl apply --server-side --validate=strict` does.
func apply(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	r, ok := resources[o.GetKind()]
	if !ok {
		t.Fatalf("kind %s has no place in the table", o.GetKind())
	}
	var in dynamic.ResourceInterface = client.Resource(r.GroupVersionResource)
	if r.namespaced {
		in = client.Resource(r.GroupVersionResource).Namespace(o.GetNamespace())
	}
	body, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return eventuallyServed(t.Context(), func() error {
		_, err := in.Patch(t.Context(), o.GetName(), types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "helm", Force: new(true), FieldValidation: metav1.FieldValidationStrict})
		return err
	})
}

func objects(t *testing.T, manifests []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(doc, &o.Object); err != nil { // a key that exists twice is a mistake, too
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// What the Helm charts render passes the API server's strict validation, in the order in which it is rendered.
func TestCharts(t *testing.T) {
	for _, name := range []string{"autoscaling", "karpenter"} {
		namespace := &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
		}
		if err := apply(t, namespace); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects(t, []byte(monitoring)) {
		if err := apply(t, o); err != nil {
			t.Fatal(err)
		}
	}
	for chart, least := range map[string]int{"default": 11, "moved": 12, "everything": 16, "crds": 5} {
		t.Run(chart, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "tools", "chart", "testdata", chart+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			all := objects(t, text)
			if len(all) < least {
				t.Errorf("only %d objects, want %d", len(all), least)
			}
			for _, o := range all {
				if err := apply(t, o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

// The pods of the chart run in a namespace that enforces the restricted pod security standard: the controller's and that of helm test.
func TestPodsOfTheChartAreRestricted(t *testing.T) {
	const name = "restricted"
	labels := map[string]any{"pod-security.kubernetes.io/enforce": name, "pod-security.kubernetes.io/enforce-version": "latest"}
	if err := apply(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels},
	}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "tools", "chart", "testdata", "default.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pods := 0
	for _, o := range objects(t, text) {
		if pod := podOf(o, name); pod != nil {
			pods++
			if err := apply(t, pod); err != nil {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
			privileged := []any{map[string]any{"name": "sidecar", "image": "x", "securityContext": map[string]any{"privileged": true}}}
			if err := unstructured.SetNestedSlice(pod.Object, privileged, "spec", "containers"); err != nil {
				t.Fatal(err)
			}
			if pod.SetName("privileged"); apply(t, pod) == nil {
				t.Error("the namespace enforces nothing")
			}
		}
	}
	if pods != 2 {
		t.Errorf("%d pods, want 2", pods)
	}
}

// podOf is the pod that an object is or makes, in another namespace and with its default ServiceAccount; nil if it makes none.
func podOf(o *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	path := map[string][]string{"Pod": {"spec"}, "Deployment": {"spec", "template", "spec"}}[o.GetKind()]
	if path == nil {
		return nil
	}
	spec, found, err := unstructured.NestedMap(o.Object, path...)
	if err != nil || !found {
		return nil
	}
	spec["serviceAccountName"] = "default"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": map[string]any{"name": o.GetName(), "namespace": namespace},
	}}
}

// Were a field misspelt, the API server would report it.
func TestStrictValidationRejects(t *testing.T) {
	o := objects(t, []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x, namespace: default}\nautomount: true\n"))[0]
	if err := apply(t, o); err == nil {
		t.Error("an unknown field is accepted")
	}
}
