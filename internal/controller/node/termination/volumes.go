package termination

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// attachments are the VolumeAttachments of a node that are of a PersistentVolume, by name.
func (r *NodeReconciler) attachments(ctx context.Context, node string) ([]*storagev1.VolumeAttachment, error) {
	var list storagev1.VolumeAttachmentList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	var out []*storagev1.VolumeAttachment
	for i := range list.Items {
		if a := &list.Items[i]; a.Spec.NodeName == node && a.Spec.Source.PersistentVolumeName != nil {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *storagev1.VolumeAttachment) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// blockingAttachments are those that must go before the instance may: those of the node, less those of pods that stay to
// the end, or until the other volumes have gone.
func (r *NodeReconciler) blockingAttachments(ctx context.Context, e *ending) ([]*storagev1.VolumeAttachment, error) {
	all, err := r.attachments(ctx, e.node.Name)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	staying, err := r.volumesOf(ctx, e.pods, func(p *corev1.Pod) bool { return serves(p) || !drainable(p, r.Now()) })
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(a *storagev1.VolumeAttachment) bool {
		_, stays := staying[*a.Spec.Source.PersistentVolumeName]
		return stays
	}), nil
}

// volumesOf are the PersistentVolumes of those pods that match, each with one of its pods.
func (r *NodeReconciler) volumesOf(ctx context.Context, pods []*corev1.Pod, match func(*corev1.Pod) bool) (map[string]*corev1.Pod, error) {
	out := map[string]*corev1.Pod{}
	for _, pod := range pods {
		if !match(pod) {
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
			out[pvc.Spec.VolumeName] = pod
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

// holders says of each attachment who has to act before it goes.
func (r *NodeReconciler) holders(ctx context.Context, e *ending, attachments []*storagev1.VolumeAttachment) ([]string, error) {
	using, err := r.volumesOf(ctx, e.pods, func(p *corev1.Pod) bool { return !snapshot.Terminal(p) })
	if err != nil {
		return nil, err
	}
	out := make([]string, len(attachments))
	for i, a := range attachments {
		name := *a.Spec.Source.PersistentVolumeName
		pv := &corev1.PersistentVolume{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, pv); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		out[i] = "volume " + name + ": " + holder(e, a, pv, using[name])
	}
	return out, nil
}

// holder is who has to act before an attachment goes: a pod, the driver's daemon on the node, the attach-detach controller,
// or the driver's controller, in the order in which they have to.
func holder(e *ending, a *storagev1.VolumeAttachment, pv *corev1.PersistentVolume, user *corev1.Pod) string {
	switch csi := pv.Spec.CSI; {
	case user != nil:
		return fmt.Sprintf("pod %s/%s still runs with it", user.Namespace, user.Name)
	case csi != nil && slices.Contains(e.node.Status.VolumesInUse, corev1.UniqueVolumeName("kubernetes.io/csi/"+csi.Driver+"^"+csi.VolumeHandle)):
		if !slices.ContainsFunc(e.pods, func(p *corev1.Pod) bool { return csiDriver(p) == csi.Driver && snapshot.Active(p) }) {
			return fmt.Sprintf("it is mounted, and the daemon of %s that has to unmount it does not run on the node", csi.Driver)
		}
		return "kubelet is unmounting it"
	case a.DeletionTimestamp == nil:
		return "waiting for kube-controller-manager to detach it"
	case a.Status.DetachError != nil:
		return fmt.Sprintf("%s cannot detach it: %s", a.Spec.Attacher, a.Status.DetachError.Message)
	default:
		return "waiting for " + a.Spec.Attacher + " to detach it"
	}
}

// abandonTime bounds the wait for attachments of a machine that is gone. Without the taint Kubernetes detaches by force
// after six minutes.
const abandonTime = 6 * time.Minute

// abandon frees what is still attached to a machine that certainly does not run any more: the taint out-of-service tells
// Kubernetes that nothing there can write to the volumes, so that they need not wait for anybody to unmount them.
func (r *NodeReconciler) abandon(ctx context.Context, e *ending) (time.Duration, error) {
	left, err := r.attachments(ctx, e.node.Name)
	if err != nil || len(left) == 0 {
		return 0, err
	}
	now := metav1.NewTime(r.Now())
	if cluster.NodeReady(e.node) {
		return r.untilSilent(e, now.Time), nil
	}
	i := slices.IndexFunc(e.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	if i < 0 || e.node.Spec.Taints[i].TimeAdded == nil { // a taint that people put on does not say since when it is there
		before := e.node.DeepCopy()
		e.node.Spec.Taints = slices.DeleteFunc(e.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		e.node.Spec.Taints = append(e.node.Spec.Taints, corev1.Taint{
			Key: corev1.TaintNodeOutOfService, Value: "terminated", Effect: corev1.TaintEffectNoExecute, TimeAdded: &now,
		})
		if err := r.Client.Patch(ctx, e.node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return 0, err
		}
		r.Events.Warn(e.node, "VolumesLeftAttached", "The instance is gone and %d volumes are still attached to it; taint %s has them detached by force", len(left), corev1.TaintNodeOutOfService)
		return poll, nil
	}
	if now.Sub(e.node.Spec.Taints[i].TimeAdded.Time) < abandonTime {
		return poll, nil
	}
	r.Log.Warn("volumes of a terminated instance are still attached; its node is let go", "Node", e.node.Name, "volumeattachments", len(left))
	return 0, nil
}

// untilSilent is how long to wait for the kubelet of a machine that is said to be gone to fall silent. What EC2 does not know may
// run all the same, and volumes that are detached from under it lose what was not written yet. The wait is bounded, too.
func (r *NodeReconciler) untilSilent(e *ending, now time.Time) time.Duration {
	since := e.node.DeletionTimestamp.Time
	if e.claim != nil {
		if c, _ := condition.Get(e.claim, karpv1.ConditionInstanceTerminating); c.Status == metav1.ConditionTrue {
			since = c.LastTransitionTime.Time
		}
	}
	if now.Sub(since) < abandonTime {
		return poll
	}
	r.Log.Warn("a machine that is said to be gone still reports, with volumes attached; its node is let go", "Node", e.node.Name)
	return 0
}
