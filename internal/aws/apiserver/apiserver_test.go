package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ops", Name: name} }

// guard is a configuration with one webhook that must approve nodes, and the service behind it with its endpoints.
func guard(change func(*admissionv1.ValidatingWebhook), endpoints ...discoveryv1.Endpoint) []client.Object {
	hook := admissionv1.ValidatingWebhook{
		Name: "nodes.example.com", ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
			Namespace: "ops",
			Name:      "guard",
		}},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
		}},
	}
	change(&hook)
	return []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "guard"},
			Webhooks:   []admissionv1.ValidatingWebhook{hook},
		},
		&corev1.Service{ObjectMeta: named("guard"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "guard"}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ops",
				Name:      "guard-1",
				Labels:    map[string]string{discoveryv1.LabelServiceName: "guard"},
			}, Endpoints: endpoints,
		},
	}
}

// Nodes count by the role of their class, whichever way the class names it; those that have not joined do not.
func TestNodesOfARole(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, awsv1.AddToScheme, karpv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	class := func(name, role, profile string) *awsv1.EC2NodeClass {
		c := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: awsv1.EC2NodeClassSpec{Role: role}}
		c.Status.InstanceProfile = profile
		return c
	}
	claim := func(name, class, os string, registered bool) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: os}}}
		c.Spec.NodeClassRef = karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: class}
		if registered {
			condition.SetTrue(c, karpv1.ConditionRegistered, time.Now())
		}
		return c
	}
	r := Reader{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		class("linux", "team/node", ""), class("windows", "node", ""), class("by-profile", "", "p"), class("other", "else", "q"),
		claim("a", "linux", "linux", true), claim("b", "linux", "linux", false), claim("c", "windows", "windows", true),
		claim("d", "by-profile", "linux", true), claim("e", "other", "linux", true), claim("f", "gone", "linux", true),
	).Build()}
	if got, err := r.NodesOfRole(t.Context(), "node", "p"); err != nil || got != (join.Running{Linux: 2, Windows: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.NodesOfRole(t.Context(), "", ""); err != nil || got != (join.Running{}) {
		t.Errorf("of no role: %+v, %v", got, err)
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
		{
			"no ready endpoint", guard(as, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &notReady}}), 1,
			"no ready endpoint", false,
		},
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
				if (h.Backend == "") != (tt.backend == "") || !strings.Contains(h.Backend, tt.backend) || h.Selective != tt.selective ||
					h.Configuration != "validatingwebhookconfiguration guard" {
					t.Errorf("%+v, want backend %q, selective %v", h, tt.backend, tt.selective)
				}
			}
		})
	}
}

// A webhook of an API group is found by any of its resources, with the pods that answer for it.
func TestWebhooksOf(t *testing.T) {
	ofPools := func(w *admissionv1.ValidatingWebhook) {
		w.Rules[0].APIGroups, w.Rules[0].Resources = []string{"karpenter.sh"}, []string{"nodepools"}
	}
	ready := true
	objects := guard(ofPools, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	r := Reader{Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()}
	create := []admissionv1.OperationType{admissionv1.Create}
	for _, tt := range []struct {
		group, resource string
		want            int
	}{{"karpenter.sh", "*", 1}, {"karpenter.sh", "nodepools", 1}, {"karpenter.sh", "nodeclaims", 0}, {"", "nodes", 0}} {
		hooks, err := r.WebhooksOf(t.Context(), Write{Group: tt.group, Resource: tt.resource, Operations: create})
		if err != nil || len(hooks) != tt.want {
			t.Errorf("%s/%s: %v, %+v", tt.group, tt.resource, err, hooks)
			continue
		}
		for _, h := range hooks {
			if h.Namespace != "ops" || h.Service != "guard" || len(h.Selector) == 0 || h.Unreachable != "" || h.Selective {
				t.Errorf("%+v", h)
			}
		}
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
	refusing := interceptor.NewClient(
		holding(),
		interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return denied
		}},
	)
	if _, found, err := (Reader{Live: refusing}).AuthMap(t.Context()); !errors.Is(err, denied) || found {
		t.Errorf("refused: %v, %v", found, err)
	}
	there := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"},
		Data:       map[string]string{"mapRoles": "[]"},
	}
	if data, found, err := (Reader{Live: holding(there)}).AuthMap(t.Context()); err != nil || !found || data["mapRoles"] != "[]" {
		t.Errorf("there: %v, %v, %v", data, found, err)
	}
}
