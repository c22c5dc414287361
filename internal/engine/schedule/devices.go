package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// wantsDevices reports whether a pod requests devices by dynamic resource allocation (DRA). While the snapshot has no
// information about devices, such a pod is not planned, and such a daemon is not expected on new nodes.
func wantsDevices(spec *corev1.PodSpec) bool {
	claims := func(c corev1.Container) bool { return len(c.Resources.Claims) > 0 }
	return len(spec.ResourceClaims) > 0 || slices.ContainsFunc(spec.Containers, claims) || slices.ContainsFunc(spec.InitContainers, claims)
}

// findClaims looks up the pod's resource claims, or returns why the pod must wait.
func (sv *solver) findClaims(pod *corev1.Pod) ([]snapshot.DeviceClaim, []Reason) {
	if !wantsDevices(&pod.Spec) {
		return nil, nil
	}
	if sv.s.Devices == nil {
		return nil, []Reason{
			{Code: DeviceClaims, Message: "the pod has resource claims (dynamic resource allocation), for which no nodes are planned"},
		}
	}
	claims, err := sv.s.Devices.Claims(pod)
	if err != nil {
		return nil, []Reason{{Code: DeviceClaims, Message: err.Error()}}
	}
	return claims, nil
}

// findFreeDevices finds the devices that a run can allocate. Pods to be scheduled, and those on removed nodes, free
// theirs.
func (sv *solver) findFreeDevices(queue []*queuedPod) {
	sv.devices = nil
	if !slices.ContainsFunc(queue, func(q *queuedPod) bool { return len(q.class.devices) > 0 }) {
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
		n.site.Type = sv.typeOf(n)
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
	if len(c.devices) == 0 {
		return true, false
	}
	_, err := sv.devices.Find(c.devices, sv.site(n))
	return err == nil, !c.sharesDevices()
}

// allocateNodeDevices allocates devices for a pod on the node. A pod that keeps its node in any case may get none.
func (sv *solver) allocateNodeDevices(n *node, c *class, pod *corev1.Pod) {
	if len(c.devices) == 0 {
		return
	}
	if g, err := sv.devices.Find(c.devices, sv.site(n)); err == nil {
		sv.devices = sv.devices.With(c.devices, g)
		n.devices = append(n.devices, DeviceUse{pod, c.devices, []snapshot.DeviceAllocation{g}})
	}
}

// allocateDevices tries each option of devices for the pod, until the bin has a type with one.
func (sv *solver) allocateDevices(b *bin, a binRequest, cands *candidates) (growth, *refusal) {
	if len(a.c.devices) == 0 {
		return sv.chooseDomains(b, a, cands)
	}
	options, _ := sv.deviceOptions(b, a.c, cands)
	last := &refusal{code: Devices, final: !a.c.sharesDevices()}
	for _, w := range options {
		with := sv.withDevices(cands, w)
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
	return slices.ContainsFunc(c.devices, func(d snapshot.DeviceClaim) bool { return !d.Own })
}

// withDevices are the candidates that can use the devices of an option; nil if there are none.
func (sv *solver) withDevices(cands *candidates, w deviceOption) *candidates {
	if !cands.reqs.Compatible(w.reqs, sv.s.Labels.WellKnown) {
		return nil
	}
	if reqs := cands.reqs.Intersect(sv.claimRequirements(cands, w.reqs)); !reqs.Equal(cands.reqs) {
		return sv.candidates(cands.t, reqs)
	}
	return cands
}

// withFirstDevices are the candidates of the first device option for a pod of the class in the bin; nil if there is
// none.
func (sv *solver) withFirstDevices(b *bin, c *class, cands *candidates) *candidates {
	if len(c.devices) == 0 {
		return cands
	}
	options, _ := sv.deviceOptions(b, c, cands)
	for _, w := range options {
		if with := sv.withDevices(cands, w); with != nil {
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
func (sv *solver) deviceOptions(b *bin, c *class, cands *candidates) ([]deviceOption, error) {
	var out []deviceOption
	var types [][]string
	var none, nearest error
	for _, look := range sv.deviceViews(cands) {
		site := snapshot.DeviceNode{Node: topology.HostName(b.index), Labels: look.labels, Type: look.typ}
		g, err := sv.devices.Find(c.devices, site)
		if err != nil {
			none = cmp.Or(none, err)
			if look.typ != nil { // more specific than that other types have no devices at all
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
				deviceOption{reqs: asks, claims: c.devices, drivers: map[string][]string{}},
			), append(
				types,
				nil,
			)
		}
		w := &out[i]
		w.grants, types[i] = append(w.grants, g), append(types[i], look.types...)
		for _, name := range look.types {
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

// deviceView is a set of possible new nodes that devices cannot tell apart.
type deviceView struct {
	key    string
	labels map[string]string
	// typ is nil if none of types comes with devices; otherwise it is the only one.
	typ   *catalog.InstanceType
	types []string
}

// maxDeviceViews bounds how many combinations of label values are told apart in one offering. Devices select by zone
// and a few more labels, so an offering has one or two; the bound protects against selectors over many-valued labels.
const maxDeviceViews = 64

// deviceViews are the different nodes that candidates can become, from the perspective of devices, cheapest first.
func (sv *solver) deviceViews(cands *candidates) []deviceView {
	if cands.deviceViews != nil {
		return cands.deviceViews
	}
	keys := sv.s.Devices.Labels()
	at := map[string]int{}
	for _, cand := range cands.list {
		it := cands.t.types[cand.t].InstanceType
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if !o.Available || !cands.reqs.Overlaps(o.Requirements) {
				continue
			}
			for _, l := range sv.labelCombinations(cands.reqs, it, o.Requirements, keys) {
				if len(it.DeviceSlices) > 0 {
					l.typ = it
					l.key = it.Name + "/" + l.key
				}
				k, known := at[l.key]
				if !known {
					k = len(cands.deviceViews)
					at[l.key] = k
					cands.deviceViews = append(cands.deviceViews, l)
				}
				if types := &cands.deviceViews[k].types; !slices.Contains(*types, it.Name) {
					*types = append(*types, it.Name)
				}
			}
		}
	}
	return cands.deviceViews
}

// labelCombinations lists the combinations of values that the labels can have on a node of an offering.
func (sv *solver) labelCombinations(
	reqs requirement.Set,
	it *catalog.InstanceType,
	offering requirement.Set,
	keys []string,
) []deviceView {
	out := []deviceView{{labels: map[string]string{}}}
	for _, raw := range keys {
		key := sv.s.Labels.Normalize(raw)
		if key == corev1.LabelHostname {
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
		var next []deviceView
		for _, l := range out {
			for _, v := range r.Values() {
				labels := maps.Clone(l.labels)
				labels[raw] = v
				next = append(next, deviceView{key: l.key + raw + "=" + v + ",", labels: labels})
			}
		}
		out = next[:min(len(next), maxDeviceViews)]
	}
	return out
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

// describeDevices is the reason why no new node of the pool has devices for the pods.
func (e *explainer) describeDevices(q *probeCase, l waiver) string {
	t := e.template(q.template, l)
	cands, why := e.sv.narrow(e.sv.candidates(t, t.reqs), e.sv.internSet(q.requirements(l)))
	if why != nil {
		return "no instance type of the pool has devices for its resource claims"
	}
	_, err := e.sv.deviceOptions(e.sv.newBin(t), q.class, cands)
	if err == nil {
		names := make([]string, len(q.class.devices))
		for i, d := range q.class.devices {
			names[i] = fmt.Sprintf("%q", d.Name)
		}
		return "the devices that are free for resource claim " + strings.Join(names, ", ") + " cannot be used on nodes of the pool"
	}
	if !slices.ContainsFunc(t.types, func(ti typeInfo) bool { return len(ti.DeviceSlices) > 0 }) {
		return err.Error() + ", and it is not known of any instance type of the pool that it comes with devices"
	}
	return err.Error()
}
