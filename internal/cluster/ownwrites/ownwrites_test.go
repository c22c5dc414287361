package ownwrites

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
)

// lagging is a client with a cache that shows claims as they were when it caught up last.
type lagging struct {
	client.WithWatch
	cache map[string]karpv1.NodeClaim
}

func (l *lagging) catchUp(t *testing.T) {
	t.Helper()
	var list karpv1.NodeClaimList
	if err := l.WithWatch.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	l.cache = map[string]karpv1.NodeClaim{}
	for _, c := range list.Items {
		l.cache[c.Name] = c
	}
}

func (l *lagging) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c, ok := l.cache[key.Name]
	if !ok {
		return apierrors.NewNotFound(karpv1.GroupVersion.WithResource("nodeclaims").GroupResource(), key.Name)
	}
	c.DeepCopyInto(o.(*karpv1.NodeClaim))
	return nil
}

func (l *lagging) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	out := list.(*karpv1.NodeClaimList)
	for _, c := range l.cache {
		out.Items = append(out.Items, *c.DeepCopy())
	}
	return nil
}

type world struct {
	api   *lagging
	fresh *Client
	now   time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.Labels = "a", map[string]string{"old": "yes"}
	w.api = &lagging{WithWatch: apitest.New(t, func() time.Time { return w.now }, claim)}
	w.api.catchUp(t)
	w.fresh = New(w.api, func() time.Time { return w.now })
	return w
}

func (w *world) read(t *testing.T) *karpv1.NodeClaim {
	t.Helper()
	claim := &karpv1.NodeClaim{}
	if err := w.fresh.Get(t.Context(), client.ObjectKey{Name: "a"}, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// informer lists the claims of the cache without copies.
type informer struct{ api *lagging }

func (i informer) List(context.Context) (out []*karpv1.NodeClaim, _ error) {
	for _, claim := range i.api.cache {
		out = append(out, &claim)
	}
	return out, nil
}

// label changes a claim as a controller does.
func (w *world) label(t *testing.T, c client.Client, value string) error {
	t.Helper()
	claim := w.read(t)
	before := claim.DeepCopy()
	claim.Labels = map[string]string{"new": value}
	return c.Patch(t.Context(), claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func TestOwnWriteIsRead(t *testing.T) {
	w := newWorld(t)
	if err := w.label(t, w.fresh, "1"); err != nil {
		t.Fatal(err)
	}
	if got := w.read(t); got.Labels["new"] != "1" || got.Labels["old"] != "" {
		t.Errorf("labels %v", got.Labels)
	}
	var list karpv1.NodeClaimList
	if err := w.fresh.List(t.Context(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Labels["new"] != "1" {
		t.Errorf("list: %v, %+v", err, list.Items)
	}
	if claims, err := (Claims{informer{w.api}, w.fresh}).List(t.Context()); err != nil || len(claims) != 1 || claims[0].Labels["new"] != "1" {
		t.Errorf("list without copies: %v, %+v", err, claims)
	}
	// The next write is not refused, though the cache still shows what was before the first.
	claim := w.read(t)
	before := claim.DeepCopy()
	condition.SetTrue(claim, karpv1.ConditionLaunched, w.now)
	if err := w.fresh.Status().Patch(t.Context(), claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		t.Fatal(err)
	}
	if got := w.read(t); !condition.IsTrue(got, karpv1.ConditionLaunched) || got.Labels["new"] != "1" {
		t.Errorf("labels %v, conditions %v", got.Labels, got.Status.Conditions)
	}
}

func TestWhatIsReadMayBeChanged(t *testing.T) {
	w := newWorld(t)
	if err := w.label(t, w.fresh, "1"); err != nil {
		t.Fatal(err)
	}
	w.read(t).Labels["new"] = "changed by the reader"
	if got := w.read(t).Labels["new"]; got != "1" {
		t.Errorf("the next one reads %q", got)
	}
}

func TestCacheWins(t *testing.T) {
	tests := []struct {
		name string
		then func(t *testing.T, w *world)
		want string
	}{
		{"it shows what somebody else has written since", func(t *testing.T, w *world) {
			if err := w.label(t, w.api, "other"); err != nil {
				t.Fatal(err)
			}
			w.api.catchUp(t)
		}, "other"},
		{"it shows another claim of that name", func(t *testing.T, w *world) {
			c := w.api.cache["a"]
			c.UID, c.Labels = types.UID("another"), map[string]string{"new": "another"}
			w.api.cache["a"] = c
		}, "another"},
		{"the write is long ago", func(_ *testing.T, w *world) { w.now = w.now.Add(2 * retention) }, ""},
		{"its versions cannot be compared", func(_ *testing.T, w *world) {
			c := w.api.cache["a"]
			c.ResourceVersion = "x"
			w.api.cache["a"] = c
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if err := w.label(t, w.fresh, "1"); err != nil {
				t.Fatal(err)
			}
			tt.then(t, w)
			if got := w.read(t).Labels["new"]; got != tt.want {
				t.Errorf("read %q, want %q", got, tt.want)
			}
		})
	}
}

func TestGoneIsGone(t *testing.T) {
	w := newWorld(t)
	if err := w.label(t, w.fresh, "1"); err != nil {
		t.Fatal(err)
	}
	w.api.cache = nil
	if err := w.fresh.Get(t.Context(), client.ObjectKey{Name: "a"}, &karpv1.NodeClaim{}); !apierrors.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
}

func TestRefusedWriteIsForgotten(t *testing.T) {
	w := newWorld(t)
	if err := w.label(t, w.api, "other"); err != nil { // behind the back of fresh
		t.Fatal(err)
	}
	if err := w.label(t, w.fresh, "1"); !apierrors.IsConflict(err) {
		t.Fatalf("error %v", err)
	}
	if got := w.read(t); got.Labels["old"] != "yes" {
		t.Errorf("read %v", got.Labels)
	}
}

func TestWritesAreNotKeptForEver(t *testing.T) {
	w := newWorld(t)
	if err := w.label(t, w.fresh, "1"); err != nil {
		t.Fatal(err)
	}
	w.fresh.written["gone"] = w.fresh.written["a"]
	w.now = w.now.Add(2 * retention)
	w.api.catchUp(t)
	if err := w.label(t, w.fresh, "2"); err != nil {
		t.Fatal(err)
	}
	if len(w.fresh.written) != 1 {
		t.Errorf("%d writes are remembered", len(w.fresh.written))
	}
}
