package catalog

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// UnknownValue is the text of a device's attribute with a value that depends on the software of the node, such as the version
// of a driver: devices of one node have the same, and no published device has it.
const UnknownValue = "~"

// WithDevicesOf returns the type with the devices of these DRA drivers alone.
func (t *InstanceType) WithDevicesOf(drivers []string) *InstanceType {
	absent := func(s resourcev1.ResourceSliceSpec) bool { return !slices.Contains(drivers, s.Driver) }
	if !slices.ContainsFunc(t.DeviceSlices, absent) {
		return t
	}
	out := *t
	out.DeviceSlices = slices.DeleteFunc(slices.Clone(t.DeviceSlices), absent)
	return &out
}
