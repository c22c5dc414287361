package podreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// lowered is a request that is lowered.
type lowered struct {
	name corev1.ResourceName
	to   resource.Quantity
	// left is the share of the request that is left.
	left float64
}

// maxSizes limits how many instance types are tried as the size to lower requests to.
const maxSizes = 4

// sizes proposes to correct the names of unknown resources, and to lower requests to what an instance type offers.
func (g *generator) sizes() {
	if !g.hasCode("Resources") {
		return
	}
	g.correctResources()
	for _, l := range g.lowerings(snapshot.Requests(g.pod), g.daemonRequests()) {
		var patch []Operation
		words := ""
		for _, one := range l {
			ops, text := lower(g.pod, one)
			patch, words = append(patch, ops...), words+text
		}
		if len(patch) > 0 {
			g.add(fmt.Sprintf("In %s, lower the request%s.", g.workload, words[1:]), givesUp, g.editPod(patch...))
		}
	}
}

// lowerings are the ways to lower requests so that an instance type has room, best first: fewest resources, then the largest
// share of the requests left.
func (g *generator) lowerings(requests, beside corev1.ResourceList) [][]lowered {
	var all [][]lowered
	seen := map[*catalog.InstanceType]bool{}
	for i := range g.lab.base.Pools {
		for _, t := range g.lab.base.Pools[i].InstanceTypes {
			if seen[t] {
				continue
			}
			seen[t] = true
			if l := lowering(requests, beside, t); len(l) > 0 {
				all = append(all, l)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b []lowered) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(least(b), least(a)))
	})
	out := slices.CompactFunc(all, func(a, b []lowered) bool {
		return slices.EqualFunc(a, b, func(x, y lowered) bool { return x.name == y.name && x.to.Cmp(y.to) == 0 })
	})
	return out[:min(len(out), maxSizes)]
}

func least(l []lowered) float64 {
	out := 1.0
	for _, one := range l {
		out = min(out, one.left)
	}
	return out
}

// lowering returns what must be lowered for an instance type; nil if nothing, or if nothing would be left.
func lowering(requests, beside corev1.ResourceList, t *catalog.InstanceType) []lowered {
	var out []lowered
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		want, room := requests[name], t.Allocatable[name].DeepCopy()
		if name == corev1.ResourcePods {
			continue
		}
		room.Sub(beside[name])
		if want.Cmp(room) <= 0 {
			continue
		}
		to := rounded(name, room)
		if to.Sign() <= 0 {
			return nil
		}
		out = append(out, lowered{name, to, to.AsApproximateFloat64() / want.AsApproximateFloat64()})
	}
	return out
}

// rounded is an amount that people would write: CPU in steps of 10m, memory in steps of 1Mi.
func rounded(name corev1.ResourceName, q resource.Quantity) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(q.MilliValue()/10*10, resource.DecimalSI)
	}
	if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
		return *resource.NewQuantity(q.Value()>>20<<20, resource.BinarySI)
	}
	return *resource.NewQuantity(q.Value(), resource.DecimalSI)
}

// lower lowers the request of the container that requests most of a resource. Limits of extended resources go with it, since
// they must be equal.
func lower(pod *corev1.Pod, l lowered) (patch []Operation, words string) {
	most, total := -1, resource.Quantity{}
	for i := range pod.Spec.Containers {
		q := pod.Spec.Containers[i].Resources.Requests[l.name]
		total.Add(q)
		if most < 0 || q.Cmp(pod.Spec.Containers[most].Resources.Requests[l.name]) > 0 {
			most = i
		}
	}
	if most < 0 {
		return nil, ""
	}
	c := &pod.Spec.Containers[most]
	old, to := c.Resources.Requests[l.name], l.to.DeepCopy()
	to.Add(old)
	to.Sub(total)
	if to.Sign() <= 0 || old.IsZero() {
		return nil, ""
	}
	to = rounded(l.name, to)
	patch = []Operation{{Op: "replace", Path: pointer("spec", "containers", most, "resources", "requests", l.name), Value: to.String()}}
	if limit, ok := c.Resources.Limits[l.name]; ok && strings.Contains(string(l.name), "/") && limit.Cmp(to) != 0 {
		path := pointer("spec", "containers", most, "resources", "limits", l.name)
		patch = append(patch, Operation{Op: "replace", Path: path, Value: to.String()})
	}
	return patch, fmt.Sprintf(", %s of container %s from %s to %s", l.name, c.Name, old.String(), to.String())
}

// daemonRequests returns what all DaemonSets together request of a node.
func (g *generator) daemonRequests() corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := range g.lab.base.DaemonSets {
		for name, q := range snapshot.DaemonRequests(g.lab.base.DaemonSets[i].Pod) {
			sum := out[name]
			sum.Add(q)
			out[name] = sum
		}
	}
	return out
}

// correctResources corrects the names of resources that nothing has.
func (g *generator) correctResources() {
	known := map[string]bool{}
	for i := range g.lab.base.Pools {
		for _, t := range g.lab.base.Pools[i].InstanceTypes {
			for name := range t.Allocatable {
				known[string(name)] = true
			}
		}
	}
	for i := range g.pod.Spec.Containers {
		r := &g.pod.Spec.Containers[i].Resources
		for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
			near := nearest(string(name), slices.Sorted(maps.Keys(known)))
			if known[string(name)] || near == "" {
				continue
			}
			q := r.Requests[name]
			base := pointer("spec", "containers", i, "resources")
			patch := []Operation{
				{Op: "remove", Path: base + pointer("requests", name)}, {Op: "add", Path: base + pointer("requests", near), Value: q.String()},
			}
			if _, ok := r.Limits[name]; ok {
				patch = append(patch, Operation{Op: "remove", Path: base + pointer("limits", name)},
					Operation{Op: "add", Path: base + pointer("limits", near), Value: q.String()})
			}
			g.add(fmt.Sprintf("In %s, correct the resource %s to %s.", g.workload, name, near), corrects,
				renamed(g.editPod(patch...), g.workload.prefix+base+"/requests"))
		}
	}
}

// daemons proposes to lower the requests of the DaemonSet that takes most of a node, if the pod fits without it.
func (g *generator) daemons() {
	if !g.hasCode("Resources") && !g.hasCode("HostPort") {
		return
	}
	requests, all := snapshot.Requests(g.pod), g.daemonRequests()
	for i := range g.lab.base.DaemonSets {
		set := &g.lab.base.DaemonSets[i]
		own := snapshot.DaemonRequests(set.Pod)
		beside := all.DeepCopy()
		for name, q := range own {
			sum := beside[name]
			sum.Sub(q)
			sum.Add(requests[name])
			beside[name] = sum
		}
		for _, l := range g.lowerings(own, beside) {
			g.lowerDaemon(i, l)
		}
	}
}

// lowerDaemon proposes to lower requests of a DaemonSet.
func (g *generator) lowerDaemon(i int, l []lowered) {
	set := &g.lab.base.DaemonSets[i]
	var patch []Operation
	words := ""
	for _, one := range l {
		ops, text := lower(set.Pod, one)
		patch, words = append(patch, ops...), words+text
	}
	if len(patch) == 0 {
		return
	}
	o := Object{"DaemonSet", set.Namespace, set.Name}
	own := prefixPatch("/spec/template", patch)
	e := edit{Edit: Edit{
		Object: o, Action: Patch, Fields: changes(set.Pod, patch, "/spec/template"), Patch: own, Command: patchCommand(o, own),
	}}
	e.apply = func(t *trial) bool {
		changed, err := patched(t.DaemonSets[i].Pod, patch)
		if err != nil {
			return false
		}
		t.DaemonSets[i].Pod = changed
		return true
	}
	g.add(fmt.Sprintf("In %s, lower the request%s.", o, words[1:]), shared, e)
}
