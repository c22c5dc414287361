package recorder

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// seen are the API objects that a pass saw. The engine does not need the node classes; anyone who queries later why a pool launched
// nothing, or why a node drifted, does.
type seen struct {
	*cluster.Objects
	nodeClasses []*awsv1.EC2NodeClass
}

// kind is a kind of API objects. Buffers and what pools may launch are recorded apart.
type kind struct {
	name string
	// each calls f with the objects of the kind.
	each func(o *seen, f func(client.Object))
	// decode parses an object, add adds one that decode has made.
	decode func(data []byte) (client.Object, error)
	add    func(o *seen, object client.Object)
	// reduced is a copy of an object without secrets and without what plans do not depend on.
	reduced func(client.Object) client.Object
}

// kinds are all kinds, in the order in which they are recorded.
func kinds() []kind {
	return []kind{
		newKind("NodePool", func(o *seen) list[*karpv1.NodePool] { return poolList{o.Objects} }),
		newKind("EC2NodeClass", func(o *seen) list[*awsv1.EC2NodeClass] { return (*plain[*awsv1.EC2NodeClass])(&o.nodeClasses) }),
		newKind("NodeClaim", func(o *seen) list[*karpv1.NodeClaim] { return (*plain[*karpv1.NodeClaim])(&o.NodeClaims) }),
		newKind("Node", func(o *seen) list[*corev1.Node] { return (*plain[*corev1.Node])(&o.Nodes) }),
		newKind("CSINode", func(o *seen) list[*storagev1.CSINode] { return (*plain[*storagev1.CSINode])(&o.CSINodes) }),
		newKind("CSIDriver", func(o *seen) list[*storagev1.CSIDriver] { return (*plain[*storagev1.CSIDriver])(&o.CSIDrivers) }),
		newKind("CSIStorageCapacity", func(o *seen) list[*storagev1.CSIStorageCapacity] {
			return (*plain[*storagev1.CSIStorageCapacity])(&o.CSIStorageCapacities)
		}),
		newKind("Pod", func(o *seen) list[*corev1.Pod] { return (*plain[*corev1.Pod])(&o.Pods) }),
		newKind("DaemonSet", func(o *seen) list[*appsv1.DaemonSet] { return (*plain[*appsv1.DaemonSet])(&o.DaemonSets) }),
		newKind("PersistentVolumeClaim", func(o *seen) list[*corev1.PersistentVolumeClaim] {
			return (*plain[*corev1.PersistentVolumeClaim])(&o.PersistentVolumeClaims)
		}),
		newKind("PersistentVolume", func(o *seen) list[*corev1.PersistentVolume] {
			return (*plain[*corev1.PersistentVolume])(&o.PersistentVolumes)
		}),
		newKind("VolumeAttachment", func(o *seen) list[*storagev1.VolumeAttachment] {
			return (*plain[*storagev1.VolumeAttachment])(&o.VolumeAttachments)
		}),
		newKind("StorageClass", func(o *seen) list[*storagev1.StorageClass] {
			return (*plain[*storagev1.StorageClass])(&o.StorageClasses)
		}),
		newKind("PodDisruptionBudget", func(o *seen) list[*policyv1.PodDisruptionBudget] {
			return (*plain[*policyv1.PodDisruptionBudget])(&o.PDBs)
		}),
		newKind("Namespace", func(o *seen) list[*corev1.Namespace] { return (*plain[*corev1.Namespace])(&o.Namespaces) }),
		newKind("LimitRange", func(o *seen) list[*corev1.LimitRange] { return (*plain[*corev1.LimitRange])(&o.LimitRanges) }),
		newKind("RuntimeClass", func(o *seen) list[*nodev1.RuntimeClass] { return (*plain[*nodev1.RuntimeClass])(&o.RuntimeClasses) }),
		newKind("Service", func(o *seen) list[*corev1.Service] { return (*plain[*corev1.Service])(&o.Services) }),
		newKind("ReplicationController", func(o *seen) list[*corev1.ReplicationController] {
			return (*plain[*corev1.ReplicationController])(&o.ReplicationControllers)
		}),
		newKind("ReplicaSet", func(o *seen) list[*appsv1.ReplicaSet] { return (*plain[*appsv1.ReplicaSet])(&o.ReplicaSets) }),
		newKind("StatefulSet", func(o *seen) list[*appsv1.StatefulSet] {
			return (*plain[*appsv1.StatefulSet])(&o.StatefulSets)
		}),
		newKind("ResourceClaim", func(o *seen) list[*resourcev1.ResourceClaim] {
			return devicesOf(o, func(d *cluster.Devices) *[]*resourcev1.ResourceClaim { return &d.Claims })
		}),
		newKind("ResourceSlice", func(o *seen) list[*resourcev1.ResourceSlice] {
			return devicesOf(o, func(d *cluster.Devices) *[]*resourcev1.ResourceSlice { return &d.Slices })
		}),
		newKind("DeviceClass", func(o *seen) list[*resourcev1.DeviceClass] {
			return devicesOf(o, func(d *cluster.Devices) *[]*resourcev1.DeviceClass { return &d.Classes })
		}),
		newKind("DeviceTaintRule", func(o *seen) list[*resourcev1.DeviceTaintRule] {
			return devicesOf(o, func(d *cluster.Devices) *[]*resourcev1.DeviceTaintRule { return &d.TaintRules })
		}),
		newKind("PodGroup", func(o *seen) list[*schedulingv1beta1.PodGroup] {
			if o.PodGroups == nil {
				return &plain[*schedulingv1beta1.PodGroup]{}
			}
			return (*plain[*schedulingv1beta1.PodGroup])(&o.PodGroups.Groups)
		}),
	}
}

// list is where the objects of a kind are.
type list[P any] interface {
	all() []P
	add(P)
}

type plain[P any] []P

func (l *plain[P]) all() []P { return *l }
func (l *plain[P]) add(p P)  { *l = append(*l, p) }

// devicesOf is empty if the objects of dynamic resource allocation are ignored.
func devicesOf[P any](o *seen, field func(*cluster.Devices) *[]P) list[P] {
	if o.Devices == nil {
		return &plain[P]{}
	}
	return (*plain[P])(field(o.Devices))
}

// poolList are the NodePools.
type poolList struct{ *cluster.Objects }

func (l poolList) all() []*karpv1.NodePool {
	out := make([]*karpv1.NodePool, len(l.Pools))
	for i := range l.Pools {
		out[i] = l.Pools[i].NodePool
	}
	return out
}

func (l poolList) add(p *karpv1.NodePool) { l.Pools = append(l.Pools, cluster.Pool{NodePool: p}) }

func newKind[T any, P interface {
	*T
	client.Object
}](name string, in func(*seen) list[P],
) kind {
	return kind{
		name: name,
		each: func(o *seen, f func(client.Object)) {
			for _, object := range in(o).all() {
				f(object)
			}
		},
		decode: func(data []byte) (client.Object, error) {
			object := P(new(T))
			if err := json.Unmarshal(data, object); err != nil {
				return nil, fmt.Errorf("parse a recorded %s: %w", name, err)
			}
			return object, nil
		},
		add: func(o *seen, object client.Object) { in(o).add(object.(P)) },
		reduced: func(object client.Object) client.Object {
			c := *object.(P)
			reduced := client.Object(P(&c))
			switch name {
			case "Pod", "Node", "NodeClaim", "NodePool", "DaemonSet", "PersistentVolume", "StorageClass", "PersistentVolumeClaim":
				// Scrub changes nothing that these point to.
			default:
				reduced = object.DeepCopyObject().(client.Object)
			}
			manifest.Scrub(reduced)
			return reduced
		},
	}
}
