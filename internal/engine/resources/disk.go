package resources

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// disks are the disks that the pod names itself, without a claim, of the kinds that kube-scheduler does not let two pods of a node use,
// unless both only read: see isVolumeConflict of VolumeRestrictions. An EBS volume has one pod on a node in any case.
func disks(pod *corev1.Pod) (out []HostPort) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.AWSElasticBlockStore != nil:
			out = append(out, HostPort{Disk: "EBS volume " + v.AWSElasticBlockStore.VolumeID})
		case v.GCEPersistentDisk != nil:
			out = append(out, HostPort{Disk: "persistent disk " + v.GCEPersistentDisk.PDName, ReadOnly: v.GCEPersistentDisk.ReadOnly})
		case v.ISCSI != nil:
			out = append(out, HostPort{Disk: "iSCSI target " + v.ISCSI.IQN, ReadOnly: v.ISCSI.ReadOnly})
		case v.RBD != nil:
			for _, monitor := range v.RBD.CephMonitors { // one monitor in common makes it the same image
				pool := v.RBD.RBDPool
				if pool == "" {
					pool = "rbd"
				}
				out = append(out, HostPort{
					Disk: fmt.Sprintf("RBD image %s", strings.Join([]string{monitor, pool, v.RBD.RBDImage}, "/")), ReadOnly: v.RBD.ReadOnly,
				})
			}
		}
	}
	return out
}
