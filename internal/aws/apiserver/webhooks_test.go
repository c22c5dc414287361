package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	claims = Write{
		Group: "karpenter.sh", Resource: "*", Versions: []string{"v1", "v1beta1"},
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
	}
	evictions = Write{Resource: "pods/eviction", Operations: []admissionv1.OperationType{admissionv1.Create}, Namespaced: true}
	ownPods   = Write{Resource: "pods", Operations: []admissionv1.OperationType{admissionv1.Create}, Namespaced: true, Namespace: "karpenter"}
)

// A rule is about a write as the API server matches them, however it spells resources, versions and operations.
func TestAWebhookThatCannotAnswerIsFoundHoweverItsRuleIsSpelled(t *testing.T) {
	exact := admissionv1.Exact
	rule := func(group, version, resource string, operation admissionv1.OperationType) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) {
			w.Rules = []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{operation},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
			}}
		}
	}
	namespaces := func(selector *metav1.LabelSelector) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) {
			rule("", "v1", "pods", admissionv1.Create)(w)
			w.NamespaceSelector = selector
		}
	}
	for _, tt := range []struct {
		name  string
		hook  func(*admissionv1.ValidatingWebhook)
		write Write
		found bool
	}{
		{"deletions of NodeClaims", rule("karpenter.sh", "v1", "nodeclaims", admissionv1.Delete), claims, true},
		{"deletions of Nodes", rule("", "v1", "nodes", admissionv1.Delete), nodeWrites, false},
		{"a subresource of NodeClaims", rule("karpenter.sh", "*", "nodeclaims/status", admissionv1.Update), claims, true},
		{"an old version that is served", rule("karpenter.sh", "v1beta1", "nodepools", admissionv1.Update), claims, true},
		{"an old version that is not", rule("karpenter.sh", "v1alpha5", "nodepools", admissionv1.Update), claims, false},
		{"an old version only", func(w *admissionv1.ValidatingWebhook) {
			rule("karpenter.sh", "v1beta1", "nodepools", admissionv1.Update)(w)
			w.MatchPolicy = &exact
		}, claims, false},
		{"evictions", rule("", "v1", "pods/eviction", admissionv1.Create), evictions, true},
		{"subresources of pods", rule("", "v1", "pods/*", admissionv1.OperationAll), evictions, true},
		{"evictions of all", rule("*", "*", "*/eviction", admissionv1.Create), evictions, true},
		{"all that is no subresource", rule("*", "*", "*", admissionv1.OperationAll), evictions, false},
		{"all with subresources of nodes", rule("", "v1", "nodes/*", admissionv1.Update), nodeWrites, true},
		{"the status of nodes", rule("", "v1", "nodes/status", admissionv1.Update), nodeWrites, false},
		{"pods of the namespace", namespaces(&metav1.LabelSelector{MatchLabels: map[string]string{"team": "ops"}}), ownPods, true},
		{"pods of all namespaces", namespaces(nil), ownPods, true},
		{"pods of other namespaces", namespaces(&metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}), ownPods, false},
		{"evictions in some namespaces", func(w *admissionv1.ValidatingWebhook) {
			rule("", "v1", "pods/eviction", admissionv1.Create)(w)
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ops"}}
		}, evictions, true},
		{"evictions in namespaces that do not exist", func(w *admissionv1.ValidatingWebhook) {
			rule("", "v1", "pods/eviction", admissionv1.Create)(w)
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "none"}}
		}, evictions, false},
		{"NodeClaims, which have no namespace", func(w *admissionv1.ValidatingWebhook) {
			rule("karpenter.sh", "v1", "nodeclaims", admissionv1.Create)(w)
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "none"}}
		}, claims, true},
		{"a URL of a service", func(w *admissionv1.ValidatingWebhook) {
			rule("karpenter.sh", "v1", "*", admissionv1.Create)(w)
			address := "https://guard.ops.svc.cluster.local:8443/validate"
			w.ClientConfig = admissionv1.WebhookClientConfig{URL: &address}
		}, claims, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := append(guard(tt.hook), &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "karpenter", Labels: map[string]string{"team": "ops"}},
			})
			r := Reader{Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()}
			hooks, err := r.WebhooksOf(t.Context(), tt.write)
			if err != nil || (len(hooks) == 1) != tt.found {
				t.Fatalf("%v, %+v", err, hooks)
			}
			for _, h := range hooks {
				if h.Unreachable != "its service ops/guard has no ready endpoint" {
					t.Errorf("%+v", h)
				}
			}
		})
	}
}

// refusal is a policy about NodeClaims and its binding.
func refusal(change func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding)) []client.Object {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	p.Spec.Validations = []admissionv1.Validation{{Expression: "object.metadata.name != ''"}}
	p.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{"karpenter.sh"}, APIVersions: []string{"v1"}, Resources: []string{"nodeclaims"}},
		},
	}}}
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	b.Spec.PolicyName, b.Spec.ValidationActions = "guard", []admissionv1.ValidationAction{admissionv1.Deny}
	change(p, b)
	return []client.Object{p, b}
}

func TestPoliciesThatMayReject(t *testing.T) {
	type policy = admissionv1.ValidatingAdmissionPolicy
	type binding = admissionv1.ValidatingAdmissionPolicyBinding
	deny := admissionv1.DenyAction
	for _, tt := range []struct {
		name    string
		change  func(*policy, *binding)
		found   bool
		refuses string
	}{
		{"by an expression", func(*policy, *binding) {}, true, ""},
		{"always", func(p *policy, _ *binding) { p.Spec.Validations[0].Expression = " false\n" }, true, "false for all"},
		{"without its parameters", func(p *policy, b *binding) {
			p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			b.Spec.ParamRef = &admissionv1.ParamRef{Name: "limits", Namespace: "ops", ParameterNotFoundAction: &deny}
		}, true, "ConfigMap limits, do not exist"},
		{"that only warns", func(_ *policy, b *binding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
		}, false, ""},
		{"that is not bound", func(_ *policy, b *binding) { b.Spec.PolicyName = "other" }, false, ""},
		{"of another resource", func(p *policy, _ *binding) {
			p.Spec.MatchConstraints.ResourceRules[0].APIGroups = []string{"batch"}
		}, false, ""},
		{"of all but ours", func(p *policy, _ *binding) {
			p.Spec.MatchConstraints.ExcludeResourceRules = []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.OperationAll},
					Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
				},
			}}
		}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Reader{Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(refusal(tt.change)...).Build()}
			found, err := r.PoliciesOf(t.Context(), claims)
			if err != nil || (len(found) == 1) != tt.found {
				t.Fatalf("%v, %+v", err, found)
			}
			for _, p := range found {
				if p.Configuration != "validatingadmissionpolicy guard" || p.Mutates || !strings.Contains(p.Refuses, tt.refuses) ||
					(tt.refuses == "") != (p.Refuses == "") {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

func TestPoliciesThatMutate(t *testing.T) {
	p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "labels"}}
	b := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "labels"}}
	b.Spec.PolicyName = "labels"
	p.Spec.MatchConstraints = refusal(func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	})[0].(*admissionv1.ValidatingAdmissionPolicy).Spec.MatchConstraints
	r := Reader{Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(p, b).Build()}
	found, err := r.PoliciesOf(t.Context(), claims)
	if err != nil || len(found) != 1 || found[0] != (Policy{Configuration: "mutatingadmissionpolicy labels", Mutates: true}) {
		t.Errorf("%v, %+v", err, found)
	}
}

// An API server that is too old for policies has none; one that refuses to list them is no sound one.
func TestPoliciesThatCannotBeListed(t *testing.T) {
	denied := errors.New("forbidden")
	for _, tt := range []struct{ answer, want error }{{&meta.NoKindMatchError{}, nil}, {denied, denied}} {
		r := Reader{Live: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return tt.answer
			},
		}).Build()}
		if found, err := r.PoliciesOf(t.Context(), claims); !errors.Is(err, tt.want) || len(found) != 0 {
			t.Errorf("%v: %v, %+v", tt.answer, err, found)
		}
	}
}
