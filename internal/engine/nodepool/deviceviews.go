package nodepool

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// DeviceView is a set of possible new nodes that devices cannot distinguish .
type DeviceView struct {
	Key    string
	Labels map[string]string
	// Typ is nil if none of types comes with devices; otherwise it is the only one.
	Typ   *catalog.InstanceType
	Types []string
}

// maxDeviceViews bounds how many combinations of label values are distinguished in one offering. Devices select by zone
// and a few more labels, so an offering has one or two; the bound protects against selectors over many-valued labels.
const maxDeviceViews = 64

// DeviceViews are the different nodes that candidates can become, from the perspective of devices that select by the labels,
// cheapest first. The labels are the same in each call.
func (c *Candidates) DeviceViews(keys []string) []DeviceView {
	if c.deviceViews != nil {
		return c.deviceViews
	}
	m, at := c.t.models, map[string]int{}
	for _, cand := range c.list {
		it := c.t.types[cand.Type].InstanceType
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if !o.Available || !c.reqs.Overlaps(o.Requirements) {
				continue
			}
			for _, l := range m.labelCombinations(c.reqs, it, o.Requirements, keys) {
				if len(it.DeviceSlices) > 0 {
					l.Typ = it
					l.Key = it.Name + "/" + l.Key
				}
				k, known := at[l.Key]
				if !known {
					k = len(c.deviceViews)
					at[l.Key] = k
					c.deviceViews = append(c.deviceViews, l)
				}
				if types := &c.deviceViews[k].Types; !slices.Contains(*types, it.Name) {
					*types = append(*types, it.Name)
				}
			}
		}
	}
	return c.deviceViews
}

// With returns those of the types, by name, with nodes that have some of each of these resources.
func (c *Candidates) With(resources []corev1.ResourceName, types []string) []string {
	if len(resources) == 0 {
		return types
	}
	lacks := func(it *catalog.InstanceType) bool {
		return slices.ContainsFunc(resources, func(name corev1.ResourceName) bool { q := it.Allocatable[name]; return q.Sign() <= 0 })
	}
	var out []string
	for _, cand := range c.list {
		it := c.t.types[cand.Type].InstanceType
		if slices.Contains(types, it.Name) && !slices.Contains(out, it.Name) && !lacks(it) {
			out = append(out, it.Name)
		}
	}
	return out
}

// labelCombinations lists the combinations of values that the labels can have on a node of an offering.
func (m *Models) labelCombinations(
	reqs requirement.Set,
	it *catalog.InstanceType,
	offering requirement.Set,
	keys []string,
) []DeviceView {
	out := []DeviceView{{Labels: map[string]string{}}}
	for _, raw := range keys {
		key := m.config.Labels.Normalize(raw)
		if m.newNode.Unknown(key) {
			continue // not known before the launch
		}
		r := reqs.Get(key)
		for _, more := range []requirement.Set{it.Requirements, offering} {
			if more.Defines(key) {
				r = reqs.With(more.Get(key)).Get(key)
			}
		}
		if r.Operator() != corev1.NodeSelectorOpIn {
			continue
		}
		var next []DeviceView
		for _, l := range out {
			for _, v := range r.Values() {
				labels := maps.Clone(l.Labels)
				labels[raw] = v
				next = append(next, DeviceView{Key: l.Key + raw + "=" + v + ",", Labels: labels})
			}
		}
		out = next[:min(len(next), maxDeviceViews)]
	}
	return out
}
