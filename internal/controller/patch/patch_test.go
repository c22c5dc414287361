package patch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestObjectAndStatus(t *testing.T) {
	label := func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, "a", "b") }
	phase := func(n *corev1.Node) { n.Status.Phase = corev1.NodeRunning }
	nothing := func(*corev1.Node) {}
	tests := []struct {
		name           string
		status         bool
		mutate         func(*corev1.Node)
		behind         bool
		written, fails bool
	}{
		{"a label changes", false, label, false, true, false},
		{"the status changes", true, phase, false, true, false},
		{"nothing changes", false, nothing, false, false, false},
		{"nothing changes in the status", true, nothing, false, false, false},
		{"only the status changes, which is written apart", false, phase, false, false, false},
		{"only a label changes, which is written apart", true, label, false, false, false},
		{"the object read is stale", false, label, true, false, true},
		{"the status read is stale", true, phase, true, false, true},
		{"nothing changes in a stale object", false, nothing, true, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			c := fake.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			read := node.ResourceVersion
			if tt.behind {
				other := node.DeepCopy()
				other.Labels = map[string]string{"other": "writer"}
				if err := c.Update(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			write := Object
			if tt.status {
				write = Status
			}
			written, err := write(t.Context(), c, node, func() { tt.mutate(node) })
			if written != tt.written || apierrors.IsConflict(err) != tt.fails || err != nil && !tt.fails {
				t.Errorf("written %v, error %v; want %v, conflict %v", written, err, tt.written, tt.fails)
			}
			if changed := node.ResourceVersion != read; changed != tt.written {
				t.Errorf("resource version %s after %s", node.ResourceVersion, read)
			}
		})
	}
}
