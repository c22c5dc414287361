package dynamicresources

import (
	"cmp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// addRules adds the DeviceTaintRules, by name. One that is being deleted counts until it is gone, as for kube-scheduler.
func (d *Devices) addRules(rules []*resourcev1.DeviceTaintRule) {
	d.rules = slices.SortedFunc(slices.Values(rules), func(a, b *resourcev1.DeviceTaintRule) int { return cmp.Compare(a.Name, b.Name) })
}

// taintedSlice is the slice with the taints that rules add to its devices. It is the same one if there are none.
func (d *Devices) taintedSlice(s *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	devices := d.tainted(&s.Spec, s.Spec.Pool.Name)
	if devices == nil {
		return s
	}
	out := *s
	out.Spec.Devices = devices
	return &out
}

// tainted are the devices of a slice with the taints that rules add to them; nil if they add none. A rule selects devices by all of
// driver, pool and device that it names, and without a selector none. Pool is empty for devices that are not published yet: their pool
// will get a name that no rule has.
func (d *Devices) tainted(spec *resourcev1.ResourceSliceSpec, pool string) []resourcev1.Device {
	var out []resourcev1.Device
	for _, r := range d.rules {
		s := r.Spec.DeviceSelector
		if s == nil || s.Driver != nil && *s.Driver != spec.Driver || s.Pool != nil && *s.Pool != pool {
			continue
		}
		for i := range spec.Devices {
			if s.Device != nil && *s.Device != spec.Devices[i].Name {
				continue
			}
			if out == nil {
				out = slices.Clone(spec.Devices)
			}
			out[i].Taints = append(slices.Clip(out[i].Taints), r.Spec.Taint)
		}
	}
	return out
}
