package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// Exclusive are the claims of the pod that only one pod can use at a time (ReadWriteOncePod).
func Exclusive(volumes []Volume) []types.NamespacedName {
	var out []types.NamespacedName
	for _, v := range volumes {
		if v.claim != nil && slices.Contains(v.claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			out = append(out, v.key)
		}
	}
	return out
}

// Users is the one pod that may use each claim with access mode ReadWriteOncePod.
type Users map[types.NamespacedName]*corev1.Pod

// Take makes the pod the user of the claims, no matter who uses them now.
func (u Users) Take(pod *corev1.Pod, claims []types.NamespacedName) {
	for _, key := range claims {
		u[key] = pod
	}
}

// Blocked is the reason why the pod waits for another user of one of the claims; the zero Reason if it does not.
func (u Users) Blocked(pod *corev1.Pod, claims []types.NamespacedName) rejection.Reason {
	for _, key := range claims {
		if user := u[key]; user != nil && user != pod {
			return rejection.Reason{Code: rejection.VolumeInUse, Rule: &rejection.Rule{
				VolumeClaim: &rejection.VolumeClaim{Name: key.Name, Cause: rejection.ClaimInUse, Pod: user.Name},
			}}
		}
	}
	return rejection.Reason{}
}

// zonalDrivers are CSI drivers with volumes that can only be used in the zone of the first pod that uses them.
var zonalDrivers = []string{ebsDriver, "ebs.csi.eks.amazonaws.com"}

// UnboundZonal are the claims of a pod that get their zone with the first pod that uses them, and that other pods may use
// then: with ReadWriteOncePod, no other pod of the plan follows.
func UnboundZonal(volumes []Volume) []types.NamespacedName {
	var out []types.NamespacedName
	for _, v := range volumes {
		if v.claim == nil || v.claim.Spec.VolumeName != "" || v.class == nil || !slices.Contains(zonalDrivers, v.driver()) ||
			slices.Contains(v.claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			continue
		}
		if mode := v.class.VolumeBindingMode; mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer {
			out = append(out, v.key)
		}
	}
	return out
}
