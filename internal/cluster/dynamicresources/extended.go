package dynamicresources

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Extended knows which extended resources device classes stand for: kube-scheduler allocates devices of the class for requests of the
// resource, on nodes with an allocatable amount of zero.
type Extended struct {
	classes map[corev1.ResourceName]*resourcev1.DeviceClass
	cel     *cel.Cache
}

// NewExtended reads the names in the classes. Each class stands for a resource with the name of the class, too. Of two classes with one
// name, the newer counts, then the one with the lesser name.
func NewExtended(list []*resourcev1.DeviceClass, expressions *cel.Cache) *Extended {
	out := &Extended{classes: map[corev1.ResourceName]*resourcev1.DeviceClass{}, cel: expressions}
	for _, class := range list {
		out.classes[corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+class.Name)] = class
		if class.Spec.ExtendedResourceName == nil {
			continue
		}
		name := corev1.ResourceName(*class.Spec.ExtendedResourceName)
		if known := out.classes[name]; known == nil || cmp.Or(
			class.CreationTimestamp.Compare(known.CreationTimestamp.Time), cmp.Compare(known.Name, class.Name),
		) > 0 {
			out.classes[name] = class
		}
	}
	return out
}

// Requested are the resources of these that a class stands for, sorted.
func (e *Extended) Requested(requests corev1.ResourceList) (out []corev1.ResourceName) {
	for name, q := range requests {
		if q.Sign() > 0 && e.classes[name] != nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// manyUsers sets how many requests a device is taken to serve that several claims can share: more than a node has pods. How many it serves
// depends on what they require of its capacity, which the allocator checks.
const manyUsers = 1 << 10

// Amount returns how many of the devices in the slices can serve requests of the resource, whether they are allocated or not. Whether they
// can be allocated together is left to the allocator.
func (e *Extended) Amount(name corev1.ResourceName, published []resourcev1.ResourceSliceSpec) int64 {
	class := e.classes[name]
	if class == nil {
		return 0
	}
	n := int64(0)
	for i := range published {
		for k := range published[i].Devices {
			d := &published[i].Devices[k]
			switch {
			case !e.selects(class, published[i].Driver, d):
			case d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations:
				n += manyUsers
			default:
				n++
			}
		}
	}
	return n
}

// selects reports whether the class has the device. A class with an expression that cannot be evaluated has none: kube-scheduler
// allocates nothing of it.
func (e *Extended) selects(class *resourcev1.DeviceClass, driver string, d *resourcev1.Device) bool {
	for _, s := range class.Spec.Selectors {
		if s.CEL == nil {
			return false
		}
		compiled := e.cel.GetOrCompile(s.CEL.Expression)
		if compiled.Error != nil {
			return false
		}
		matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
			Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
		})
		if err != nil || !matches {
			return false
		}
	}
	return true
}

// ExtendedResources implements snapshot.Devices.
func (d *Devices) ExtendedResources() []corev1.ResourceName { return d.served }

// extendedClaim stands for the pod's requests of extended resources; false if it has none that devices serve anywhere.
func (d *Devices) extendedClaim(pod *corev1.Pod) (snapshot.DeviceClaim, bool) {
	if len(d.served) == 0 {
		return snapshot.DeviceClaim{}, false
	}
	requests := snapshot.Requests(pod)
	if !slices.ContainsFunc(d.served, func(name corev1.ResourceName) bool { q := requests[name]; return q.Sign() > 0 }) {
		return snapshot.DeviceClaim{}, false
	}
	return snapshot.DeviceClaim{
		Name: pod.Name + "-extended-resources", UID: "extended-resources/" + pod.UID, Own: true, Extended: pod,
	}, true
}

// claimOn is the claim that kube-scheduler makes for a node on which devices serve these extended resources; nil if it makes none.
func (b *allocations) claimOn(c snapshot.DeviceClaim, served []corev1.ResourceName) *resourcev1.ResourceClaim {
	if c.Extended == nil {
		return b.devices.byUID[c.UID]
	}
	uid := c.UID
	for _, name := range served {
		uid += types.UID("/" + string(name))
	}
	claim, known := b.searches.extended[uid]
	if !known {
		if requests := b.devices.extended.requestsOf(c.Extended, served); len(requests) > 0 {
			claim = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.Extended.Namespace, Name: c.Name, UID: uid}}
			claim.Spec.Devices.Requests = requests
		}
		b.searches.extended[uid] = claim
	}
	return claim
}

// requestsOf are the requests for devices that serve the pod's requests of these extended resources, in kube-scheduler's order: one per
// container and resource. Init containers that end use the devices of containers that start later, and of each other; only the largest
// part that is missing then is requested.
func (e *Extended) requestsOf(pod *corev1.Pod, served []corev1.ResourceName) (out []resourcev1.DeviceRequest) {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	ends := func(i int) bool {
		policy := containers[i].RestartPolicy
		return i < len(pod.Spec.InitContainers) && (policy == nil || *policy != corev1.ContainerRestartPolicyAlways)
	}
	for _, name := range served {
		class := e.classes[name]
		if class == nil {
			continue
		}
		later, most := int64(0), int64(0)
		var mostOf *extendedRequest
		for i := len(containers) - 1; i >= 0; i-- {
			n := devicesFor(&containers[i], name)
			if !ends(i) {
				if later += n; n > 0 {
					out = append(out, extendedRequest{&containers[i], i, name}.of(class.Name, n))
				}
				continue
			}
			if n-later > 0 && n-later >= most {
				most, mostOf = n-later, &extendedRequest{&containers[i], i, name}
			}
		}
		if mostOf != nil {
			out = append(out, mostOf.of(class.Name, most))
		}
	}
	slices.SortFunc(out, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// devicesFor returns how many devices the container requests by the resource. Fractions request none.
func devicesFor(c *corev1.Container, name corev1.ResourceName) int64 {
	q := c.Resources.Requests[name]
	n, whole := q.AsInt64()
	if !whole {
		return 0
	}
	return max(0, n)
}

// extendedRequest describes what a container requests of an extended resource. Index is that of the container, init containers first.
type extendedRequest struct {
	container *corev1.Container
	index     int
	name      corev1.ResourceName
}

// of is the request for devices of a class, with the name that kube-scheduler gives it: the allocator goes by the order of names.
func (r extendedRequest) of(class string, count int64) resourcev1.DeviceRequest {
	before := 0
	for other := range r.container.Resources.Requests {
		if strings.Compare(string(other), string(r.name)) < 0 {
			before++
		}
	}
	return resourcev1.DeviceRequest{Name: fmt.Sprintf("container-%d-request-%d", r.index, before), Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}
}
