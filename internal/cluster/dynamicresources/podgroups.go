package dynamicresources

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// addGroups indexes the PodGroups by the names that pods use, and their pods with a node by the UID that claims are reserved for.
func (d *Devices) addGroups(groups []snapshot.PodGroup) {
	for i := range groups {
		g := groups[i].Object
		if g == nil {
			continue
		}
		d.groups[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = g
		for _, pod := range groups[i].Members {
			if pod.Spec.NodeName != "" && !snapshot.Terminal(pod) {
				d.members[g.UID] = append(d.members[g.UID], pod.UID)
			}
		}
	}
}

// madeForGroup reports whether the claim was made for the pod's PodGroup: the group owns it, and has a claim of the same name and template
// as the pod. All pods of the group share it.
func (d *Devices) madeForGroup(claim *resourcev1.ResourceClaim, pod *corev1.Pod, ref *corev1.PodResourceClaim) bool {
	name, in := snapshot.PodGroupOf(pod)
	g := d.groups[name]
	if !in || g == nil || ref.ResourceClaimTemplateName == nil {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.UID != g.UID {
		return false
	}
	return slices.ContainsFunc(g.Spec.ResourceClaims, func(c schedulingv1beta1.PodGroupResourceClaim) bool {
		return c.Name == ref.Name && c.ResourceClaimTemplateName != nil && *c.ResourceClaimTemplateName == *ref.ResourceClaimTemplateName
	})
}

// inUse reports whether pods other than the leaving ones use the claim. A claim that is reserved for a PodGroup is in use while any of its
// pods has a node, and while it is not known which pods these are.
func (d *Devices) inUse(c *resourcev1.ResourceClaim, leaving map[types.UID]bool) bool {
	return slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
		if r.APIGroup != schedulingv1beta1.GroupName {
			return !leaving[r.UID]
		}
		members := d.members[r.UID]
		return len(members) == 0 || slices.ContainsFunc(members, func(uid types.UID) bool { return !leaving[uid] })
	})
}
