package propertytest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// allocate gives the claims of a pod that runs on the node devices there, and its requests of extended resources. A pod for which too few
// are left has neither.
func (w *deviceWorld) allocate(p *corev1.Pod, n *snapshot.Node) {
	mine := w.claimsOf(p)
	if extended := w.extendedClaim(p, n); extended != nil {
		mine = append(mine, extended)
		w.o.Claims = append(w.o.Claims, extended)
	}
	var done []*resourcev1.ResourceClaim
	for _, c := range mine {
		had := c.Status.Allocation != nil
		if had && !onNode(c, n) || !had && !w.allocateOn(c, n) {
			w.withdraw(p, mine, done)
			return
		}
		if !had {
			done = append(done, c)
		}
	}
	for _, c := range mine {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: p.Name, UID: p.UID,
		})
	}
	w.withoutMissing(p)
}

// withoutMissing removes claims of the pod that do not exist: no pod runs with such.
func (w *deviceWorld) withoutMissing(p *corev1.Pod) {
	if len(w.claimsOf(p)) < len(p.Spec.ResourceClaims) {
		p.Spec.ResourceClaims, p.Status.ResourceClaimStatuses, p.Spec.Containers[0].Resources.Claims = nil, nil, nil
	}
}

// withdraw takes the claims from the pod, and the devices that it just got.
func (w *deviceWorld) withdraw(p *corev1.Pod, mine, done []*resourcev1.ResourceClaim) {
	for _, c := range done {
		c.Status.Allocation = nil
	}
	w.o.Claims = slices.DeleteFunc(w.o.Claims, func(c *resourcev1.ResourceClaim) bool {
		return slices.Contains(mine, c) && len(c.OwnerReferences) > 0
	})
	p.Spec.ResourceClaims, p.Status.ResourceClaimStatuses, p.Spec.Containers[0].Resources.Claims = nil, nil, nil
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			r := &list[i].Resources
			r.Requests = r.Requests.DeepCopy()
			for _, name := range []corev1.ResourceName{gpuResource, corev1.ResourceName(implicitResource)} {
				delete(r.Requests, name)
			}
		}
	}
}

// claimsOf are the claims of the pod that exist.
func (w *deviceWorld) claimsOf(p *corev1.Pod) (out []*resourcev1.ResourceClaim) {
	for _, c := range w.o.Claims {
		named := func(name *string) bool { return c.Namespace == p.Namespace && name != nil && *name == c.Name }
		if slices.ContainsFunc(p.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool { return named(r.ResourceClaimName) }) ||
			slices.ContainsFunc(p.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return named(s.ResourceClaimName) }) {
			out = append(out, c)
		}
	}
	return out
}

// extendedClaim is the claim that kube-scheduler has made for the pod's request of an extended resource; nil if a device plugin serves it,
// or there is none.
func (w *deviceWorld) extendedClaim(p *corev1.Pod, n *snapshot.Node) *resourcev1.ResourceClaim {
	requests := snapshot.Requests(p)
	for _, r := range []struct {
		name  corev1.ResourceName
		class string
	}{{gpuResource, "gpu"}, {corev1.ResourceName(implicitResource), "gpu-a"}} {
		name, class := r.name, r.class
		q := requests[name]
		if name == gpuResource && w.o.Classes[0].Spec.ExtendedResourceName == nil {
			class = "none"
		}
		if q.IsZero() {
			continue
		}
		if amount := n.Allocatable[name]; !amount.IsZero() {
			used := amount.DeepCopy()
			for _, o := range n.Pods {
				if o.UID != p.UID {
					used.Sub(snapshot.Requests(o)[name])
				}
			}
			if used.Cmp(q) < 0 {
				class = "none"
			} else {
				return nil
			}
		}
		yes := "true"
		return &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace, Name: p.Name + "-extended-resources", UID: types.UID("extended-" + p.Name),
				Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: yes},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
			},
			Spec: spec(exactly(class, int(q.Value()))),
		}
	}
	return nil
}

// onNode reports whether the devices of the claim can be used on the node.
func onNode(c *resourcev1.ResourceClaim, n *snapshot.Node) bool {
	s := c.Status.Allocation.NodeSelector
	at := &ClusterNode{Name: n.Name, Labels: n.Labels}
	return s == nil || slices.ContainsFunc(s.NodeSelectorTerms, at.matches)
}

// allocateOn gives the claim the first free devices that can be used on the node; false if there are too few, or the claim has other
// requests than for a number of devices.
func (w *deviceWorld) allocateOn(c *resourcev1.ResourceClaim, n *snapshot.Node) bool {
	if len(c.Spec.Devices.Requests) != 1 || c.DeletionTimestamp != nil {
		return false
	}
	r := c.Spec.Devices.Requests[0]
	if r.Exactly == nil || r.Exactly.AdminAccess != nil || r.Exactly.Capacity != nil || len(r.Exactly.Selectors) > 0 ||
		r.Exactly.AllocationMode != resourcev1.DeviceAllocationModeExactCount {
		return false
	}
	left := r.Exactly.Count
	for _, s := range w.o.Slices {
		reach := s.Spec.NodeSelector
		if s.Spec.NodeName != nil {
			reach = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: in, Values: []string{*s.Spec.NodeName}},
			}}}}
		}
		out := &resourcev1.AllocationResult{NodeSelector: reach}
		c.Status.Allocation = out
		if onNode(c, n) {
			left = r.Exactly.Count
			for _, d := range s.Spec.Devices {
				got := resourcev1.DeviceRequestAllocationResult{Request: r.Name, Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: d.Name}
				if left > 0 && d.AllowMultipleAllocations == nil && len(d.ConsumesCounters) == 0 &&
					hasDevice(r.Exactly.DeviceClassName, &s.Spec, &d) && !w.allocated(got) {
					out.Devices.Results, left = append(out.Devices.Results, got), left-1
				}
			}
		}
		if left == 0 {
			return true
		}
		c.Status.Allocation = nil
	}
	return false
}

// allocated reports whether a claim has the device.
func (w *deviceWorld) allocated(d resourcev1.DeviceRequestAllocationResult) bool {
	return slices.ContainsFunc(w.o.Claims, func(c *resourcev1.ResourceClaim) bool {
		return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results,
			func(o resourcev1.DeviceRequestAllocationResult) bool {
				return o.Driver == d.Driver && o.Pool == d.Pool && o.Device == d.Device
			})
	})
}
