package schedulertest

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// objects is an informer with objects that never change: it has seen all of them from the start.
type objects struct {
	cache.SharedIndexInformer // what the plugins do not call
	indexer                   cache.Indexer
}

// newObjects is an informer over the objects. The error is an object without a name.
func newObjects(list ...runtime.Object) (*objects, error) {
	o := &objects{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	for _, object := range list {
		if err := o.indexer.Add(object); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *objects) GetIndexer() cache.Indexer { return o.indexer }

func (o *objects) AddIndexers(more cache.Indexers) error { return o.indexer.AddIndexers(more) }

func (o *objects) HasSynced() bool { return true }

func (o *objects) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, object := range o.indexer.List() {
		h.OnAdd(object, true)
	}
	return o, nil
}

func (o *objects) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, _ cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return o.AddEventHandler(h)
}

func (o *objects) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

func (o *objects) HasSyncedChecker() cache.DoneChecker { return o }

func (o *objects) Name() string { return "objects" }

func (o *objects) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// newFactory has an informer for each kind that the plugins list, with the objects that are given. The error is an object without a name.
func newFactory(given map[string][]runtime.Object) (informers.SharedInformerFactory, error) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	for kind, example := range map[string]runtime.Object{
		"Pod": &corev1.Pod{}, "Node": &corev1.Node{}, "Namespace": &corev1.Namespace{}, "Service": &corev1.Service{},
		"PersistentVolume": &corev1.PersistentVolume{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaim{},
		"ReplicationController": &corev1.ReplicationController{}, "ReplicaSet": &appsv1.ReplicaSet{}, "StatefulSet": &appsv1.StatefulSet{},
		"StorageClass": &storagev1.StorageClass{}, "CSINode": &storagev1.CSINode{}, "CSIDriver": &storagev1.CSIDriver{},
		"CSIStorageCapacity": &storagev1.CSIStorageCapacity{}, "VolumeAttachment": &storagev1.VolumeAttachment{},
		"PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
	} {
		list, err := newObjects(given[kind]...)
		if err != nil {
			return nil, err
		}
		factory.InformerFor(example, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return list })
	}
	return factory, nil
}
