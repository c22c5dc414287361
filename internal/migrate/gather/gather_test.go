package gather_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/internal/migrate"
	"github.com/dovetail-k8s/dovetail/internal/migrate/gather"
)

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
