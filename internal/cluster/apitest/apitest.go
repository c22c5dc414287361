// Package apitest is an API server for tests of controllers: controller-runtime's fake client with what controllers
// rely on and the fake lacks. Objects get a UID, a creation time and predictable names, a deletion with a precondition
// on another UID is rejected, and so is a JSON patch of which a test fails, as Invalid. Deletion times are those of the
// system clock.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// New returns an API server with objects. It sets missing UIDs and creation times.
func New(t testing.TB, now func() time.Time, objects ...client.Object) client.WithWatch {
	t.Helper()
	s := &server{now: now}
	for _, o := range objects {
		s.name(o)
	}
	scheme := scheme(t)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		// Controllers do not use server-side apply, and the tracker that supports it is slow.
		WithObjectTracker(clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())).
		WithStatusSubresource(
			&karpv1.NodeClaim{},
			&karpv1.NodePool{},
			&awsv1.EC2NodeClass{},
			&corev1.Node{},
			&corev1.Pod{},
			&v1alpha1.NodeOverlay{},
			&bufferv1.CapacityBuffer{},
		)
	if err := cluster.AddIndexes(t.Context(), indexes{builder}); err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Create: s.create, Delete: s.delete, Patch: patch, SubResourcePatch: patchSubresource, Get: sharedReads{t}.get,
	})
}

// sharedReads has the test fail if it changes what an object refers to that was read without a copy. With a cache, as controllers have,
// that would change the cache.
type sharedReads struct{ t testing.TB }

func (s sharedReads) get(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	err := c.Get(ctx, key, o, opts...)
	asked := client.GetOptions{}
	for _, opt := range opts {
		opt.ApplyToGet(&asked)
	}
	if err != nil || asked.UnsafeDisableDeepCopy == nil || !*asked.UnsafeDisableDeepCopy {
		return err
	}
	read, want := reflect.New(reflect.TypeOf(o).Elem()), o.DeepCopyObject()
	read.Elem().Set(reflect.ValueOf(o).Elem())
	s.t.Cleanup(func() {
		if got := read.Interface(); !equality.Semantic.DeepEqual(got, want) {
			s.t.Errorf("%T %s is shared with the cache and was changed: %+v, was %+v", o, key, got, want)
		}
	})
	return nil
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	out := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, resourcev1.AddToScheme, nodev1.AddToScheme, schedulingv1.AddToScheme,
		schedulingv1beta1.AddToScheme,
		storagev1.AddToScheme, karpv1.AddToScheme, awsv1.AddToScheme, v1alpha1.AddToScheme, bufferv1.AddToScheme,
	} {
		if err := add(out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// indexes adapts the builder of a fake client to AddIndexes.
type indexes struct{ builder *fake.ClientBuilder }

func (i indexes) IndexField(_ context.Context, o client.Object, field string, value client.IndexerFunc) error {
	i.builder.WithIndex(o, field, value)
	return nil
}

type server struct {
	now func() time.Time

	mu    sync.Mutex
	count int
}

// name sets the fields that an API server would.
func (s *server) name(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(fmt.Sprintf("%s%d", o.GetGenerateName(), s.count))
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("%s-%d", o.GetName(), s.count)))
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(s.now()).Rfc3339Copy())
	}
}

func (s *server) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	s.name(o)
	return c.Create(ctx, o, opts...)
}

func patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return answer(p, c.Patch(ctx, o, p, opts...))
}

func patchSubresource(
	ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return answer(p, c.SubResource(name).Patch(ctx, o, p, opts...))
}

// answer makes a failed test of a JSON patch the response that an API server gives.
func answer(p client.Patch, err error) error {
	var status apierrors.APIStatus
	if p.Type() == types.JSONPatchType && err != nil && !errors.As(err, &status) {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return err
}

func (s *server) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	if p := options.Preconditions; p != nil && p.UID != nil {
		have := o.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
			return err
		}
		if have.GetUID() != *p.UID {
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("UID is %s, not %s", have.GetUID(), *p.UID))
		}
	}
	return c.Delete(ctx, o, opts...)
}
