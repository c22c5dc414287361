package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kube-scheduler counts a volume that is attached to a node until it is detached, whether a pod there uses it or not.
func TestVolumesThatNoPodUsesAreLeftOver(t *testing.T) {
	var objects []client.Object
	attach := func(name, node, claim string, source corev1.PersistentVolumeSource) {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
		if claim != "" {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: claim}
		}
		objects = append(objects, pv, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-on-" + node},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "ebs.csi.aws.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
			},
		})
	}
	csi := func(handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: handle}}
	}
	attach("used", "a", "data", csi("vol-1"))
	attach("left", "a", "old", csi("vol-2"))
	attach("left-too", "a", "", csi("vol-3"))
	attach("other-node", "b", "data-b", csi("vol-4"))
	attach("no-driver", "a", "", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}})
	mounts := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	}
	objects = append(objects, nodeOf("a", ""), nodeOf("b", ""), nodeOf("c", ""), boundPod("p", "a", mounts))
	got := map[string]map[string]int32{}
	for _, n := range newTestCluster(t, objects...).snapshot(t).Nodes {
		got[n.Name] = n.LeftoverVolumes
	}
	want := map[string]map[string]int32{"a": {"ebs.csi.aws.com": 2}, "b": {"ebs.csi.aws.com": 1}, "c": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("left over (-want +got):\n%s", diff)
	}
}
