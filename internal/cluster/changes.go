package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Changes counts the changes of API objects in a cache. Heartbeats of nodes do not count. It is safe for concurrent use.
type Changes struct {
	informers ctrlcache.Informers
	kinds     []client.Object

	mu sync.Mutex
	// watched counts how many of kinds are counted.
	watched int
	count   atomic.Uint64
}

// NewChanges returns a counter of the objects of some kinds. It begins to count at the first call of Count.
func NewChanges(informers ctrlcache.Informers, kinds ...client.Object) *Changes {
	return &Changes{informers: informers, kinds: kinds}
}

// Count is the number of changes so far. A change counts a moment after the cache shows it, never before. The first call waits until
// the cache has all objects.
func (c *Changes) Count(ctx context.Context) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; c.watched < len(c.kinds); c.watched++ {
		kind := c.kinds[c.watched]
		informer, err := c.informers.GetInformer(ctx, kind)
		if err == nil {
			_, err = informer.AddEventHandler(c.handler())
		}
		if err != nil {
			return 0, fmt.Errorf("count the changes of %T: %w", kind, err)
		}
	}
	return c.count.Load(), nil
}

func (c *Changes) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.count.Add(1) },
		UpdateFunc: func(before, after any) {
			was, is := before.(client.Object), after.(client.Object)
			if was.GetResourceVersion() == is.GetResourceVersion() {
				return // a resync
			}
			if node, of := before.(*corev1.Node); of && Heartbeat(node, after.(*corev1.Node)) {
				return
			}
			c.count.Add(1)
		},
		DeleteFunc: func(any) { c.count.Add(1) },
	}
}

// SnapshotKinds are the kinds of objects that Snapshots are made from. Those of capacity buffers are not among them: templates of
// workloads may change, whichever kind they have.
func (c *Config) SnapshotKinds() []client.Object {
	kinds := []client.Object{
		&karpv1.NodeClaim{}, &karpv1.NodePool{}, &awsv1.EC2NodeClass{}, &corev1.Node{}, &storagev1.CSINode{}, &corev1.Pod{},
		&appsv1.DaemonSet{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{},
		&storagev1.CSIDriver{}, &storagev1.CSIStorageCapacity{}, &storagev1.VolumeAttachment{},
		&policyv1.PodDisruptionBudget{}, &corev1.Namespace{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{},
	}
	if len(c.Settings.DefaultSpread) > 0 {
		kinds = append(kinds, &corev1.Service{}, &corev1.ReplicationController{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{})
	}
	if c.Devices != nil {
		kinds = append(kinds, &resourcev1.ResourceClaim{}, &resourcev1.ResourceSlice{}, &resourcev1.DeviceClass{})
	}
	return kinds
}
