package schedule

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// exclusive are the claims of the pod that only one pod can use at a time (ReadWriteOncePod).
func (sv *solver) exclusive(volumes []volume) []types.NamespacedName {
	var out []types.NamespacedName
	for _, v := range volumes {
		if v.claim != nil && slices.Contains(v.claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			out = append(out, v.key)
		}
	}
	return out
}

// claimUsers is the one pod that may use each claim with access mode ReadWriteOncePod.
type claimUsers map[types.NamespacedName]*corev1.Pod

// claimUsers finds the users of claims that only one pod can use: a running pod, else the pod that a node was launched
// for and that can still use it, else the first in the queue.
func (sv *solver) claimUsers(queue []*queuedPod) claimUsers {
	if !slices.ContainsFunc(queue, func(q *queuedPod) bool { return len(q.class.exclusive) > 0 }) {
		return nil
	}
	out, placed := claimUsers{}, make(map[types.UID]bool, len(queue))
	for _, q := range queue {
		placed[q.pod.UID] = true
	}
	promised := map[types.UID]*node{}
	for _, n := range sv.nodes {
		if n.removed {
			continue
		}
		for _, uid := range n.src.Nominated {
			promised[uid] = n
		}
		for _, pod := range n.src.Pods {
			if placed[pod.UID] || snapshot.Terminal(pod) || !hasClaims(pod) {
				continue
			}
			for _, key := range sv.exclusive(podVolumes(sv.s, pod)) {
				out[key] = pod
			}
		}
	}
	for _, which := range []func(*queuedPod) bool{
		func(q *queuedPod) bool { return q.pod.Spec.NodeName != "" },
		func(q *queuedPod) bool {
			return promised[q.pod.UID] != nil && sv.keepsPromise(promised[q.pod.UID], q.class)
		},
		func(*queuedPod) bool { return true },
	} {
		for _, q := range queue {
			taken := slices.ContainsFunc(q.class.exclusive, func(key types.NamespacedName) bool { return out[key] != nil && out[key] != q.pod })
			if taken || !which(q) {
				continue
			}
			for _, key := range q.class.exclusive {
				out[key] = q.pod
			}
		}
	}
	return out
}

// keepsPromise reports whether the node takes a pod that was nominated to it: see applyNominations. Devices do not count,
// since it is asked before they are.
func (sv *solver) keepsPromise(n *node, c *class) bool {
	return !n.src.Deleting && (!n.src.Initialized || len(c.devices) > 0 || sv.stillFits(n, c))
}

// blocked is the reason why the pod waits for another user of its claim; the zero Reason if it does not.
func (u claimUsers) blocked(q *queuedPod) Reason {
	for _, key := range q.class.exclusive {
		if user := u[key]; user != nil && user != q.pod {
			return Reason{Code: VolumeInUse, Message: fmt.Sprintf(
				"volume claim %q has access mode ReadWriteOncePod, and pod %q uses it or is planned to; the pod waits until that one is gone",
				key.Name,
				user.Name,
			)}
		}
	}
	return Reason{}
}

// zonalDrivers are CSI drivers with volumes that can only be used in the zone of the first pod that uses them.
var zonalDrivers = []string{ebsDriver, "ebs.csi.eks.amazonaws.com"}

// unboundZonal are the claims of a pod that get their zone with the first pod that uses them, and that other pods may use
// then: with ReadWriteOncePod, no other pod of the plan follows.
func unboundZonal(volumes []volume) []types.NamespacedName {
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

// sharedGroups are affinity groups that keep the pod in one zone with other users of a claim that has no volume yet.
func (sv *solver) sharedGroups(pod *corev1.Pod) []*group {
	if !hasClaims(pod) {
		return nil
	}
	var out []*group
	for _, key := range unboundZonal(podVolumes(sv.s, pod)) {
		if sv.uses[key] < 2 {
			continue
		}
		out = append(out, sv.internGroup(&group{
			typ: affinity, key: corev1.LabelTopologyZone, selector: labels.Nothing(), namespaces: map[string]bool{key.Namespace: true},
			claim: key.Name,
		}, "claim "+key.Name))
	}
	return out
}

// usedBy reports whether the pod has a volume of the group's claim.
func (g *group) usedBy(pod *corev1.Pod) bool {
	return g.namespaces[pod.Namespace] && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		name, ok := claimName(pod, &v)
		return ok && name == g.claim
	})
}
