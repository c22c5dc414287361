package kubelet

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ownNode is what a kubelet knows of its Node: from its watch, and from the responses to its writes. As in kubelet, only a write
// costs a request. It is safe for concurrent use.
type ownNode struct {
	mu sync.Mutex
	// node must not be changed; nil while there is no Node, as far as is known.
	node *corev1.Node
}

// get returns the Node, which must not be changed; nil if there is none.
func (o *ownNode) get() *corev1.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.node
}

// see takes note of a Node as the API server had it, unless a later version is known: watch and responses may come in either order.
func (o *ownNode) see(node *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.node != nil && o.node.UID == node.UID {
		if order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, o.node.ResourceVersion); err == nil && order < 0 {
			return
		}
	}
	o.node = node
}

// gone takes note of the deletion of a Node.
func (o *ownNode) gone(node *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.node != nil && o.node.UID == node.UID {
		o.node = nil
	}
}

// watch keeps o up to date until ctx is done.
func (o *ownNode) watch(ctx context.Context, cfg Config) {
	// The only list of nodes that the Node authorizer allows.
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, cfg.Name).String()
	nodes := cfg.Client.CoreV1().Nodes()
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = selector
				return nodes.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = selector
				return nodes.Watch(ctx, options)
			},
		}, cfg.Client),
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(node any) { o.see(node.(*corev1.Node)) },
			UpdateFunc: func(_, node any) { o.see(node.(*corev1.Node)) },
			DeleteFunc: func(last any) {
				if missed, ok := last.(cache.DeletedFinalStateUnknown); ok {
					last = missed.Obj
				}
				if node, ok := last.(*corev1.Node); ok {
					o.gone(node)
				}
			},
		},
	})
	informer.RunWithContext(ctx)
}
