package schedule

import (
	"cmp"
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

// findFreeDevices finds the devices that a run can allocate. Pods to be scheduled, and those on removed nodes, free
// theirs.
func (sv *solver) findFreeDevices(queue []*queuedPod) {
	sv.devices = nil
	if !slices.ContainsFunc(queue, func(q *queuedPod) bool { return len(q.class.Devices()) > 0 }) {
		return
	}
	leaving := map[types.UID]bool{}
	for _, q := range queue {
		leaving[q.pod.UID] = true
	}
	for _, n := range sv.nodes {
		if n.removed || n.src.Deleting {
			for _, pod := range n.src.Pods {
				leaving[pod.UID] = true
			}
		}
	}
	sv.devices = sv.s.Devices.Free(leaving)
}

// site is the node from the perspective of devices.
func (sv *solver) site(n *node) snapshot.DeviceNode {
	if n.site.Node != "" {
		return n.site
	}
	n.site = snapshot.DeviceNode{Node: n.src.Name, Labels: maps.Clone(n.src.Labels)}
	if n.site.Labels == nil {
		n.site.Labels = map[string]string{}
	}
	for _, key := range sv.s.Devices.Labels() {
		if v, ok := n.Labels.Get(sv.s.Labels.Normalize(key)).Single(); ok {
			n.site.Labels[key] = v
		}
	}
	if n.src.Claim != "" && !n.src.Initialized {
		n.site.Type = sv.typeOf(n).WithDevicesOf(n.src.DRADrivers)
	}
	return n.site
}

// typeOf is the type that a node in flight was launched as, without devices if the type is unknown.
func (sv *solver) typeOf(n *node) *catalog.InstanceType {
	names := n.Labels.Get(corev1.LabelInstanceTypeStable)
	for _, p := range sv.s.Pools {
		if p.NodePool.Name != n.src.Pool || names.Operator() != corev1.NodeSelectorOpIn {
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

// hasDevices reports whether a node has devices for the pods of the class, and if not, whether that is final in this
// run.
func (sv *solver) hasDevices(n *node, c *class) (ok, never bool) {
	if len(c.Devices()) == 0 {
		return true, false
	}
	_, err := sv.devices.Find(c.Devices(), sv.site(n))
	return err == nil, !c.sharesDevices()
}

// allocateNodeDevices allocates devices for a pod on the node. A pod that keeps its node in any case may get none.
func (sv *solver) allocateNodeDevices(n *node, c *class, pod *corev1.Pod) {
	if len(c.Devices()) == 0 {
		return
	}
	if g, err := sv.devices.Find(c.Devices(), sv.site(n)); err == nil {
		sv.devices = sv.devices.With(c.Devices(), g)
		n.devices = append(n.devices, DeviceUse{pod, c.Devices(), []snapshot.DeviceAllocation{g}})
	}
}

// allocateDevices tries each option of devices for the pod, until the bin has a type with one.
func (sv *solver) allocateDevices(b *bin, a binRequest, cands *nodepool.Candidates) (growth, *refusal) {
	if len(a.c.Devices()) == 0 {
		return sv.chooseDomains(b, a, cands)
	}
	options, _ := sv.deviceOptions(b, a.c, cands)
	last := &refusal{code: Devices, final: !a.c.sharesDevices()}
	for _, w := range options {
		with := cands.NarrowBy(w.reqs)
		if with == nil {
			continue
		}
		g, why := sv.chooseDomains(b, a, with)
		if why == nil {
			g.devices = &w
			return g, nil
		}
		last = &refusal{code: why.code}
	}
	return growth{}, last
}

// sharesDevices reports whether other pods may use claims of the pods: then these may get devices through them later.
// Devices that are taken stay taken.
func (c *class) sharesDevices() bool {
	return slices.ContainsFunc(c.Devices(), func(d snapshot.DeviceClaim) bool { return !d.Own })
}

// withFirstDevices are the candidates of the first device option for a pod of the class in the bin; nil if there is
// none.
func (sv *solver) withFirstDevices(b *bin, c *class, cands *nodepool.Candidates) *nodepool.Candidates {
	if len(c.Devices()) == 0 {
		return cands
	}
	options, _ := sv.deviceOptions(b, c, cands)
	for _, w := range options {
		if with := cands.NarrowBy(w.reqs); with != nil {
			return with
		}
	}
	return nil
}

// deviceOption is a set of devices for a pod on a new node: the same devices outside of the node, whichever type it
// becomes.
type deviceOption struct {
	// reqs are the labels that the node must have.
	reqs   requirement.Set
	claims []snapshot.DeviceClaim
	grants []snapshot.DeviceAllocation
	// drivers are those of devices that come with the node, by type name.
	drivers map[string][]string
}

// deviceOptions are the sets of devices that a pod can get in a bin, those on cheaper nodes first. The error is the
// reason why there are none.
func (sv *solver) deviceOptions(b *bin, c *class, cands *nodepool.Candidates) ([]deviceOption, error) {
	var out []deviceOption
	var types [][]string
	var none, nearest error
	for _, look := range cands.DeviceViews(sv.s.Devices.Labels()) {
		site := snapshot.DeviceNode{Node: topology.HostName(b.index), Labels: look.Labels, Type: look.Typ}
		g, err := sv.devices.Find(c.Devices(), site)
		if err != nil {
			none = cmp.Or(none, err)
			if look.Typ != nil { // more specific than that other types have no devices at all
				nearest = cmp.Or(nearest, err)
			}
			continue
		}
		i := slices.IndexFunc(out, func(w deviceOption) bool { return w.grants[0].Outside == g.Outside })
		if i < 0 {
			asks, err := sv.s.Labels.FromExpressions(g.Reach)
			if err != nil {
				none = cmp.Or(none, err)
				continue
			}
			i, out, types = len(
				out,
			), append(
				out,
				deviceOption{reqs: asks, claims: c.Devices(), drivers: map[string][]string{}},
			), append(
				types,
				nil,
			)
		}
		w := &out[i]
		w.grants, types[i] = append(w.grants, g), append(types[i], look.Types...)
		for _, name := range look.Types {
			if len(g.Drivers) > 0 {
				w.drivers[name] = g.Drivers
			}
		}
	}
	for i := range out {
		if len(out[i].drivers) > 0 {
			out[i].reqs = out[i].reqs.With(requirement.In(corev1.LabelInstanceTypeStable, types[i]...))
		}
	}
	return out, cmp.Or(nearest, none)
}

// allocateBinDevices allocates the devices of a growth.
func (sv *solver) allocateBinDevices(b *bin, pod *corev1.Pod, g growth) {
	if g.devices == nil {
		return
	}
	sv.devices = sv.devices.With(g.devices.claims, g.devices.grants...)
	b.deviceOptions = append(b.deviceOptions, g.devices)
	b.devices = append(b.devices, DeviceUse{pod, g.devices.claims, g.devices.grants})
}

// drivers are the DRA drivers with devices for the bin's pods on every type that the bin may become, sorted.
func (b *bin) drivers(types []*catalog.InstanceType) []string {
	if len(b.deviceOptions) == 0 {
		return nil
	}
	count := map[string]int{}
	for _, it := range types {
		seen := map[string]bool{}
		for _, w := range b.deviceOptions {
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
