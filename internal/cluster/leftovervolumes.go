package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// addLeftoverVolumes counts the volumes that are attached to nodes and that no pod there uses: kube-scheduler counts a VolumeAttachment of
// a CSI volume until it is gone.
func (w *snapshotBuilder) addLeftoverVolumes() {
	type attached struct {
		node   int
		driver string
		handle string
	}
	seen, used := map[attached]bool{}, map[int]map[types.NamespacedName]bool{}
	for _, a := range w.VolumeAttachments {
		at, known := w.byNode[a.Spec.NodeName]
		if !known || a.Spec.Attacher == "" || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		pv := w.snap.Volumes.Volumes[*a.Spec.Source.PersistentVolumeName]
		if pv == nil || pv.Spec.CSI == nil {
			continue
		}
		n := &w.snap.Nodes[at]
		if used[at] == nil {
			used[at] = claimsOf(n.Pods)
		}
		one := attached{at, a.Spec.Attacher, pv.Spec.CSI.VolumeHandle}
		ref := pv.Spec.ClaimRef
		if seen[one] || ref != nil && used[at][types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] {
			continue
		}
		seen[one] = true
		if n.LeftoverVolumes == nil {
			n.LeftoverVolumes = map[string]int32{}
		}
		n.LeftoverVolumes[a.Spec.Attacher]++
	}
}

// claimsOf are the volume claims that the pods use.
func claimsOf(pods []*corev1.Pod) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			if name, ok := snapshot.ClaimName(pod, &pod.Spec.Volumes[i]); ok {
				out[types.NamespacedName{Namespace: pod.Namespace, Name: name}] = true
			}
		}
	}
	return out
}
