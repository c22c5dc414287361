package cluster_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	framework "k8s.io/client-go/tools/cache/testing"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// informers is a cache with one informer.
type informers struct {
	ctrlcache.Cache
	pods cache.SharedIndexInformer
}

func (i informers) GetInformer(context.Context, client.Object, ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	return i.pods, nil
}

// What watches pods sees those that there were, and each change, until it finishes. A pod that took the name of another is another pod.
func TestPodsAreWatched(t *testing.T) {
	source := framework.NewFakeControllerSource()
	pod := func(uid, node string) *corev1.Pod {
		return podOf("web", func(p *corev1.Pod) { p.UID, p.Spec.NodeName = types.UID(uid), node })
	}
	source.Add(pod("1", ""))
	informer := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pods, err := cluster.NewCachedPods(ctx, informers{pods: informer})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { informer.Run(ctx.Done()); close(stopped) }()
	said, ended := make(chan string), make(chan error)
	tell := func(what string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			select {
			case said <- what + " " + string(p.UID) + " " + p.Spec.NodeName:
			case <-ctx.Done():
			}
		}
	}
	go func() { ended <- pods.Watch(ctx, tell("changed"), tell("deleted")) }()
	got := []string{<-said}
	source.Modify(pod("1", "node-a"))
	got = append(got, <-said)
	source.Modify(pod("2", ""))
	got = append(got, <-said, <-said)
	source.Delete(pod("2", ""))
	got = append(got, <-said)
	if want := []string{"changed 1 ", "changed 1 node-a", "deleted 1 node-a", "changed 2 ", "deleted 2 "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("when it ends: %v", err)
	}
	<-stopped
}
