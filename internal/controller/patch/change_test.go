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

// stale is a cache that stands still.
type stale struct {
	client.Reader
	node *corev1.Node
}

func (s stale) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.node.DeepCopyInto(o.(*corev1.Node))
	return nil
}

func TestChange(t *testing.T) {
	errNotNow := errors.New("not now")
	tests := []struct {
		name string
		// behind is what others have written that the cache does not show, races how many of our writes they get ahead of.
		behind bool
		races  int
		edit   func(*corev1.Node) error
		writes int
		want   func(error) bool
		label  string
	}{
		{"written", false, 0, nil, 1, isNil, "ours"},
		{"the cache is behind", true, 0, nil, 2, isNil, "ours"},
		{"others are faster", false, 2, nil, 3, isNil, "ours"},
		{"others are always faster", false, 100, nil, 4, apierrors.IsConflict, ""},
		{"nothing to change", true, 0, func(*corev1.Node) error { return nil }, 0, isNil, ""},
		{"not to be changed", true, 0, func(*corev1.Node) error { return errNotNow }, 0, func(err error) bool { return errors.Is(err, errNotNow) }, ""},
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
			cache := stale{node: read()}
			if tt.behind {
				others()
			}
			edit, writes := tt.edit, 0
			if edit == nil {
				edit = func(n *corev1.Node) error {
					metav1.SetMetaDataLabel(&n.ObjectMeta, "whose", "ours")
					return nil
				}
			}
			err := Change(t.Context(), cache, api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, edit, func(n *corev1.Node, p client.Patch) error {
				if writes++; writes <= tt.races {
					others()
				}
				return api.Patch(t.Context(), n, p)
			})
			if !tt.want(err) || writes != tt.writes {
				t.Errorf("error %v after %d writes, want %d", err, writes, tt.writes)
			}
			theirs := min(tt.races, tt.writes)
			if tt.behind {
				theirs++
			}
			if n := read(); n.Labels["whose"] != tt.label || len(n.Spec.Taints) != theirs {
				t.Errorf("labels %v and %d taints of others; want %q and %d", n.Labels, len(n.Spec.Taints), tt.label, theirs)
			}
		})
	}
}

func isNil(err error) bool { return err == nil }
