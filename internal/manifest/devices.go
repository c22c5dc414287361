package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// RequestDevices reports whether a pod requests devices by a resource claim.
func (w *ClusterState) RequestDevices() bool {
	return slices.ContainsFunc(w.Pods, func(p *corev1.Pod) bool { return snapshot.WantsDevices(&p.Spec) })
}

// deviceClaims makes the resource claims of pods from their templates, as Kubernetes does.
type deviceClaims struct {
	*reader
	templates map[types.NamespacedName]*resourcev1.ResourceClaimTemplate
	byName    map[types.NamespacedName]*resourcev1.ResourceClaim
	// unknown are pods on nodes with claims that are not among the inputs; unmade names the templates that are not.
	unknown int
	unmade  []types.NamespacedName
}

// completeDevices adds the objects of dynamic resource allocation, with the claims that pods get from templates. Pods in
// gone have left the cluster: workloads beside a snapshot replace them.
func (r *reader) completeDevices() {
	d := &deviceClaims{
		reader: r, templates: map[types.NamespacedName]*resourcev1.ResourceClaimTemplate{},
		byName: map[types.NamespacedName]*resourcev1.ResourceClaim{},
	}
	for _, t := range all[*resourcev1.ResourceClaimTemplate](r) {
		d.templates[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}] = t
	}
	w := r.world
	w.Devices = &cluster.Devices{
		Slices: all[*resourcev1.ResourceSlice](r), Classes: all[*resourcev1.DeviceClass](r),
		TaintRules: all[*resourcev1.DeviceTaintRule](r), Expressions: dynamicresources.NewExpressions(),
	}
	for _, c := range all[*resourcev1.ResourceClaim](r) {
		if owner := metav1.GetControllerOf(c); owner != nil && r.gone[owner.UID] {
			continue
		}
		if len(r.gone) > 0 {
			c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, func(u resourcev1.ResourceClaimConsumerReference) bool {
				return r.gone[u.UID]
			})
		}
		d.add(c)
	}
	for _, pod := range w.Pods {
		if !r.takenPod(pod) {
			d.complete(pod)
		}
	}
	if d.unknown > 0 {
		r.note("pods on nodes whose resource claims are not among the inputs: %d; their devices count as free; "+
			"add the claims (kubectl get resourceclaims -o yaml)", d.unknown)
	}
	for _, t := range d.unmade {
		r.note("ResourceClaimTemplate %s is not among the inputs: pods that use it are not planned; add it", t)
	}
}

// add adds a claim, with the defaults of the API server.
func (d *deviceClaims) add(c *resourcev1.ResourceClaim) {
	defaultRequests(c.Spec.Devices.Requests)
	d.byName[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = c
	d.world.Devices.Claims = append(d.world.Devices.Claims, c)
}

// complete makes the claims of a pod that are not among the inputs. Those of a pod on a node have devices that nobody
// knows: they are left out.
func (d *deviceClaims) complete(pod *corev1.Pod) {
	missing := false
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		name := ref.ResourceClaimName
		at := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == ref.Name })
		if at >= 0 {
			if name = pod.Status.ResourceClaimStatuses[at].ResourceClaimName; name == nil {
				continue // it needs none
			}
		}
		known := name != nil && d.byName[types.NamespacedName{Namespace: pod.Namespace, Name: *name}] != nil
		missing = missing || !known
		if known || ref.ResourceClaimTemplateName == nil || pod.Spec.NodeName != "" {
			continue
		}
		template := types.NamespacedName{Namespace: pod.Namespace, Name: *ref.ResourceClaimTemplateName}
		switch t := d.templates[template]; {
		case t != nil:
			made := d.makeClaim(pod, ref.Name, t)
			if at < 0 {
				pod.Status.ResourceClaimStatuses = append(slices.Clip(pod.Status.ResourceClaimStatuses), corev1.PodResourceClaimStatus{Name: ref.Name})
				at = len(pod.Status.ResourceClaimStatuses) - 1
			}
			pod.Status.ResourceClaimStatuses[at].ResourceClaimName = &made.Name
		case !slices.Contains(d.unmade, template):
			d.unmade = append(d.unmade, template)
		}
	}
	if missing && pod.Spec.NodeName != "" && !snapshot.Terminal(pod) {
		d.unknown++
	}
}

// makeClaim makes a claim of a template for a pod. Its name is one that no other claim has.
func (d *deviceClaims) makeClaim(pod *corev1.Pod, ref string, t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	controller := true
	c := &resourcev1.ResourceClaim{ObjectMeta: *t.Spec.ObjectMeta.DeepCopy(), Spec: *t.Spec.Spec.DeepCopy()}
	c.Namespace, c.Name = pod.Namespace, pod.Name+"-"+ref
	for d.byName[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] != nil {
		c.Name += "-0"
	}
	c.UID = madeUID("ResourceClaim", c.Namespace, c.Name)
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &controller}}
	d.add(c)
	return c
}

// defaultRequests fills in what the API server fills in: a request is for one device.
func defaultRequests(requests []resourcev1.DeviceRequest) {
	for i := range requests {
		if e := requests[i].Exactly; e != nil {
			defaultRequest(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range requests[i].FirstAvailable {
			s := &requests[i].FirstAvailable[j]
			defaultRequest(&s.AllocationMode, &s.Count, s.Tolerations)
		}
	}
}

func defaultRequest(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
	for i := range tolerations {
		if t := &tolerations[i]; t.Operator == "" {
			t.Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}
