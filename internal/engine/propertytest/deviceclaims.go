package propertytest

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// addPods gives pods claims, those of an app alike.
func (w *deviceWorld) addPods() {
	wants := map[string]edit{}
	for i := range w.s.DaemonSets {
		if w.maybe(25) {
			name := fmt.Sprintf("t-daemon-%d", i)
			w.o.Templates[name] = daemonSpec()
			p := w.s.DaemonSets[i].Pod
			usesTemplate(name)(p)
			// Where there are no GPUs the pod does not run, which plans do not know: then it is nothing to others.
			p.Labels, p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Ports = nil, nil, nil
		}
	}
	for i := range w.s.Nodes {
		n := &w.s.Nodes[i]
		for _, pod := range n.Pods {
			w.edit(wants, pod)
			w.allocate(pod, n)
		}
	}
	for _, pod := range w.s.Pods {
		w.edit(wants, pod)
	}
}

// edit gives the pod what the pods of its app request, or those of its DaemonSet.
func (w *deviceWorld) edit(wants map[string]edit, pod *corev1.Pod) {
	if snapshot.DaemonOwned(pod) {
		for i := range w.s.DaemonSets {
			if d := &w.s.DaemonSets[i]; d.Name == pod.OwnerReferences[0].Name {
				for _, ref := range d.Pod.Spec.ResourceClaims {
					w.ofTemplate(*ref.ResourceClaimTemplateName)(pod)
				}
			}
		}
		return
	}
	app := pod.Name[:1]
	if wants[app] == nil {
		wants[app] = w.wants(app)
	}
	wants[app](pod)
}

// wants is what the pods of an app request.
func (w *deviceWorld) wants(app string) edit {
	name := "t-" + app
	switch k := w.n(40); {
	case k < 12:
		return func(*corev1.Pod) {}
	case k < 20:
		return w.requestsExtended()
	case k < 26:
		return w.shares("shared-"+app, w.claimSpec())
	case k == 26:
		return usesTemplate("none") // which does not exist
	case k < 29:
		w.o.Templates[name] = w.claimSpec()
		one, other := w.ofTemplate(name), w.shares("shared-"+app, w.claimSpec())
		return func(p *corev1.Pod) { one(p); other(p) }
	default:
		w.o.Templates[name] = w.claimSpec()
		return w.ofTemplate(name)
	}
}

// requestsExtended has the pod request an extended resource, which a class may stand for.
func (w *deviceWorld) requestsExtended() edit {
	name, n := pick(w.random, gpuResource, gpuResource, gpuResource, implicitResource), fmt.Sprint(w.from(1, 2))
	var first edit
	if w.maybe(25) {
		first = initContainer(pick(w.random, "100m", "200m"), pick(w.random, nil, new(corev1.ContainerRestartPolicyAlways)))
	}
	more := fmt.Sprint(w.from(1, 3))
	return func(p *corev1.Pod) {
		r := &p.Spec.Containers[0].Resources
		r.Requests = r.Requests.DeepCopy()
		maps.Copy(r.Requests, Resources(name, n))
		if first != nil {
			first(p)
			maps.Copy(p.Spec.InitContainers[0].Resources.Requests, Resources(name, more))
		}
	}
}

// daemonSpec is what the pod of a DaemonSet requests: all GPUs, to watch them. Plans expect no pod of a DaemonSet to take devices from
// others on new nodes.
func daemonSpec() resourcev1.ResourceClaimSpec {
	yes := true
	return spec(resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeAll, AdminAccess: &yes,
		Tolerations: []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}},
	})
}

func spec(r resourcev1.ExactDeviceRequest) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &r}}}}
}

func exactly(class string, n int) resourcev1.ExactDeviceRequest {
	return resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(n),
	}
}

// claimSpec is what a claim of an app requests.
func (w *deviceWorld) claimSpec() resourcev1.ResourceClaimSpec {
	class := pick(w.random, "gpu", "gpu", "gpu-a", "net", "net", "any")
	one := exactly(class, pick(w.random, 1, 1, 2))
	if w.maybe(4) {
		one.DeviceClassName = "none"
	}
	if class == "gpu" && w.maybe(25) {
		one.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: pick(w.random,
			`device.capacity["gpu.example.com"].memory.compareTo(quantity("16Gi")) > 0`, `device.attributes["gpu.example.com"].model == "b"`,
		)}}}
	}
	if class == "net" && w.maybe(30) {
		one.Count = 1
		one.Capacity = &resourcev1.CapacityRequirements{
			Requests: map[resourcev1.QualifiedName]resource.Quantity{"bandwidth": resource.MustParse(pick(w.random, "3", "6"))},
		}
	}
	if w.maybe(25) {
		one.Tolerations = []resourcev1.DeviceToleration{{Key: "worn", Operator: resourcev1.DeviceTolerationOpExists}}
	}
	out := spec(one)
	first := &out.Devices.Requests[0]
	switch w.n(12) {
	case 0:
		first.Exactly.AllocationMode, first.Exactly.Count = resourcev1.DeviceAllocationModeAll, 0
	case 1:
		first.Exactly = nil
		first.FirstAvailable = []resourcev1.DeviceSubRequest{
			{Name: "large", DeviceClassName: "gpu-a", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2},
			{Name: "small", DeviceClassName: pick(w.random, "gpu", "net"), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		}
	case 2, 3:
		more := exactly(pick(w.random, "gpu", "net"), 1)
		out.Devices.Requests = append(out.Devices.Requests, resourcev1.DeviceRequest{Name: "two", Exactly: &more})
		if class == "gpu" && more.DeviceClassName == "gpu" && w.maybe(50) {
			name := resourcev1.FullyQualifiedName(gpuDriver + "/" + gpuModel)
			out.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &name}}
		}
	case 4:
		yes := true
		first.Exactly.AdminAccess = &yes
	}
	return out
}

// shares has the pods of an app use one claim in each namespace.
func (w *deviceWorld) shares(name string, spec resourcev1.ResourceClaimSpec) edit {
	deleting := w.maybe(4)
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: name})
		if slices.ContainsFunc(w.o.Claims, func(c *resourcev1.ResourceClaim) bool { return c.Namespace == p.Namespace && c.Name == name }) {
			return
		}
		c := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, UID: types.UID(p.Namespace + "-" + name)}, Spec: spec,
		}
		if deleting {
			c.DeletionTimestamp = &metav1.Time{Time: Now()}
		}
		w.o.Claims = append(w.o.Claims, c)
	}
}

// ofTemplate has the pod use a claim that has been made of the template for it.
func (w *deviceWorld) ofTemplate(template string) edit {
	return func(p *corev1.Pod) {
		if !slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == "claim-"+template }) {
			usesTemplate(template)(p)
		}
		for i := range p.Spec.ResourceClaims {
			if ref := &p.Spec.ResourceClaims[i]; ref.Name == "claim-"+template {
				w.o.Claims = append(w.o.Claims, MadeClaim(p, ref, w.o.Templates))
			}
		}
	}
}

// usesTemplate adds a claim of the template to the pod, which is not made yet.
func usesTemplate(template string) edit {
	return func(p *corev1.Pod) {
		ref := corev1.PodResourceClaim{Name: "claim-" + template, ResourceClaimTemplateName: &template}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, ref)
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: ref.Name})
	}
}

// MadeClaim is the claim that is made of a template for the pod. The status of the pod then names it. It is nil without such a template.
func MadeClaim(p *corev1.Pod, ref *corev1.PodResourceClaim, templates map[string]resourcev1.ResourceClaimSpec) *resourcev1.ResourceClaim {
	spec, exists := templates[*ref.ResourceClaimTemplateName]
	if !exists {
		return nil
	}
	name := p.Name + "-" + ref.Name
	p.Status.ResourceClaimStatuses = append(slices.Clone(p.Status.ResourceClaimStatuses), corev1.PodResourceClaimStatus{
		Name: ref.Name, ResourceClaimName: &name,
	})
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, UID: types.UID("claim-" + p.Namespace + "-" + name),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: spec,
	}
}
