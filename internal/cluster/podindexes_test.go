package cluster_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// Pods are found by a field in all namespaces, and take one key of an index each. Other objects keep both.
func TestPodsAreIndexedOnceByAField(t *testing.T) {
	for _, tt := range []struct {
		example runtime.Object
		objects []any
		keys    []string
	}{
		{
			&corev1.Pod{},
			[]any{
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Spec: corev1.PodSpec{NodeName: "n"}},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "b"}, Spec: corev1.PodSpec{NodeName: "n"}},
			},
			[]string{"__all_namespaces/n"},
		},
		{
			&corev1.PersistentVolumeClaim{},
			[]any{&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "n"},
			}},
			[]string{"__all_namespaces/n", "shop/n"},
		},
	} {
		// As a cache of controller-runtime does it.
		informer := cluster.NewInformer(nil, tt.example, time.Hour, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		err := informer.AddIndexers(cache.Indexers{"field": func(o any) ([]string, error) {
			switch o := o.(type) {
			case *corev1.Pod:
				return []string{o.Namespace + "/" + o.Spec.NodeName, "__all_namespaces/" + o.Spec.NodeName}, nil
			case *corev1.PersistentVolumeClaim:
				return []string{o.Namespace + "/" + o.Spec.VolumeName, "__all_namespaces/" + o.Spec.VolumeName}, nil
			}
			return nil, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range tt.objects {
			if err := informer.GetIndexer().Add(o); err != nil {
				t.Fatal(err)
			}
		}
		keys := informer.GetIndexer().ListIndexFuncValues("field")
		if slices.Sort(keys); !slices.Equal(keys, tt.keys) {
			t.Errorf("%T: keys %q, want %q", tt.example, keys, tt.keys)
		}
		found, err := informer.GetIndexer().ByIndex("field", "__all_namespaces/n")
		if err != nil || len(found) != len(tt.objects) {
			t.Errorf("%T: found %d objects (%v), want %d", tt.example, len(found), err, len(tt.objects))
		}
		in, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, "shop")
		if byNamespace := len(tt.keys) > 1; byNamespace && (err != nil || len(in) != 1) || !byNamespace && err == nil {
			t.Errorf("%T: %d objects of a namespace (%v), want one, and an error for pods", tt.example, len(in), err)
		}
	}
}
