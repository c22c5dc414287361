package patch

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
)

// What others write to an object is kept and costs no conflict, unless the written part of the status rests on it.
func TestStatusIfSame(t *testing.T) {
	start := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	register := func(c *karpv1.NodeClaim) {
		c.Status.NodeName = "node-a"
		condition.SetTrue(c, karpv1.ConditionRegistered, start.Add(time.Minute))
	}
	for _, tt := range []struct {
		name      string
		meanwhile func(*karpv1.NodeClaim)
		status    bool
		conflict  bool
		patches   int
	}{
		{"nobody else writes", nil, false, false, 1},
		{"an annotation changes", func(c *karpv1.NodeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, "theirs", "1") }, false, false, 1},
		{
			"another field of the status changes",
			func(c *karpv1.NodeClaim) { c.Status.LastPodEventTime = metav1.NewTime(start) }, true, false, 1,
		},
		{
			"another condition changes",
			func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionDrifted, start) }, true, true, 2,
		},
		{"the field is set", func(c *karpv1.NodeClaim) { c.Status.NodeName = "node-b" }, true, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
			condition.SetTrue(claim, karpv1.ConditionLaunched, start)
			api := apitest.New(t, func() time.Time { return start }, claim)
			before := readClaim(t, api)
			if tt.meanwhile != nil {
				other := readClaim(t, api)
				tt.meanwhile(other)
				writeClaim(t, api, other, tt.status)
			}
			patches := 0
			counting := interceptor.NewClient(api, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch,
					opts ...client.SubResourcePatchOption,
				) error {
					patches++
					return c.SubResource(name).Patch(ctx, o, p, opts...)
				},
			})
			after := before.DeepCopy()
			register(after)
			written, err := StatusIfSame(t.Context(), counting, before, after)
			if written == tt.conflict || apierrors.IsConflict(err) != tt.conflict || err != nil && !tt.conflict || patches != tt.patches {
				t.Fatalf("written %v, error %v, %d patches; want conflict %v, %d", written, err, patches, tt.conflict, tt.patches)
			}
			got := readClaim(t, api)
			if condition.IsTrue(got, karpv1.ConditionRegistered) == tt.conflict || (got.Status.NodeName == "node-a") == tt.conflict {
				t.Errorf("status %+v", got.Status)
			}
			if tt.meanwhile != nil {
				kept := got.DeepCopy()
				if tt.meanwhile(kept); !equalClaims(kept, got) {
					t.Errorf("what others wrote is lost: %+v", got)
				}
			}
			if !tt.conflict && !equalClaims(after, got) {
				t.Errorf("the object holds %+v, not the answer %+v", after, got)
			}
		})
	}
}

func readClaim(t *testing.T, api client.Client) *karpv1.NodeClaim {
	t.Helper()
	claim := &karpv1.NodeClaim{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "a"}, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

func writeClaim(t *testing.T, api client.Client, claim *karpv1.NodeClaim, status bool) {
	t.Helper()
	write := func() error { return api.Update(t.Context(), claim) }
	if status {
		write = func() error { return api.Status().Update(t.Context(), claim) }
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
}

func equalClaims(a, b *karpv1.NodeClaim) bool {
	return !differ(a, b, func(string) bool { return true })
}

// A claim that is being deleted, or another that took the name, gets no status of the claim that was read.
func TestStatusIfSameOfAnother(t *testing.T) {
	for name, change := range map[string]func(*karpv1.NodeClaim){
		"another": func(c *karpv1.NodeClaim) { c.UID = "uid-b" },
		"being deleted": func(c *karpv1.NodeClaim) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: metav1.Now().Rfc3339Copy().Time}, []string{"example.com/ours"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cached := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a", ResourceVersion: "1"}}
			condition.SetTrue(cached, karpv1.ConditionLaunched, time.Now())
			now := cached.DeepCopy()
			now.ResourceVersion = ""
			change(now)
			api := apitest.New(t, time.Now, now)
			after := cached.DeepCopy()
			condition.SetTrue(after, karpv1.ConditionRegistered, time.Now())
			if _, err := StatusIfSame(t.Context(), api, cached, after); !apierrors.IsConflict(err) {
				t.Errorf("error %v, want a conflict", err)
			}
			if got := readClaim(t, api); condition.IsTrue(got, karpv1.ConditionRegistered) {
				t.Errorf("status %+v", got.Status)
			}
		})
	}
}

// A status that nothing has changed is not sent, and one that the API server does not accept is an error.
func TestStatusIfSameThatIsNotWritten(t *testing.T) {
	invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("NodeClaim").GroupKind(), "a", nil)
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
	api := interceptor.NewClient(apitest.New(t, time.Now, claim), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return invalid
		},
	})
	before := readClaim(t, api)
	if written, err := StatusIfSame(t.Context(), api, before, before.DeepCopy()); written || err != nil {
		t.Errorf("written %v, error %v, but nothing has changed", written, err)
	}
	after := before.DeepCopy()
	after.Status.NodeName = "node-a"
	if written, err := StatusIfSame(t.Context(), api, before, after); written || !apierrors.IsInvalid(err) {
		t.Errorf("written %v, error %v, want that it is invalid", written, err)
	}
}
