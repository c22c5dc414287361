package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ops", Name: name} }

// guard is a configuration with one webhook that must approve nodes, and the service behind it with its endpoints.
func guard(change func(*admissionv1.ValidatingWebhook), endpoints ...discoveryv1.Endpoint) []client.Object {
	hook := admissionv1.ValidatingWebhook{
		Name: "nodes.example.com", ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ops", Name: "guard"}},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
		}},
	}
	change(&hook)
	return []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "guard"}, Webhooks: []admissionv1.ValidatingWebhook{hook}},
		&corev1.Service{ObjectMeta: named("guard"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "guard"}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "guard-1", Labels: map[string]string{discoveryv1.LabelServiceName: "guard"}}, Endpoints: endpoints,
		},
	}
}

func TestNodeWebhooks(t *testing.T) {
	ready, notReady, ignore := true, false, admissionv1.Ignore
	as := func(*admissionv1.ValidatingWebhook) {}
	url := "https://guard.example.com"
	for _, tt := range []struct {
		name      string
		objects   []client.Object
		hooks     int
		backend   string
		selective bool
	}{
		{"answered", guard(as, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &ready}}), 1, "", false},
		{"no endpoint", guard(as), 1, "its service ops/guard has no ready endpoint", false},
		{"no ready endpoint", guard(as, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &notReady}}), 1, "no ready endpoint", false},
		{"no service", guard(as)[:1], 1, "does not exist", false},
		{"failures ignored", guard(func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &ignore }), 0, "", false},
		{"about pods", guard(func(w *admissionv1.ValidatingWebhook) { w.Rules[0].Resources = []string{"pods"} }), 0, "", false},
		{"about everything", guard(func(w *admissionv1.ValidatingWebhook) {
			w.Rules[0].APIGroups, w.Rules[0].APIVersions, w.Rules[0].Resources = []string{"*"}, []string{"*"}, []string{"*/*"}
		}), 1, "no ready endpoint", false},
		{"about deletions", guard(func(w *admissionv1.ValidatingWebhook) {
			w.Rules[0].Operations = []admissionv1.OperationType{admissionv1.Delete}
		}), 0, "", false},
		{"about some nodes", guard(func(w *admissionv1.ValidatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}), 1, "no ready endpoint", true},
		{"behind a URL", guard(func(w *admissionv1.ValidatingWebhook) {
			w.ClientConfig = admissionv1.WebhookClientConfig{URL: &url}
		}), 1, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Reader{Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(tt.objects...).Build()}
			hooks, err := r.NodeWebhooks(t.Context())
			if err != nil || len(hooks) != tt.hooks {
				t.Fatalf("%v, %+v, want %d", err, hooks, tt.hooks)
			}
			for _, h := range hooks {
				if (h.Backend == "") != (tt.backend == "") || !strings.Contains(h.Backend, tt.backend) || h.Selective != tt.selective || h.Configuration != "validatingwebhookconfiguration guard" {
					t.Errorf("%+v, want backend %q, selective %v", h, tt.backend, tt.selective)
				}
			}
		})
	}
}

func TestAuthMap(t *testing.T) {
	holding := func(objects ...client.Object) client.WithWatch {
		return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
	}
	if data, found, err := (Reader{Live: holding()}).AuthMap(t.Context()); err != nil || found || data != nil {
		t.Errorf("absent: %v, %v, %v", data, found, err)
	}
	denied := errors.New("forbidden")
	refusing := interceptor.NewClient(holding(), interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return denied
	}})
	if _, found, err := (Reader{Live: refusing}).AuthMap(t.Context()); !errors.Is(err, denied) || found {
		t.Errorf("refused: %v, %v", found, err)
	}
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}, Data: map[string]string{"mapRoles": "[]"}}
	if data, found, err := (Reader{Live: holding(there)}).AuthMap(t.Context()); err != nil || !found || data["mapRoles"] != "[]" {
		t.Errorf("there: %v, %v, %v", data, found, err)
	}
}
