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
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// attachments returns the node's VolumeAttachments of PersistentVolumes, by name.
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

// blockingAttachments returns the node's attachments that must go before the instance may: not those of pods that stay
// to the end and of daemons that leave after the other volumes.
func (r *NodeReconciler) blockingAttachments(ctx context.Context, t *termination) ([]*storagev1.VolumeAttachment, error) {
	all, err := r.attachments(ctx, t.node.Name)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	staying, err := r.volumesOf(ctx, t.pods, func(p *corev1.Pod) bool { return !drain.HoldsInstance(p, r.Now()) })
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(a *storagev1.VolumeAttachment) bool {
		_, stays := staying[*a.Spec.Source.PersistentVolumeName]
		return stays
	}), nil
}

// volumesOf returns the PersistentVolumes of the pods that match, each with one of its pods.
func (r *NodeReconciler) volumesOf(
	ctx context.Context,
	pods []*corev1.Pod,
	match func(*corev1.Pod) bool,
) (map[string]*corev1.Pod, error) {
	out := map[string]*corev1.Pod{}
	for _, pod := range pods {
		if !match(pod) {
			continue
		}
		for i := range pod.Spec.Volumes {
			name, _ := snapshot.ClaimName(pod, &pod.Spec.Volumes[i])
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

// holders describes for each attachment who has to act before it goes.
func (r *NodeReconciler) holders(ctx context.Context, t *termination, attachments []*storagev1.VolumeAttachment) ([]string, error) {
	using, err := r.volumesOf(ctx, t.pods, func(p *corev1.Pod) bool { return !snapshot.Terminal(p) })
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
		out[i] = "volume " + name + ": " + holder(t, a, pv, using[name])
	}
	return out, nil
}

// holder describes who has to act before an attachment goes. In the order of the steps: a pod, the driver's daemon on
// the node, the attach-detach controller, the driver's controller.
func holder(t *termination, a *storagev1.VolumeAttachment, pv *corev1.PersistentVolume, user *corev1.Pod) string {
	switch csi := pv.Spec.CSI; {
	case user != nil:
		return fmt.Sprintf("pod %s/%s still runs with it", user.Namespace, user.Name)
	case csi != nil && slices.Contains(t.node.Status.VolumesInUse,
		corev1.UniqueVolumeName("kubernetes.io/csi/"+csi.Driver+"^"+csi.VolumeHandle)):
		if !slices.ContainsFunc(t.pods, func(p *corev1.Pod) bool { return drain.CSIDriver(p) == csi.Driver && snapshot.Active(p) }) {
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

// forceDetachTimeout bounds the wait for attachments of an instance that is gone. Without the taint Kubernetes detaches
// by force after six minutes.
const forceDetachTimeout = 6 * time.Minute

// forceDetach detaches the volumes that are still attached to an instance that has certainly stopped: the
// out-of-service taint declares that nothing there can write to them, so that Kubernetes does not wait for an unmount.
func (r *NodeReconciler) forceDetach(ctx context.Context, t *termination) (time.Duration, error) {
	left, err := r.attachments(ctx, t.node.Name)
	if err != nil || len(left) == 0 {
		return 0, err
	}
	now := metav1.NewTime(r.Now())
	if cluster.NodeReady(t.node) {
		return r.awaitSilence(t, now.Time), nil
	}
	i := slices.IndexFunc(t.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	if i < 0 || t.node.Spec.Taints[i].TimeAdded == nil { // a taint that a person added has no time
		before := t.node.DeepCopy()
		t.node.Spec.Taints = slices.DeleteFunc(t.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		t.node.Spec.Taints = append(t.node.Spec.Taints, corev1.Taint{
			Key: corev1.TaintNodeOutOfService, Value: "terminated", Effect: corev1.TaintEffectNoExecute, TimeAdded: &now,
		})
		if _, err := patch.ObjectFrom(ctx, r.Client, before, t.node); err != nil {
			return 0, err
		}
		r.Events.Warn(
			t.node,
			"VolumesLeftAttached",
			"The instance is gone and %d volumes are still attached to it; taint %s makes Kubernetes detach them by force",
			len(left),
			corev1.TaintNodeOutOfService,
		)
		return poll, nil
	}
	if now.Sub(t.node.Spec.Taints[i].TimeAdded.Time) < forceDetachTimeout {
		return poll, nil
	}
	r.Log.Warn(
		"volumes of a terminated instance are still attached; removing its node anyway",
		"Node",
		t.node.Name,
		"volumeattachments",
		len(left),
	)
	return 0, nil
}

// awaitSilence returns how long to wait for the kubelet of an instance that EC2 reports as gone to stop reporting. An
// instance that EC2 does not know may run all the same, and a volume that is detached from it loses unwritten data. The
// same timeout bounds this wait.
func (r *NodeReconciler) awaitSilence(t *termination, now time.Time) time.Duration {
	since := t.node.DeletionTimestamp.Time
	if t.claim != nil {
		if c, _ := condition.Get(t.claim, karpv1.ConditionInstanceTerminating); c.Status == metav1.ConditionTrue {
			since = c.LastTransitionTime.Time
		}
	}
	if now.Sub(since) < forceDetachTimeout {
		return poll
	}
	r.Log.Warn(
		"the kubelet of an instance that EC2 reports as gone still reports, with volumes attached; removing its node anyway",
		"Node",
		t.node.Name,
	)
	return 0
}
