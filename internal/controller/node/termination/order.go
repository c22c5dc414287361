package termination

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
)

// order reads what the order of the node's pods depends on. It reads nothing if no pod takes part.
func (r *NodeReconciler) order(ctx context.Context, t *termination) (out drain.Order, err error) {
	owners := map[types.UID]*corev1.Pod{}
	for _, p := range t.pods {
		r.checkAnnotations(p)
		if drain.Ordered(p) {
			owners[metav1.GetControllerOfNoCopy(p).UID] = p
		}
	}
	if len(owners) == 0 {
		return out, nil
	}
	if out.Leaving, err = r.leavingNodes(ctx); err != nil {
		return out, err
	}
	out.Owners = map[types.UID]drain.Owner{}
	for uid, pod := range owners {
		if out.Owners[uid], err = r.owner(ctx, pod); err != nil {
			return out, err
		}
	}
	return out, nil
}

// checkAnnotations reports annotations of a pod that have no effect.
func (r *NodeReconciler) checkAnnotations(pod *corev1.Pod) {
	_, err := karpv1.WorkloadDrain(pod.Annotations)
	if err == nil {
		_, err = karpv1.ExpectedDuration(pod.Annotations)
	}
	if err != nil {
		r.Events.Warn(pod, "InvalidAnnotation", "The pod is drained as without it: %v", err)
	}
}

// leavingNodes are the names of the nodes that are being drained.
func (r *NodeReconciler) leavingNodes(ctx context.Context) (map[string]bool, error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for i := range nodes.Items {
		if nodes.Items[i].DeletionTimestamp != nil {
			out[nodes.Items[i].Name] = true
		}
	}
	return out, nil
}

// owner reads the owner of a pod.
func (r *NodeReconciler) owner(ctx context.Context, pod *corev1.Pod) (drain.Owner, error) {
	of := metav1.GetControllerOfNoCopy(pod)
	out := drain.Owner{Stateful: of.Kind == "StatefulSet"}
	var err error
	if out.Pods, err = cluster.SharedSiblings(ctx, r.Client, of.UID); err != nil || !out.Stateful {
		return out, err
	}
	set := &appsv1.StatefulSet{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: of.Name}, set)
	if client.IgnoreNotFound(err) != nil {
		return out, fmt.Errorf("read the StatefulSet of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if err == nil && set.UID == of.UID && set.Spec.Replicas != nil {
		out.Replicas = int(*set.Spec.Replicas)
	}
	out.Attached, err = r.attachedElsewhere(ctx, out.Pods)
	return out, err
}

// attachedElsewhere reports whether a volume of the pods is attached to a node that no pod with it is bound to: it has to be detached there
// before the pod can start.
func (r *NodeReconciler) attachedElsewhere(ctx context.Context, pods []*corev1.Pod) (bool, error) {
	volumes := map[string]map[string]bool{} // the nodes of the pods with each volume
	for _, pod := range pods {
		own, err := r.volumesOf(ctx, []*corev1.Pod{pod}, func(*corev1.Pod) bool { return true })
		if err != nil {
			return false, err
		}
		for name := range own {
			if volumes[name] == nil {
				volumes[name] = map[string]bool{}
			}
			volumes[name][pod.Spec.NodeName] = true
		}
	}
	var list storagev1.VolumeAttachmentList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range list.Items {
		a := &list.Items[i].Spec
		if a.Source.PersistentVolumeName == nil {
			continue
		}
		if nodes := volumes[*a.Source.PersistentVolumeName]; nodes != nil && !nodes[a.NodeName] {
			return true, nil
		}
	}
	return false, nil
}
