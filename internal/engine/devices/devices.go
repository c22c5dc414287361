// Package devices allocates devices (dynamic resource allocation) to pods while nodes are planned: those of existing
// nodes, and those that a new node would have, by the types that it may become.
//
// State is what is left of them. The allocator behind it is the scheduler's own: see snapshot.Devices. A State belongs to
// one plan at a time; Begin starts each run anew. Devices that are taken stay taken until then.
//
// Cost: Find runs the allocator for one node; Options does so once per kind of type that the new node may become.
package devices

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// State is the devices that are free while nodes are planned.
type State struct {
	s *snapshot.Snapshot
	// free are the devices that are left; nil while no pod requests any.
	free snapshot.DeviceState
}

// New is the devices of a snapshot, none of which is free before Begin.
func New(s *snapshot.Snapshot) *State { return &State{s: s} }

// Begin frees all devices but those of running pods. Pods that leave their node, to be planned or with it, free theirs.
func (d *State) Begin(leaving map[types.UID]bool) { d.free = d.s.Devices.Free(leaving) }

// End leaves no device free.
func (d *State) End() { d.free = nil }

// Find finds devices for a pod with these claims on a node, or returns why there are none.
func (d *State) Find(claims []snapshot.DeviceClaim, on snapshot.DeviceNode) (snapshot.DeviceAllocation, error) {
	return d.free.Find(claims, on)
}

// Take takes what was found for the claims: one set of devices, or one for each type that a new node may become.
func (d *State) Take(claims []snapshot.DeviceClaim, found ...snapshot.DeviceAllocation) {
	d.free = d.free.With(claims, found...)
}

// Shared reports whether other pods may use some of the claims: then these may get devices through them later.
func Shared(claims []snapshot.DeviceClaim) bool {
	return slices.ContainsFunc(claims, func(d snapshot.DeviceClaim) bool { return !d.Own })
}

// Node is an existing node with these labels from the perspective of devices.
func (d *State) Node(src *snapshot.Node, labels requirement.Set) snapshot.DeviceNode {
	out := snapshot.DeviceNode{
		Node: src.Name, Labels: maps.Clone(src.Labels), DRAResources: src.DRAResources, DeclaredFeatures: src.DeclaredFeatures,
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	for _, key := range d.s.Devices.Labels() {
		if v, ok := labels.Get(d.s.Labels.Normalize(key)).Single(); ok {
			out.Labels[key] = v
		}
	}
	if src.Claim != "" && !src.Initialized {
		out.Type = d.typeOf(src, labels).WithDevicesOf(src.DRADrivers)
	}
	return out
}

// typeOf is the type that a node in flight was launched as, without devices if the type is unknown.
func (d *State) typeOf(src *snapshot.Node, labels requirement.Set) *catalog.InstanceType {
	names := labels.Get(corev1.LabelInstanceTypeStable)
	for _, p := range d.s.Pools {
		if p.NodePool.Name != src.Pool || names.Operator() != corev1.NodeSelectorOpIn {
			continue
		}
		for _, name := range names.Values() {
			if i := slices.IndexFunc(p.InstanceTypes, func(it *catalog.InstanceType) bool { return it.Name == name }); i >= 0 {
				return p.InstanceTypes[i]
			}
		}
	}
	return &catalog.InstanceType{}
}

// Option is a set of devices for a pod on a new node: the same devices outside of the node, whichever type it
// becomes.
type Option struct {
	// reqs are the labels that the node must have.
	reqs   requirement.Set
	claims []snapshot.DeviceClaim
	grants []snapshot.DeviceAllocation
	// drivers are the drivers of devices that come with the node, by type name.
	drivers map[string][]string
}

// Requirements are the labels that the node must have for these devices.
func (o *Option) Requirements() requirement.Set { return o.reqs }

// TakeOption takes the devices of an option.
func (d *State) TakeOption(o *Option) { d.Take(o.claims, o.grants...) }

// Claims are the claims that get the devices.
func (o *Option) Claims() []snapshot.DeviceClaim { return o.claims }

// Grants are the devices of each type that the node may become.
func (o *Option) Grants() []snapshot.DeviceAllocation { return o.grants }

// errNoDevices states why types have no devices for extended resources.
var errNoDevices = errors.New("there are neither devices nor a device plugin for the extended resources that the pod requests")

// extended are the extended resources that the claims stand for, of those that devices serve somewhere.
func (d *State) extended(claims []snapshot.DeviceClaim) (out []corev1.ResourceName) {
	for _, c := range claims {
		if c.Extended == nil {
			continue
		}
		requests := snapshot.Requests(c.Extended)
		for _, name := range d.s.Devices.ExtendedResources() {
			if q := requests[name]; !q.IsZero() {
				out = append(out, name)
			}
		}
	}
	return out
}

// Options are the sets of devices that a pod with these claims can get on a new node with this index and these candidates,
// those on cheaper nodes first. The error is the reason why there are none.
func (d *State) Options(claims []snapshot.DeviceClaim, index int, cands *nodepool.Candidates) ([]Option, error) {
	var out []Option
	var types [][]string
	var kept [][]nodepool.DeviceView // by option
	var none, nearest error
	extended := d.extended(claims)
	views := cands.DeviceViews(d.s.Devices.Labels())
	for _, look := range views {
		site := snapshot.DeviceNode{Node: topology.HostName(index), Labels: look.Labels, Type: look.Typ}
		if look.Types = cands.With(extended, look.Types); len(look.Types) == 0 {
			none = cmp.Or(none, errNoDevices)
			continue
		}
		g, err := d.Find(claims, site)
		if err != nil {
			none = cmp.Or(none, err)
			if look.Typ != nil { // more specific than that other types have no devices at all
				nearest = cmp.Or(nearest, err)
			}
			continue
		}
		i := slices.IndexFunc(out, func(w Option) bool { return w.grants[0].Outside == g.Outside })
		if i < 0 {
			asks, err := d.s.Labels.FromExpressions(g.Reach)
			if err != nil {
				none = cmp.Or(none, err)
				continue
			}
			i, types, kept = len(out), append(types, nil), append(kept, nil)
			out = append(out, Option{reqs: asks, claims: claims, drivers: map[string][]string{}})
		}
		w := &out[i]
		w.grants, types[i], kept[i] = append(w.grants, g), append(types[i], look.Types...), append(kept[i], look)
		for _, name := range look.Types {
			if len(g.Drivers) > 0 {
				w.drivers[name] = g.Drivers
			}
		}
	}
	for i := range out {
		out[i].reqs = d.onlyIn(out[i].reqs, kept[i], views)
		if len(out[i].drivers) > 0 || len(extended) > 0 || !coverAll(types[i], views) {
			out[i].reqs = out[i].reqs.With(requirement.In(corev1.LabelInstanceTypeStable, types[i]...))
		}
	}
	return out, cmp.Or(nearest, none)
}

// onlyIn adds to requirements for the kept views what excludes the others with the same types. Where the labels are others, a claim may get
// other devices of the network, or none, as when it requests all that there are.
func (d *State) onlyIn(reqs requirement.Set, kept, all []nodepool.DeviceView) requirement.Set {
	excluded := func(v nodepool.DeviceView) bool {
		for key, value := range v.Labels {
			if !reqs.Get(d.s.Labels.Normalize(key)).Has(value) {
				return true
			}
		}
		return !slices.ContainsFunc(kept, func(k nodepool.DeviceView) bool {
			return slices.ContainsFunc(v.Types, func(name string) bool { return slices.Contains(k.Types, name) })
		})
	}
	same := func(v nodepool.DeviceView) bool {
		return slices.ContainsFunc(kept, func(k nodepool.DeviceView) bool { return k.Key == v.Key })
	}
	if !slices.ContainsFunc(all, func(v nodepool.DeviceView) bool { return !same(v) && !excluded(v) }) {
		return reqs
	}
	for _, key := range d.s.Devices.Labels() {
		var values []string
		for _, k := range kept {
			value, has := k.Labels[key]
			if !has {
				values = nil
				break
			}
			values = append(values, value)
		}
		if len(values) > 0 {
			reqs = reqs.With(requirement.In(d.s.Labels.Normalize(key), values...))
		}
	}
	return reqs
}

// coverAll reports whether the types with devices of their own are all among these. On another, a claim may not get the same devices of the
// network, as when it requests all that there are.
func coverAll(types []string, views []nodepool.DeviceView) bool {
	return !slices.ContainsFunc(views, func(v nodepool.DeviceView) bool { return v.Typ != nil && !slices.Contains(types, v.Typ.Name) })
}

// Drivers are the DRA drivers with devices of these options on every one of the types, sorted.
func Drivers(options []*Option, types []*catalog.InstanceType) []string {
	if len(options) == 0 {
		return nil
	}
	count := map[string]int{}
	for _, it := range types {
		seen := map[string]bool{}
		for _, w := range options {
			for _, d := range w.drivers[it.Name] {
				if !seen[d] {
					seen[d] = true
					count[d]++
				}
			}
		}
	}
	var out []string
	for _, d := range slices.Sorted(maps.Keys(count)) {
		if count[d] == len(types) {
			out = append(out, d)
		}
	}
	return out
}
