package propertytest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Shrink removes from a world whatever it can while the world still fails.
func Shrink(s *snapshot.Snapshot, fails func(*snapshot.Snapshot) bool) *snapshot.Snapshot {
	for again := true; again; {
		again = false
		for _, smaller := range reductions(s) {
			if t := smaller(); t != nil && fails(t) {
				s, again = t, true
				break
			}
		}
	}
	return s
}

// smallers are the ways to take one thing from a world, large things first; nil where there is nothing to take.
func reductions(s *snapshot.Snapshot) []func() *snapshot.Snapshot {
	var out []func() *snapshot.Snapshot
	try := func(edit func(*snapshot.Snapshot)) {
		out = append(out, func() *snapshot.Snapshot {
			t := copyOf(s)
			edit(t)
			return t
		})
	}
	for i := range s.Pools {
		try(func(t *snapshot.Snapshot) { t.Pools = slices.Delete(t.Pools, i, i+1) })
	}
	for i := range s.Nodes {
		try(func(t *snapshot.Snapshot) { t.Nodes = slices.Delete(t.Nodes, i, i+1) })
	}
	for i := range s.Pods {
		try(func(t *snapshot.Snapshot) { t.Pods = slices.Delete(t.Pods, i, i+1) })
	}
	for i := range s.DaemonSets {
		try(func(t *snapshot.Snapshot) { t.DaemonSets = slices.Delete(t.DaemonSets, i, i+1) })
	}
	for i := range s.Pools {
		for k := range s.Pools[i].InstanceTypes {
			try(func(t *snapshot.Snapshot) { t.Pools[i].InstanceTypes = slices.Delete(t.Pools[i].InstanceTypes, k, k+1) })
		}
		for k := range s.Pools[i].NodePool.Spec.Template.Spec.Requirements {
			try(func(t *snapshot.Snapshot) {
				reqs := &t.Pools[i].NodePool.Spec.Template.Spec.Requirements
				*reqs = slices.Delete(*reqs, k, k+1)
			})
		}
		spec := s.Pools[i].NodePool.Spec
		if len(spec.Limits) > 0 {
			try(func(t *snapshot.Snapshot) { t.Pools[i].NodePool.Spec.Limits = nil })
		}
		if len(spec.Template.Spec.Taints) > 0 {
			try(func(t *snapshot.Snapshot) { t.Pools[i].NodePool.Spec.Template.Spec.Taints = nil })
		}
		if len(spec.Template.Labels) > 0 {
			try(func(t *snapshot.Snapshot) { t.Pools[i].NodePool.Spec.Template.Labels = nil })
		}
		if len(s.Pools[i].Used) > 0 {
			try(func(t *snapshot.Snapshot) { t.Pools[i].Used = nil })
		}
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			try(func(t *snapshot.Snapshot) { t.Nodes[i].Pods = slices.Delete(t.Nodes[i].Pods, k, k+1) })
		}
		if len(s.Nodes[i].Taints) > 0 {
			try(func(t *snapshot.Snapshot) { t.Nodes[i].Taints = nil })
		}
	}
	for i := range s.Pods {
		for _, e := range podReductions(s.Pods[i]) {
			try(func(t *snapshot.Snapshot) { e(t.Pods[i]) })
		}
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			for _, e := range podReductions(s.Nodes[i].Pods[k]) {
				try(func(t *snapshot.Snapshot) { e(t.Nodes[i].Pods[k]) })
			}
		}
	}
	return out
}

// simpler are the ways to take one thing from a pod.
func podReductions(p *corev1.Pod) []edit {
	var out []edit
	add := func(has bool, e edit) {
		if has {
			out = append(out, e)
		}
	}
	add(len(p.Spec.NodeSelector) > 0, func(p *corev1.Pod) { p.Spec.NodeSelector = nil })
	add(len(p.Spec.Tolerations) > 0, func(p *corev1.Pod) { p.Spec.Tolerations = nil })
	add(len(p.Spec.Volumes) > 0, func(p *corev1.Pod) { p.Spec.Volumes = p.Spec.Volumes[1:] })
	add(len(p.Spec.InitContainers) > 0, func(p *corev1.Pod) { p.Spec.InitContainers = nil })
	add(p.Spec.Resources != nil, func(p *corev1.Pod) { p.Spec.Resources = nil })
	add(len(p.Spec.Overhead) > 0, func(p *corev1.Pod) { p.Spec.Overhead = nil })
	add(p.Spec.Priority != nil, func(p *corev1.Pod) { p.Spec.Priority = nil })
	add(len(p.Spec.Containers[0].Ports) > 0, func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
	add(len(p.Spec.Containers[0].Resources.Requests) > 0, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil })
	for i := range p.Spec.TopologySpreadConstraints {
		add(true, func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = slices.Delete(p.Spec.TopologySpreadConstraints, i, i+1)
		})
	}
	if a := p.Spec.Affinity; a != nil {
		add(a.PodAffinity != nil, func(p *corev1.Pod) { p.Spec.Affinity.PodAffinity = nil })
		add(a.PodAntiAffinity != nil, func(p *corev1.Pod) { p.Spec.Affinity.PodAntiAffinity = nil })
		if n := a.NodeAffinity; n != nil {
			for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
				add(true, func(p *corev1.Pod) {
					list := &p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
					*list = slices.Delete(*list, i, i+1)
				})
			}
			add(n.RequiredDuringSchedulingIgnoredDuringExecution != nil, func(p *corev1.Pod) {
				p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			})
			if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil && len(r.NodeSelectorTerms) > 1 {
				for i := range r.NodeSelectorTerms {
					add(true, func(p *corev1.Pod) {
						list := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
						*list = slices.Delete(*list, i, i+1)
					})
				}
			}
		}
	}
	return out
}

// copyOf is deep where smallers edit. Pods that are both on a node and to be placed stay one object.
func copyOf(s *snapshot.Snapshot) *snapshot.Snapshot {
	t := *s
	known := map[*corev1.Pod]*corev1.Pod{}
	pods := func(list []*corev1.Pod) []*corev1.Pod {
		out := make([]*corev1.Pod, len(list))
		for i, p := range list {
			if known[p] == nil {
				known[p] = p.DeepCopy()
			}
			out[i] = known[p]
		}
		return out
	}
	t.Pods, t.Nodes, t.Pools, t.DaemonSets = pods(s.Pods), slices.Clone(s.Nodes), slices.Clone(s.Pools), slices.Clone(s.DaemonSets)
	for i := range t.Nodes {
		t.Nodes[i].Pods = pods(t.Nodes[i].Pods)
	}
	for i := range t.Pools {
		t.Pools[i].NodePool = t.Pools[i].NodePool.DeepCopy()
		t.Pools[i].InstanceTypes = slices.Clone(t.Pools[i].InstanceTypes)
	}
	return &t
}

// Show prints a world for people.
func Show(s *snapshot.Snapshot) string {
	var b strings.Builder
	write := func(what string, v any) {
		out, err := json.Marshal(v)
		if err != nil {
			out = []byte(err.Error())
		}
		fmt.Fprintf(&b, "%s\n%s\n", what, out)
	}
	fmt.Fprintf(&b, "settings %+v\n", s.Settings)
	types := map[*catalog.InstanceType]bool{}
	for i := range s.Pools {
		p := &s.Pools[i]
		write("pool "+p.NodePool.Name, p.NodePool.Spec)
		fmt.Fprintf(&b, "used %v\n", amounts(p.Used))
		for _, it := range p.InstanceTypes {
			if fmt.Fprintf(&b, "  %s\n", it.Name); types[it] {
				continue
			}
			types[it] = true
			fmt.Fprintf(&b, "    %v\n    %v\n", amounts(it.Allocatable), it.Requirements)
			for _, o := range it.Offerings {
				fmt.Fprintf(&b, "    %s %s %.4f %v\n", o.Zone, o.CapacityType, o.Price, o.Available)
			}
		}
	}
	for i := range s.DaemonSets {
		write("daemon "+s.DaemonSets[i].Name, s.DaemonSets[i].Pod.Spec)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		fmt.Fprintf(
			&b,
			"node %s of %q %v taints %v launched %v registered %v initialized %v deleting %v nominated %v %v volumes %v\n",
			n.Name,
			n.Claim,
			n.Labels,
			n.Taints,
			n.Launched,
			n.Registered,
			n.Initialized,
			n.Deleting,
			n.Nominated,
			amounts(n.Allocatable),
			n.VolumeLimits,
		)
		write("requirements", n.Requirements)
		for _, p := range n.Pods {
			write(
				fmt.Sprintf("  pod %s/%s %v %s terminating %v", p.Namespace, p.Name, p.Labels, p.Status.Phase, p.DeletionTimestamp != nil),
				p.Spec,
			)
		}
	}
	for _, p := range s.Pods {
		write(fmt.Sprintf("pending %s/%s %v", p.Namespace, p.Name, p.Labels), p.Spec)
	}
	return b.String()
}

func amounts(list corev1.ResourceList) string {
	out := ""
	for _, n := range []corev1.ResourceName{"cpu", "memory", "pods", "nodes", gpus} {
		if q, ok := list[n]; ok {
			out += fmt.Sprintf("%s %s ", n, q.String())
		}
	}
	return out
}

// Describe prints a plan for people.
func Describe(p schedule.Plan) string {
	out := ""
	for _, pl := range p.Placements {
		out += "on " + pl.Node + ":"
		for _, pod := range pl.Pods {
			out += " " + pod.Name
		}
		out += "\n"
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		out += fmt.Sprintf("launch %d of %s %v:", i, l.Pool.Name, l.Requirements)
		for _, it := range l.InstanceTypes {
			out += " " + it.Name
		}
		out += ":"
		for _, pod := range l.Pods {
			out += " " + pod.Name
		}
		out += "\n"
	}
	for _, r := range p.Rejected {
		out += "rejected " + r.Pod.Name + ":"
		for _, why := range r.Reasons {
			out += fmt.Sprintf(" %s %s: %s", why.NodePool, why.Code, wording.Reason(why))
		}
		out += "\n"
	}
	return out
}
