package dynamicresources

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// features are the supported features of the API that are on by default. If one is off in an API server, no object uses it.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true,
	PrioritizedList: true,
}

// featuresOf are the features of kube-scheduler's allocator. Those that are off by default are on when an object uses their field: the API
// server drops the field while the feature is off. A range of capacity with fractions needs no field of its own, only the feature.
func featuresOf(o Objects) structured.Features {
	out := features
	for _, s := range o.Slices {
		out.OptionalNodeOperations = out.OptionalNodeOperations || len(s.Spec.SkipNodeOperations) > 0
		for i := range s.Spec.Devices {
			addUsed(&s.Spec.Devices[i], &out)
		}
	}
	for _, c := range o.Claims {
		for i := range c.Spec.Devices.Requests {
			r := &c.Spec.Devices.Requests[i]
			out.DerivedAttributes = out.DerivedAttributes || r.Exactly != nil && len(r.Exactly.DerivedAttributes) > 0
			for k := range r.FirstAvailable {
				out.DerivedAttributes = out.DerivedAttributes || len(r.FirstAvailable[k].DerivedAttributes) > 0
			}
		}
	}
	return out
}

// addUsed adds the features that a device uses.
func addUsed(d *resourcev1.Device, out *structured.Features) {
	for i := range d.ConsumesCounters {
		out.CompatibilityGroups = out.CompatibilityGroups || len(d.ConsumesCounters[i].CompatibilityGroups) > 0
	}
	for _, a := range d.Attributes {
		lists := len(a.IntValues) + len(a.BoolValues) + len(a.StringValues) + len(a.VersionValues)
		out.ListTypeAttributes = out.ListTypeAttributes || lists > 0
	}
	for _, c := range d.Capacity {
		if c.RequestPolicy == nil || c.RequestPolicy.ValidRange == nil {
			continue
		}
		for _, q := range []*resource.Quantity{c.RequestPolicy.ValidRange.Min, c.RequestPolicy.ValidRange.Max, c.RequestPolicy.ValidRange.Step} {
			out.FractionalCapacityRange = out.FractionalCapacityRange || q != nil && q.MilliValue()%1000 != 0
		}
	}
}

// expressionsWith is a cache of expressions for these features. Those over attributes with lists have another type of device, and a cache
// of their own for each snapshot: few clusters have the feature.
func expressionsWith(f structured.Features, usual *cel.Cache) *cel.Cache {
	if !f.ListTypeAttributes {
		return usual
	}
	return cel.NewCache(maxCompiledExpressions, cel.Features{
		EnableConsumableCapacity: f.ConsumableCapacity, EnableListTypeAttributes: true,
	})
}
