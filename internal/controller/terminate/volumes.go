package terminate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// blockingAttachments names the VolumeAttachments that must go before the instance may: those of the node,
// less those of pods that stay to the end.
func (r *NodeReconciler) blockingAttachments(ctx context.Context, e *ending) ([]string, error) {
	var list storagev1.VolumeAttachmentList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	staying, err := r.stayingVolumes(ctx, e)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.NodeName != e.node.Name || a.Spec.Source.PersistentVolumeName == nil || staying[*a.Spec.Source.PersistentVolumeName] {
			continue
		}
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names, nil
}

// stayingVolumes are the volumes of pods that the drain leaves alone.
func (r *NodeReconciler) stayingVolumes(ctx context.Context, e *ending) (map[string]bool, error) {
	out := map[string]bool{}
	for _, pod := range e.pods {
		if drainable(pod, r.Now()) {
			continue
		}
		for i := range pod.Spec.Volumes {
			name := claimName(pod, &pod.Spec.Volumes[i])
			if name == "" {
				continue
			}
			pvc := &corev1.PersistentVolumeClaim{}
			if err := r.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, pvc); err != nil {
				if client.IgnoreNotFound(err) == nil {
					continue
				}
				return nil, err
			}
			out[pvc.Spec.VolumeName] = true
		}
	}
	return out, nil
}

// claimName is the PersistentVolumeClaim behind a volume; empty if there is none.
func claimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}
