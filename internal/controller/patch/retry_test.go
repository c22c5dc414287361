package patch

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// staleCache is a client with a cache that no longer follows the API server.
type staleCache struct {
	client.Client
	node *corev1.Node
	// beforePatch runs before each write.
	beforePatch func()
}

func (s staleCache) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	s.beforePatch()
	return s.Client.Patch(ctx, o, p, opts...)
}

func (s staleCache) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.node.DeepCopyInto(o.(*corev1.Node))
	return nil
}

func TestObjectWithRetry(t *testing.T) {
	errRefused := errors.New("refused")
	isRefused := func(err error) bool { return errors.Is(err, errRefused) }
	tests := []struct {
		name string
		// behind is whether the cache lacks another writer's change, races how many of our writes lose against others.
		behind bool
		races  int
		mutate func(*corev1.Node) error
		writes int
		want   func(error) bool
		label  string
	}{
		{"written", false, 0, nil, 1, isNil, "ours"},
		{"the cache is behind", true, 0, nil, 2, isNil, "ours"},
		{"other writers are faster twice", false, 2, nil, 3, isNil, "ours"},
		{"other writers are always faster", false, 100, nil, 4, apierrors.IsConflict, ""},
		{"nothing to change: no write", true, 0, func(*corev1.Node) error { return nil }, 0, isNil, ""},
		{"mutate fails: no write", true, 0, func(*corev1.Node) error { return errRefused }, 0, isRefused, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).Build()
			read := func() *corev1.Node {
				n := &corev1.Node{}
				if err := api.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			others := func() {
				n := read()
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "theirs"})
				if err := api.Update(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			writes := 0
			cache := staleCache{Client: api, node: read(), beforePatch: func() {
				if writes++; writes <= tt.races {
					others()
				}
			}}
			if tt.behind {
				others()
			}
			mutate := tt.mutate
			if mutate == nil {
				mutate = func(n *corev1.Node) error {
					metav1.SetMetaDataLabel(&n.ObjectMeta, "owner", "ours")
					return nil
				}
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			err := ObjectWithRetry(t.Context(), Clients{Client: cache, Live: api}, node, mutate)
			if !tt.want(err) || writes != tt.writes {
				t.Errorf("error %v after %d writes, want %d", err, writes, tt.writes)
			}
			theirs := min(tt.races, tt.writes)
			if tt.behind {
				theirs++
			}
			if n := read(); n.Labels["owner"] != tt.label || len(n.Spec.Taints) != theirs {
				t.Errorf("labels %v and %d taints of others; want %q and %d", n.Labels, len(n.Spec.Taints), tt.label, theirs)
			}
		})
	}
}

func isNil(err error) bool { return err == nil }
