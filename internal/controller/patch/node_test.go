package patch

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
)

func keys(n *corev1.Node) (out []string) {
	for _, t := range n.Spec.Taints {
		out = append(out, t.Key)
	}
	return out
}

// What others change in a Node between the cache and our write is kept. Only a change of what ours rests on costs a second attempt.
func TestNode(t *testing.T) {
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule} }
	ours := func(n *corev1.Node) error {
		n.Finalizers = append(n.Finalizers, "example.com/ours")
		n.Spec.Taints = append(slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "joining" }), taint("ours"))
		metav1.SetMetaDataLabel(&n.ObjectMeta, "example.com/a~b", "ours")
		delete(n.Labels, "old")
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, "ours", "1")
		return nil
	}
	full := func(n *corev1.Node) {
		n.Labels, n.Annotations = map[string]string{"old": "1", "kept": "1"}, map[string]string{"kept": "1"}
		n.Finalizers, n.Spec.Taints = []string{"example.com/theirs"}, []corev1.Taint{taint("joining"), taint("theirs")}
	}
	for _, tt := range []struct {
		name      string
		node      func(*corev1.Node)
		meanwhile func(*corev1.Node)
		patches   int
		taints    []string
	}{
		{"nobody else writes", full, nil, 1, []string{"theirs", "ours"}},
		{"a Node without labels, taints and finalizers", func(*corev1.Node) {}, nil, 1, []string{"ours"}},
		{
			"the status and an annotation change", full,
			func(n *corev1.Node) { n.Status.Phase, n.Annotations["theirs"] = corev1.NodeRunning, "1" }, 1,
			[]string{"theirs", "ours"},
		},
		{
			"a taint is removed: it does not come back", full,
			func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1] }, 2,
			[]string{"ours"},
		},
		{
			"the first taint is added", func(*corev1.Node) {},
			func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("theirs")} }, 2,
			[]string{"theirs", "ours"},
		},
		{
			"a finalizer is added", full,
			func(n *corev1.Node) { n.Finalizers = append(n.Finalizers, "example.com/more") }, 2,
			[]string{"theirs", "ours"},
		},
		{
			"the first annotation is added", func(*corev1.Node) {},
			func(n *corev1.Node) { n.Annotations = map[string]string{"theirs": "1"} }, 2,
			[]string{"ours"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
			tt.node(node)
			api := apitest.New(t, time.Now, node)
			read := func() *corev1.Node {
				n := &corev1.Node{}
				if err := api.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			cached := read()
			want := read()
			if tt.meanwhile != nil {
				tt.meanwhile(want)
				if err := api.Update(t.Context(), want); err != nil {
					t.Fatal(err)
				}
			}
			patches := 0
			cache := staleCache{Client: api, node: cached, beforePatch: func() { patches++ }}
			if err := Node(t.Context(), Clients{Client: cache, Live: api}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, ours); err != nil {
				t.Fatal(err)
			}
			got := read()
			if patches != tt.patches || !slices.Equal(keys(got), tt.taints) {
				t.Errorf("%d patches, taints %v; want %d, %v", patches, keys(got), tt.patches, tt.taints)
			}
			_ = ours(want)
			want.ResourceVersion = got.ResourceVersion
			if !equalNodes(got, want) {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

func equalNodes(a, b *corev1.Node) bool { return !differ(a, b, func(string) bool { return true }) }

// A change that only removes taints keeps what others do to the other taints, and brings back none. It is repeated only if the taint
// that it removes is not where it was.
func TestNodeOnlyRemovesTaints(t *testing.T) {
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute} }
	joined := func(n *corev1.Node) error {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "joining" || t.Key == "starting" })
		metav1.SetMetaDataLabel(&n.ObjectMeta, "ours", "1")
		return nil
	}
	for _, tt := range []struct {
		name      string
		meanwhile []string
		patches   int
		want      []string
	}{
		{"nobody else writes", []string{"joining", "cloud", "starting", "notready"}, 1, []string{"cloud", "notready"}},
		{"a taint behind is removed", []string{"joining", "cloud", "starting"}, 1, []string{"cloud"}},
		{"a taint is added", []string{"joining", "cloud", "starting", "notready", "more"}, 1, []string{"cloud", "notready", "more"}},
		{"a taint between is replaced", []string{"joining", "other", "starting", "notready"}, 1, []string{"other", "notready"}},
		{"a taint before is removed", []string{"joining", "starting", "notready"}, 2, []string{"notready"}},
		{"one of them is removed", []string{"cloud", "starting", "notready"}, 2, []string{"cloud", "notready"}},
		{"all are removed", nil, 2, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
			node.Spec.Taints = []corev1.Taint{taint("joining"), taint("cloud"), taint("starting"), taint("notready")}
			now := node.DeepCopy()
			now.Spec.Taints = nil
			for _, key := range tt.meanwhile {
				now.Spec.Taints = append(now.Spec.Taints, taint(key))
			}
			api := apitest.New(t, time.Now, now)
			patches := 0
			cache := staleCache{Client: api, node: node, beforePatch: func() { patches++ }}
			if err := Node(t.Context(), Clients{Client: cache, Live: api}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, joined); err != nil {
				t.Fatal(err)
			}
			got := &corev1.Node{}
			if err := api.Get(t.Context(), client.ObjectKey{Name: "a"}, got); err != nil {
				t.Fatal(err)
			}
			if patches != tt.patches || !slices.Equal(keys(got), tt.want) || got.Labels["ours"] != "1" {
				t.Errorf("%d patches, taints %v, labels %v; want %d, %v", patches, keys(got), got.Labels, tt.patches, tt.want)
			}
		})
	}
}

// A Node that is being deleted, or another that took the name, is not patched from the cache.
func TestNodeThatIsAnotherNow(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"another": func(n *corev1.Node) { n.UID = "uid-b" },
		"being deleted": func(n *corev1.Node) {
			n.DeletionTimestamp, n.Finalizers = &metav1.Time{Time: metav1.Now().Rfc3339Copy().Time}, []string{"example.com/theirs"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cached := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a", Finalizers: []string{"example.com/theirs"}}}
			now := cached.DeepCopy()
			change(now)
			api := apitest.New(t, time.Now, now)
			refused := apierrors.NewConflict(corev1.Resource("nodes"), "a", nil)
			cache := staleCache{Client: api, node: cached, beforePatch: func() {}}
			err := Node(t.Context(), Clients{Client: cache, Live: api}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
				func(n *corev1.Node) error {
					if n.UID != cached.UID || n.DeletionTimestamp != nil {
						return refused
					}
					metav1.SetMetaDataLabel(&n.ObjectMeta, "ours", "1")
					return nil
				})
			if !apierrors.IsConflict(err) {
				t.Errorf("error %v, want that of mutate", err)
			}
			after := &corev1.Node{}
			if err := api.Get(t.Context(), client.ObjectKey{Name: "a"}, after); err != nil || after.Labels["ours"] != "" {
				t.Errorf("error %v, labels %v", err, after.Labels)
			}
		})
	}
}

// No request if nothing changes.
func TestNodeWithoutChange(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID("uid-a")}}
	api := interceptor.NewClient(apitest.New(t, time.Now, node), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			t.Error("patched")
			return nil
		},
	})
	if err := Node(t.Context(), Clients{Client: api, Live: api}, node, func(*corev1.Node) error { return nil }); err != nil {
		t.Fatal(err)
	}
}
