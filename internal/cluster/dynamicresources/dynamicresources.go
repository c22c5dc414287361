// Package dynamicresources simulates dynamic resource allocation for the engine with the scheduler's own allocator, so
// that both find the same devices.
//
// The allocator may search for long. Its context is done after a number of steps, not by the clock, so that equal
// snapshots give equal plans.
package dynamicresources

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Objects are the API objects of dynamic resource allocation. They are not changed.
type Objects struct {
	Claims  []*resourcev1.ResourceClaim
	Slices  []*resourcev1.ResourceSlice
	Classes []*resourcev1.DeviceClass
	// TaintRules add taints to devices, also to those that new nodes will have.
	TaintRules []*resourcev1.DeviceTaintRule
	// Served are the extended resources that devices serve on some node, existing or planned.
	Served []corev1.ResourceName
	// Up reports whether a node is initialized and not deleting. The slices of other nodes do not count: their drivers
	// may not have published all devices, or the node is about to go.
	Up func(node string) bool
	// PodGroups may own claims, which their pods share.
	PodGroups []snapshot.PodGroup
}

// Devices are the devices and claims of a snapshot. They implement snapshot.Devices.
type Devices struct {
	claims  map[types.NamespacedName]*resourcev1.ResourceClaim
	byUID   map[types.UID]*resourcev1.ResourceClaim
	classes classes
	// groups are the PodGroups, and members their pods that have a node, by the UID of the group.
	groups  map[types.NamespacedName]*schedulingv1beta1.PodGroup
	members map[types.UID][]types.UID
	// shared are the slices of device pools that are usable from several nodes; onNode adds the slices of one node.
	shared []*resourcev1.ResourceSlice
	onNode map[string][]*resourcev1.ResourceSlice
	// published are the slices that count, newest generation first.
	published map[poolID][]*resourcev1.ResourceSlice
	labels    []string
	rules     []*resourcev1.DeviceTaintRule
	cel       *cel.Cache
	// features are the features of the allocator.
	features structured.Features
	// served are the extended resources that devices serve somewhere, sorted; extended knows their classes.
	served   []corev1.ResourceName
	extended *Extended
}

var _ snapshot.Devices = (*Devices)(nil)

// maxCompiledExpressions limits the cache of compiled CEL expressions; there are a few per device class and claim
// template.
const maxCompiledExpressions = 1000

// NewExpressions returns a cache of compiled CEL expressions, which several Devices can share.
func NewExpressions() *cel.Cache {
	return cel.NewCache(maxCompiledExpressions, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity})
}

// New indexes the objects for allocation.
func New(o Objects, expressions *cel.Cache) *Devices {
	d := &Devices{
		claims: make(
			map[types.NamespacedName]*resourcev1.ResourceClaim,
			len(o.Claims),
		), byUID: make(map[types.UID]*resourcev1.ResourceClaim, len(o.Claims)),
		classes: classes{}, groups: map[types.NamespacedName]*schedulingv1beta1.PodGroup{}, members: map[types.UID][]types.UID{},
		onNode: map[string][]*resourcev1.ResourceSlice{}, features: featuresOf(o),
	}
	d.cel = expressionsWith(d.features, expressions)
	for _, c := range o.Claims {
		d.claims[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = c
		d.byUID[c.UID] = c
		if c.Status.Allocation != nil {
			d.addLabels(c.Status.Allocation.NodeSelector)
		}
	}
	for _, c := range o.Classes {
		d.classes[c.Name] = c
	}
	d.addGroups(o.PodGroups)
	d.addRules(o.TaintRules)
	d.extended = NewExtended(o.Classes, d.cel)
	d.served = slices.Compact(slices.Sorted(slices.Values(o.Served)))
	d.addSlices(o)
	slices.Sort(d.labels)
	d.labels = slices.Compact(d.labels)
	return d
}

type poolID struct{ driver, pool string }

// addSlices groups the slices by the nodes that can use them. It keeps device pools whole, since the allocator checks
// that a pool is complete.
func (d *Devices) addSlices(o Objects) {
	all := slices.SortedFunc(slices.Values(o.Slices), func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	all = slices.DeleteFunc(all, func(s *resourcev1.ResourceSlice) bool {
		node := NodeOf(s)
		return node != "" && !o.Up(node)
	})
	pools := map[poolID][]*resourcev1.ResourceSlice{}
	places := map[string][]poolID{} // by node; "" is several
	for _, s := range all {
		s = d.taintedSlice(s)
		id := poolID{s.Spec.Driver, s.Spec.Pool.Name}
		pools[id] = append(pools[id], s)
		node := ""
		if s.Spec.NodeName != nil {
			node = *s.Spec.NodeName
		}
		if !slices.Contains(places[node], id) {
			places[node] = append(places[node], id)
		}
		d.addLabels(s.Spec.NodeSelector)
		for i := range s.Spec.Devices {
			d.addLabels(s.Spec.Devices[i].NodeSelector)
		}
	}
	for _, list := range pools {
		slices.SortStableFunc(list, func(a, b *resourcev1.ResourceSlice) int {
			return cmp.Compare(b.Spec.Pool.Generation, a.Spec.Pool.Generation)
		})
	}
	d.published = pools
	for _, id := range places[""] {
		d.shared = append(d.shared, pools[id]...)
	}
	for node, ids := range places {
		if node == "" {
			continue
		}
		list := slices.Clone(d.shared)
		for _, id := range ids {
			if !slices.Contains(places[""], id) {
				list = append(list, pools[id]...)
			}
		}
		d.onNode[node] = list
	}
}

// NodeOf is the node that a slice belongs to, by its devices or by its owner; empty if there is none.
func NodeOf(s *resourcev1.ResourceSlice) string {
	if s.Spec.NodeName != nil && *s.Spec.NodeName != "" {
		return *s.Spec.NodeName
	}
	for _, o := range s.OwnerReferences {
		if o.Kind == "Node" {
			return o.Name
		}
	}
	return ""
}

func (d *Devices) addLabels(s *corev1.NodeSelector) {
	if s == nil {
		return
	}
	for _, term := range s.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			d.labels = append(d.labels, e.Key)
		}
	}
}

// UsableOn implements snapshot.Devices.
func (d *Devices) UsableOn(r *resourcev1.DeviceRequestAllocationResult) (*corev1.NodeSelector, bool) {
	for _, s := range d.published[poolID{r.Driver, r.Pool}] {
		for i := range s.Spec.Devices {
			if device := &s.Spec.Devices[i]; device.Name == r.Device {
				return selectorOf(&s.Spec, device), true
			}
		}
	}
	return nil, false
}

// selectorOf selects the nodes that can use a device of a slice; nil is all nodes.
func selectorOf(s *resourcev1.ResourceSliceSpec, d *resourcev1.Device) *corev1.NodeSelector {
	name, selector := s.NodeName, s.NodeSelector
	if s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection {
		name, selector = d.NodeName, d.NodeSelector
	}
	if name == nil {
		return selector
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{*name}},
	}}}}
}

// Labels implements snapshot.Devices.
func (d *Devices) Labels() []string { return d.labels }

// Claims implements snapshot.Devices.
func (d *Devices) Claims(pod *corev1.Pod) ([]snapshot.DeviceClaim, error) {
	var out []snapshot.DeviceClaim
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		name, err := claimName(pod, ref)
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue
		}
		claim := d.claims[types.NamespacedName{Namespace: pod.Namespace, Name: *name}]
		own := ref.ResourceClaimName == nil && !(claim != nil && d.madeForGroup(claim, pod, ref))
		switch {
		case claim == nil:
			return nil, fmt.Errorf("resource claim %q does not exist", *name)
		case claim.DeletionTimestamp != nil:
			return nil, fmt.Errorf("resource claim %q is being deleted", *name)
		case own && !ownedBy(claim, pod):
			return nil, fmt.Errorf("resource claim %q was not made for this pod", *name)
		case len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize && !reservedFor(claim, pod.UID):
			return nil, fmt.Errorf("resource claim %q has %d users, which is the most that one can have", *name, len(claim.Status.ReservedFor))
		}
		if !slices.ContainsFunc(out, func(c snapshot.DeviceClaim) bool { return c.UID == claim.UID }) {
			out = append(out, snapshot.DeviceClaim{Name: claim.Name, UID: claim.UID, Own: own})
		}
	}
	if extended, requested := d.extendedClaim(pod); requested {
		out = append(out, extended)
	}
	return out, nil
}

// claimName is the name of the claim that a pod refers to; nil if it needs none.
func claimName(pod *corev1.Pod, ref *corev1.PodResourceClaim) (*string, error) {
	if ref.ResourceClaimName != nil {
		return ref.ResourceClaimName, nil
	}
	if ref.ResourceClaimTemplateName == nil {
		return nil, fmt.Errorf("resource claim %q of the pod names neither a claim nor a template", ref.Name)
	}
	i := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == ref.Name })
	if i < 0 {
		return nil, fmt.Errorf("resource claim %q has not been made of template %q yet", ref.Name, *ref.ResourceClaimTemplateName)
	}
	return pod.Status.ResourceClaimStatuses[i].ResourceClaimName, nil
}

func ownedBy(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	for _, o := range claim.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			return o.UID == pod.UID
		}
	}
	return false
}

func reservedFor(claim *resourcev1.ResourceClaim, uid types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == uid })
}

// classes are device classes by name.
type classes map[string]*resourcev1.DeviceClass

// List and Get implement structured.DeviceClassLister.
func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	out := make([]*resourcev1.DeviceClass, 0, len(c))
	for _, class := range c {
		out = append(out, class)
	}
	slices.SortFunc(out, func(a, b *resourcev1.DeviceClass) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("device class %q does not exist", name)
}
