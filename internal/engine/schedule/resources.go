package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
)

// axes are the resources of one Solve, in a fixed order, so that amounts are vectors.
type axes struct {
	names []corev1.ResourceName
	index map[corev1.ResourceName]int
}

// vec is an amount per axis in the units of package quantity: millicores for cpu, whole units for everything else.
// Amounts are not negative, except what is left of a room or a limit. Sums saturate at the largest number. Amounts that
// fit into a room can be added without saturation.
type vec []int64

func newAxes(lists ...corev1.ResourceList) axes {
	seen := map[corev1.ResourceName]bool{}
	for _, l := range lists {
		for name := range l {
			seen[name] = true
		}
	}
	a := axes{names: slices.SortedFunc(maps.Keys(seen), func(x, y corev1.ResourceName) int { return cmp.Compare(x, y) })}
	a.index = make(map[corev1.ResourceName]int, len(a.names))
	for i, n := range a.names {
		a.index[n] = i
	}
	return a
}

// manyAxes is the number of resources up to which each named resource gets an axis. Every axis costs time and memory
// for each instance type and node, and a pod can name thousands. Real clusters have about ten, so 64 leaves ordinary
// snapshots as they are.
const manyAxes = 64

// boundedAxes are the axes of what the lists request. Of more than manyAxes, it drops resources that no node and no
// instance type has, and marks classes that request some of these: nothing holds them.
func (sv *solver) boundedAxes(lists []corev1.ResourceList) axes {
	all := newAxes(lists...)
	if len(all.names) <= manyAxes {
		return all
	}
	had := corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}}
	maps.Copy(had, lists[len(lists)-1]) // CSI drivers with limits; nodes do not list them as resources
	for i := range sv.s.Nodes {
		maps.Copy(had, sv.s.Nodes[i].Allocatable)
	}
	for i := range sv.s.Pools {
		for _, it := range sv.s.Pools[i].InstanceTypes {
			maps.Copy(had, it.Allocatable)
		}
	}
	for _, d := range sv.daemons { // one missing resource excludes a DaemonSet as well as many do
		for _, name := range slices.Sorted(maps.Keys(d.requests)) {
			if q := d.requests[name]; !q.IsZero() && isZero(had, name) {
				had[name] = q
				break
			}
		}
	}
	for _, c := range sv.allClasses {
		for name, q := range c.resourceList {
			if _, known := had[name]; !known && !q.IsZero() {
				c.unknownResources = append(c.unknownResources, name)
			}
		}
		slices.Sort(c.unknownResources)
	}
	unknown := func(name corev1.ResourceName) bool {
		_, known := had[name]
		return !known
	}
	names := corev1.ResourceList{}
	for _, name := range slices.DeleteFunc(slices.Clone(all.names), unknown) {
		names[name] = resource.Quantity{}
	}
	return newAxes(names)
}

// vec reads the amounts of l. Resources that l lacks are zero; resources without an axis are dropped.
func (a axes) vec(l corev1.ResourceList) vec {
	v := make(vec, len(a.names))
	a.read(l, v)
	return v
}

// read is vec into a zeroed v.
func (a axes) read(l corev1.ResourceList, v vec) {
	for name, q := range l {
		if i, ok := a.index[name]; ok {
			v[i] = quantity.Of(name, q)
		}
	}
}

func (v vec) plus(o vec) vec {
	out := make(vec, len(v))
	for i := range v {
		out[i] = quantity.Add(v[i], o[i])
	}
	return out
}

func (v vec) minus(o vec) vec {
	out := make(vec, len(v))
	for i := range v {
		out[i] = quantity.Sub(v[i], o[i])
	}
	return out
}

// fits reports whether a room holds v. A room that is overdrawn on any axis holds nothing.
func (v vec) fits(room vec) bool {
	for i, x := range v {
		if room[i] < 0 || x > room[i] {
			return false
		}
	}
	return true
}

// fitsBeside is fits for v on top of used.
//
// Invariant: used fits in room wherever room is not negative, so the subtraction cannot wrap around. No allocation:
// this is the innermost check of the search.
func (v vec) fitsBeside(used, room vec) bool {
	used, room = used[:len(v)], room[:len(v)]
	for i, x := range v {
		if room[i] < 0 || x > room[i]-used[i] {
			return false
		}
	}
	return true
}

// withinSum is within for a limit of a + b.
func (v vec) withinSum(a, b vec) bool {
	for i, x := range v {
		if x-b[i] > a[i] {
			return false
		}
	}
	return true
}

// within is fits for limits: an overdrawn limit refuses only resources that it counts.
func (v vec) within(limit vec) bool {
	for i, x := range v {
		if x > limit[i] {
			return false
		}
	}
	return true
}

func (v vec) max(o vec) vec {
	out := slices.Clone(v)
	for i, x := range o {
		out[i] = max(out[i], x)
	}
	return out
}

// hostPort is a port of the node that a container reserves.
type hostPort struct {
	ip       string
	port     int32
	protocol corev1.Protocol
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var out []hostPort
	add := func(ports []corev1.ContainerPort) {
		for _, p := range ports {
			if p.HostPort == 0 {
				continue
			}
			hp := hostPort{ip: p.HostIP, port: p.HostPort, protocol: p.Protocol}
			if hp.ip == "" {
				hp.ip = "0.0.0.0"
			}
			if hp.protocol == "" {
				hp.protocol = corev1.ProtocolTCP
			}
			out = append(out, hp)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c.Ports) // a sidecar runs as long as the pod
		}
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Ports)
	}
	return out
}

func (p hostPort) anywhere() bool { return p.ip == "0.0.0.0" || p.ip == "::" }

func (p hostPort) conflicts(o hostPort) bool {
	return p.port == o.port && p.protocol == o.protocol && (p.ip == o.ip || p.anywhere() || o.anywhere())
}

// manyPorts is the number of host ports from which conflicts are found by port number instead of pair by pair.
const manyPorts = 16

func (k *constraintClass) setPorts(ports []hostPort) {
	k.ports, k.portsByNumber = ports, nil
	if len(ports) >= manyPorts {
		k.portsByNumber = map[int32][]hostPort{}
		for _, p := range ports {
			k.portsByNumber[p.port] = append(k.portsByNumber[p.port], p)
		}
	}
}

// clashes reports whether any port of the class is taken.
func (k *constraintClass) clashes(taken []hostPort) bool {
	if k.portsByNumber == nil {
		return portsConflict(k.ports, taken)
	}
	return slices.ContainsFunc(taken, func(t hostPort) bool { return slices.ContainsFunc(k.portsByNumber[t.port], t.conflicts) })
}

func portsConflict(a, b []hostPort) bool {
	for _, x := range a {
		if slices.ContainsFunc(b, x.conflicts) {
			return true
		}
	}
	return false
}

// bitset is a set of small integers that grows as needed.
type bitset []uint64

func (b bitset) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func (b *bitset) add(i int) {
	for i/64 >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}
