package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pods lists all pods.
type Pods = Lister[*corev1.Pod]

// CachedPods are the pods of an informer.
type CachedPods struct{ *Cached[*corev1.Pod] }

// NewCachedPods returns the pods of a cache, which need not have started.
func NewCachedPods(ctx context.Context, c ctrlcache.Cache) (*CachedPods, error) {
	cached, err := NewCached(ctx, c, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	return &CachedPods{cached}, nil
}

// Watch calls changed for each pod that there is, was added or has changed, and deleted for one that is gone, in the order in which the
// cache sees them, one at a time, until ctx is done. Both must return soon, and must not change the pod.
//
// A controller with a queue would do as well, but 30,000 pods that become pending at once are 30,000 entries of each queue, and as many
// reconciles at every change.
func (p *CachedPods) Watch(ctx context.Context, changed, deleted func(*corev1.Pod)) error {
	registration, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { changed(o.(*corev1.Pod)) },
		UpdateFunc: func(was, is any) {
			// After an interruption of the watch, another pod of the name is an update.
			if old := was.(*corev1.Pod); old.UID != is.(*corev1.Pod).UID {
				deleted(old)
			}
			changed(is.(*corev1.Pod))
		},
		DeleteFunc: func(o any) {
			if last, unknown := o.(cache.DeletedFinalStateUnknown); unknown {
				o = last.Obj
			}
			if pod, is := o.(*corev1.Pod); is {
				deleted(pod)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	<-ctx.Done()
	return p.informer.RemoveEventHandler(registration)
}

// ReadPods are the pods of a reader that need not be a cache of informers.
func ReadPods(r client.Reader) Pods { return read[*corev1.Pod]{r, &corev1.PodList{}} }
