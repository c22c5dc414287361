package live

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	statecluster "github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// cached is the cache of a controller: it lists its own objects, not copies.
type cached struct {
	client.Reader
	node corev1.Node
	pods []*corev1.Pod
	// listed has a value for each time that pods were listed.
	listed chan struct{}
}

func (c *cached) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var how client.ListOptions
	how.ApplyOptions(opts)
	if how.UnsafeDisableDeepCopy == nil || !*how.UnsafeDisableDeepCopy {
		return fmt.Errorf("%T is listed as copies", into)
	}
	switch list := into.(type) {
	case *corev1.NodeList:
		list.Items = []corev1.Node{c.node}
	case *karpv1.NodeClaimList:
	}
	return nil
}

// podLister lists the pods of a cache.
type podLister struct{ *cached }

func (l podLister) List(context.Context) ([]*corev1.Pod, error) {
	select {
	case l.listed <- struct{}{}:
	default:
	}
	return l.pods, nil
}

func newCached(pods int) *cached {
	c := &cached{node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}, listed: make(chan struct{}, 1)}
	for i := range pods {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1"}}
		p.Spec.NodeName, p.Status.Phase = "a", corev1.PodRunning
		c.pods = append(c.pods, p)
	}
	return c
}

func (c *cached) shared() Shared {
	return Shared{Name: "shop", Cache: c, Pods: podLister{c}, Read: func(context.Context) (*inspect.View, error) {
		objects := statecluster.Objects{Nodes: []*corev1.Node{&c.node}, Pods: c.pods}
		return inspect.Recorded(objects, nil, statecluster.BuildSnapshot(objects, statecluster.Facts{Now: time.Now(), Settings: snapshot.Settings{}})), nil
	}}
}

// What is watched of a controller's caches are its objects themselves; when nobody looks any more, nothing of it is kept.
func TestASharedClusterIsNotCopied(t *testing.T) {
	c := newCached(1000)
	w := NewSharedWatcher(c.shared(), time.Now)
	ctx, stop := context.WithCancel(t.Context())
	fleets, done := make(chan *top.Fleet, 1), make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(m any) {
			if o, is := m.(top.Observed); is && o.Fleet != nil {
				select {
				case fleets <- o.Fleet:
				default:
				}
			}
		})
	}()
	fleet := <-fleets
	seen := map[*corev1.Pod]bool{}
	for i := range fleet.Pods {
		seen[fleet.Pods[i].Pod] = true
	}
	for _, p := range c.pods {
		if !seen[p] {
			t.Fatalf("pod %s is a copy", p.Name)
		}
	}
	last := weak.Make(fleet)
	fleet = nil
	stop()
	<-done
	select {
	case <-fleets:
	default:
	}
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		runtime.GC()
		return last.Value() == nil, nil
	})
	if err != nil || len(w.pods) != 0 {
		t.Errorf("what was watched is kept, with %d pods: %v", len(w.pods), err)
	}
	select { // of its last look
	case <-c.listed:
	default:
	}
	if _, err := w.View(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-c.listed:
		t.Error("it still looks at the cache")
	default:
	}
}

// BenchmarkSharedWatch is what a look at a controller's caches costs, and what it keeps of each pod besides the pod.
func BenchmarkSharedWatch(b *testing.B) {
	const pods = 100_000
	c := newCached(pods)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	w := NewSharedWatcher(c.shared(), time.Now)
	var last top.Observed
	b.ReportAllocs()
	for b.Loop() {
		w.seen = fingerprint{} // as if a pod had changed
		last, _ = w.observe(b.Context())
	}
	b.ReportMetric(float64(heap()-before)/pods, "B/pod")
	runtime.KeepAlive(last)
	runtime.KeepAlive(w)
}
