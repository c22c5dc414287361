package validate

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// zonal are the drivers with volumes that can only be used in one zone.
var zonal = []string{ebs, "ebs.csi.eks.amazonaws.com"}

// sharedClaims: pods that share a claim without a volume run in one zone, or on one host. The volume comes up in the
// zone of the first of them (binding mode WaitForFirstConsumer), and can be used nowhere else.
func (c *check) sharedClaims() {
	users := map[types.NamespacedName][]*scheduledPod{}
	for _, m := range c.pods.all {
		for _, claim := range c.zonalClaims(m.pod) {
			users[claim] = append(users[claim], m)
		}
	}
	byName := func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	for _, claim := range slices.SortedFunc(maps.Keys(users), byName) {
		c.claimInOneZone(claim, users[claim])
	}
}

// zonalClaims are the claims of the pod for which a volume is made once a pod with it has a node.
func (c *check) zonalClaims(pod *corev1.Pod) []types.NamespacedName {
	var out []types.NamespacedName
	for _, m := range c.mounts(pod) {
		pvc := c.s.Volumes.Claims[m.claim]
		if m.missing != "" || pvc == nil || pvc.Spec.VolumeName != "" || !slices.Contains(zonal, m.driver) || slices.Contains(out, m.claim) {
			continue
		}
		if mode := c.classOf(pvc).VolumeBindingMode; mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer {
			out = append(out, m.claim)
		}
	}
	return out
}

// claimInOneZone: each pod that the plan places follows users that were there before, or else all of them are together.
func (c *check) claimInOneZone(claim types.NamespacedName, users []*scheduledPod) {
	var before, planned []*scheduledPod
	for _, m := range users {
		switch {
		case m.placedByPlan:
			planned = append(planned, m)
		case m.active && len(m.at.label(corev1.LabelTopologyZone).values) > 0:
			before = append(before, m)
		}
	}
	if len(planned) == 0 {
		return
	}
	if len(before) == 0 {
		before = planned[:1]
	}
	for _, m := range planned {
		if !follows(m.at, before) {
			c.failAt([]*host{m.at, before[0].at}, "pods %s and %s share volume claim %s, which has no volume yet, but may be in two zones",
				name(m.pod), name(before[0].pod), claim.Name)
		}
	}
}

// follows reports whether the host is that of a leader, or comes up in a zone that a leader is surely in.
func follows(at *host, leaders []*scheduledPod) bool {
	if slices.ContainsFunc(leaders, func(o *scheduledPod) bool { return o.at == at }) {
		return true
	}
	mine := at.label(corev1.LabelTopologyZone)
	return !mine.absent && len(mine.values) > 0 && !slices.ContainsFunc(mine.values, func(zone string) bool {
		return !slices.ContainsFunc(leaders, func(o *scheduledPod) bool {
			z, known := o.at.label(corev1.LabelTopologyZone).single()
			return known && z == zone
		})
	})
}
