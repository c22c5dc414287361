package propertytest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// gpuDriver has devices that come with nodes, networkDriver some that several nodes can use.
	gpuDriver, networkDriver = "gpu.example.com", "net.example.com"
	gpuModel                 = "model"
	// gpuResource is the extended resource that the class of GPUs stands for.
	gpuResource = "example.com/gpu"
	// implicitResource stands for the class gpu-a by its name.
	implicitResource = resourcev1.ResourceDeviceClassPrefix + "gpu-a"
)

// DeviceObjects are the API objects of dynamic resource allocation.
type DeviceObjects struct {
	Claims  []*resourcev1.ResourceClaim
	Slices  []*resourcev1.ResourceSlice
	Classes []*resourcev1.DeviceClass
	Rules   []*resourcev1.DeviceTaintRule
	// Templates are ResourceClaimTemplates of all namespaces, by name.
	Templates map[string]resourcev1.ResourceClaimSpec
}

// DevicesWorld is a SchedulerWorld with devices, on nodes and on the instance types of new ones, and with pods that have claims. Its
// Snapshot does not have the devices of the objects yet.
func DevicesWorld(next func() byte) (*snapshot.Snapshot, *DeviceObjects) {
	w := deviceWorld{random: random{next}, o: &DeviceObjects{Templates: map[string]resourcev1.ResourceClaimSpec{}}}
	if w.s = w.schedulerWorld(); w.maybe(20) {
		w.s = w.inFlightWorld()
	}
	w.addClasses()
	w.addRules()
	w.addTypes()
	w.addNodes()
	w.addNetworks()
	w.addPods()
	w.deleteNodes()
	return w.s, w.o
}

type deviceWorld struct {
	random
	s *snapshot.Snapshot
	o *DeviceObjects
	// types are the instance types, by name.
	types map[string]*catalog.InstanceType
}

func (w *deviceWorld) addClasses() {
	class := func(name string, expressions ...string) *resourcev1.DeviceClass {
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, e := range expressions {
			c.Spec.Selectors = append(c.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
		}
		w.o.Classes = append(w.o.Classes, c)
		return c
	}
	gpu := class("gpu", `device.driver == "gpu.example.com"`)
	class("gpu-a", `device.driver == "gpu.example.com"`, `device.attributes["gpu.example.com"].model == "a"`)
	class("net", `device.driver == "net.example.com"`)
	class("any")
	if w.maybe(60) {
		name := gpuResource
		gpu.Spec.ExtendedResourceName = &name
	}
}

// hasDevice reports whether the class has the device.
func hasDevice(class string, s *resourcev1.ResourceSliceSpec, d *resourcev1.Device) bool {
	switch class {
	case "gpu":
		return s.Driver == gpuDriver
	case "gpu-a":
		return s.Driver == gpuDriver && *d.Attributes[gpuModel].StringValue == "a"
	case "net":
		return s.Driver == networkDriver
	}
	return class == "any"
}

// addRules taints devices, of a driver or with a name.
func (w *deviceWorld) addRules() {
	if !w.maybe(20) {
		return
	}
	driver, device := gpuDriver, "dev-0"
	r := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}}
	r.Spec.Taint = w.deviceTaint()
	r.Spec.DeviceSelector = pick(w.random,
		&resourcev1.DeviceTaintSelector{Driver: &driver}, &resourcev1.DeviceTaintSelector{Driver: &driver, Device: &device},
		&resourcev1.DeviceTaintSelector{Device: &device}, nil)
	w.o.Rules = append(w.o.Rules, r)
}

func (w *deviceWorld) deviceTaint() resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: "worn", Value: "yes", Effect: pick(w.random,
		resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNone,
	)}
}

// addTypes gives instance types the devices that their nodes come with, or a device plugin.
func (w *deviceWorld) addTypes() {
	w.types = map[string]*catalog.InstanceType{}
	for i := range w.s.Pools {
		for _, it := range w.s.Pools[i].InstanceTypes {
			if w.types[it.Name] != nil {
				continue
			}
			w.types[it.Name] = it
			if w.maybe(75) {
				it.DeviceSlices = w.slicesOfType()
			}
			if w.maybe(20) {
				own := Resources("cpu", it.Allocatable.Cpu().String(), "memory", "32Gi", "pods", "110", gpuResource, fmt.Sprint(w.from(1, 4)))
				it.Capacity, it.Allocatable = own, own
			}
		}
	}
}

// slicesOfType are what the drivers of a node publish.
func (w *deviceWorld) slicesOfType() []resourcev1.ResourceSliceSpec {
	pool := resourcev1.ResourcePool{Name: "gpus", Generation: 1, ResourceSliceCount: 1}
	model, memory := pick(w.random, "a", "a", "b"), pick(w.random, "16Gi", "24Gi")
	if w.maybe(20) {
		return w.partitions(pool, model)
	}
	if w.maybe(20) {
		pool.ResourceSliceCount = 2
	}
	var out []resourcev1.ResourceSliceSpec
	n := 0
	for range pool.ResourceSliceCount {
		gpus := resourcev1.ResourceSliceSpec{Driver: gpuDriver, Pool: pool}
		for range w.from(1, 3) {
			d := gpuDevice(fmt.Sprintf("dev-%d", n), model, memory)
			if n++; w.maybe(10) {
				d.Taints = []resourcev1.DeviceTaint{w.deviceTaint()}
			}
			if w.maybe(10) {
				d.BindingConditions, d.BindingFailureConditions = []string{"attached"}, []string{"failed"}
			}
			if w.maybe(10) {
				model = "b"
			}
			gpus.Devices = append(gpus.Devices, d)
		}
		out = append(out, gpus)
	}
	return out
}

func gpuDevice(name, model, memory string) resourcev1.Device {
	return resourcev1.Device{
		Name:       name,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{gpuModel: {StringValue: &model}},
		Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
	}
}

// partitions are a device that can be used as a whole or in parts.
func (w *deviceWorld) partitions(pool resourcev1.ResourcePool, model string) []resourcev1.ResourceSliceSpec {
	pool.ResourceSliceCount = 2
	counters := resourcev1.ResourceSliceSpec{Driver: gpuDriver, Pool: pool, SharedCounters: []resourcev1.CounterSet{{
		Name: "card", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("32Gi")}},
	}}}
	parts := resourcev1.ResourceSliceSpec{Driver: gpuDriver, Pool: pool}
	for i, size := range []string{"32Gi", "16Gi", "16Gi", "8Gi"}[:w.from(2, 4)] {
		d := gpuDevice(fmt.Sprintf("part-%d", i), model, size)
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{
			CounterSet: "card", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(size)}},
		}}
		parts.Devices = append(parts.Devices, d)
	}
	return []resourcev1.ResourceSliceSpec{counters, parts}
}

// PublishedSlices are the slices that the drivers of a node publish, of these specs without a node.
func PublishedSlices(node string, of []resourcev1.ResourceSliceSpec) (out []*resourcev1.ResourceSlice) {
	for i, spec := range of {
		spec.NodeName = &node
		spec.Pool.Name = node + "-" + spec.Pool.Name
		out = append(out, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)}, Spec: spec})
	}
	return out
}

// addNodes publishes the devices of nodes: most have those of their instance type.
func (w *deviceWorld) addNodes() {
	for i := range w.s.Nodes {
		n := &w.s.Nodes[i]
		var own []resourcev1.ResourceSliceSpec
		it := w.types[n.Labels[corev1.LabelInstanceTypeStable]]
		if !n.Initialized { // it publishes nothing yet; the pods that it was launched for had no claims
			n.Nominated = nil
			if len(it.DeviceSlices) > 0 && !w.maybe(20) {
				n.DRADrivers = []string{gpuDriver}
			}
			continue
		}
		if it != nil && !w.maybe(15) {
			own = it.DeviceSlices
		} else if w.maybe(40) {
			own = w.slicesOfType()
		}
		w.o.Slices = append(w.o.Slices, PublishedSlices(n.Name, own)...)
		if it == nil {
			continue
		}
		if amount, has := it.Allocatable[gpuResource]; has && w.maybe(70) {
			n.Allocatable = n.Allocatable.DeepCopy()
			n.Allocatable[gpuResource] = amount
			n.Capacity = n.Allocatable
		}
	}
}

// addNetworks publishes devices that several nodes can use: those of a zone, or all. Claims may share some.
func (w *deviceWorld) addNetworks() {
	for i := range w.n(3) {
		name := fmt.Sprintf("fabric-%d", i)
		spec := resourcev1.ResourceSliceSpec{
			Driver: networkDriver, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		}
		yes := true
		switch w.n(3) {
		case 0:
			spec.AllNodes = &yes
		default:
			spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{Expr(Zone, in, some(w.random, 2, Zones()...)...)},
			}}}
		}
		shared := w.maybe(40)
		for k := range w.from(1, 3) {
			d := resourcev1.Device{Name: fmt.Sprintf("dev-%d", k)}
			if shared {
				d.AllowMultipleAllocations = &yes
				d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"bandwidth": {Value: resource.MustParse("10")}}
			}
			spec.Devices = append(spec.Devices, d)
		}
		w.o.Slices = append(w.o.Slices, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
}

// deleteNodes has some nodes leave, with their pods and the devices of these.
func (w *deviceWorld) deleteNodes() {
	for i := range w.s.Nodes {
		n := &w.s.Nodes[i]
		if !n.Initialized || !w.maybe(12) {
			continue
		}
		n.Deleting = true
		n.Taints = append(slices.Clone(n.Taints), karpv1.TaintDisrupted())
		for _, pod := range n.Pods {
			if snapshot.Reschedulable(pod) && pod.DeletionTimestamp == nil {
				w.s.Pods = append(w.s.Pods, pod)
			}
		}
	}
}
