package gather_test

import (
	"context"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/internal/migrate"
	"github.com/dovetail-k8s/dovetail/internal/migrate/gather"
)

// However many webhooks there are, and kinds of writes, each configuration and service is read once.
func TestWebhooksAreReadOnce(t *testing.T) {
	hooks := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	for i := range 50 {
		hooks.Webhooks = append(hooks.Webhooks, admissionv1.ValidatingWebhook{
			Name:         fmt.Sprintf("w%d.example.com", i),
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ops", Name: fmt.Sprint("s", i%2)}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
			}},
		})
	}
	reads := map[string]int{}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "u"}}
	kube := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(system, hooks).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			reads[fmt.Sprintf("%T %s", o, key)]++
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			reads[fmt.Sprintf("%T %s", list, list.GetObjectKind().GroupVersionKind())]++
			return c.List(ctx, list, opts...)
		},
	}).Build()
	facts, err := gather.Kubernetes(t.Context(), kube, "")
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range reads {
		if n > 1 {
			t.Errorf("%s: read %d times", what, n)
		}
	}
	for _, what := range []string{migrate.WritesOfClaims, migrate.Evictions, migrate.WritesOfNodes} {
		found := facts.Webhooks[what]
		if len(found) != 50 || found[0].Unreachable != "its service ops/s0 does not exist" || found[1].Unreachable != "its service ops/s1 does not exist" {
			t.Errorf("%s: %+v", what, found)
		}
	}
}

// A check of objects that could not be found must not report that all is well.
func TestWithoutTheRightToListNothingIsSound(t *testing.T) {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "u"}}
	kube := fake.NewClientBuilder().WithObjects(system).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "", nil)
		},
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, key.Name, nil)
		},
	}).Build()
	facts, err := gather.Kubernetes(t.Context(), kube, "")
	if err != nil {
		t.Fatal(err)
	}
	gather.Configuration(t.Context(), kube, facts)
	for _, r := range migrate.Run(facts).Results {
		needs := map[string]bool{"version": true, "crds": true, "provider": true, "fields": true, "webhooks": true, "settings": true, "permissions": true}
		if needs[r.Check] && r.Status != migrate.NotChecked {
			t.Errorf("%+v", r)
		}
	}
}
