package schedule

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// manyGroups is the number of groups from which running pods are found by their labels instead of one by one. For fewer
// groups, building the index costs more than it saves.
const manyGroups = 16

// runningPods are the pods on nodes that count for topology, indexed by their labels.
type runningPods struct {
	byValue map[string]map[string][]runningPod
	byKey   map[string][]runningPod
	all     []runningPod
}

type runningPod struct {
	pod  *corev1.Pod
	node *node
}

// countRunningPods counts the running pods for a new group.
func (sv *solver) countRunningPods(g *group) {
	sv.steps += len(sv.nodes)
	domains := make(map[*node]string, len(sv.nodes))
	for _, n := range sv.nodes {
		if domain, ok := n.domain(g.key); ok && sv.counts(g, n) {
			domains[n] = domain
		}
	}
	if len(domains) == 0 {
		return
	}
	note := func(list []runningPod) {
		sv.steps += len(list)
		for _, c := range list {
			if domain, ok := domains[c.node]; ok && g.selects(c.pod) {
				g.counts[domain]++
			}
		}
	}
	r := sv.runningPods()
	if len(sv.groups) < manyGroups || len(g.parts) > 0 || g.claim != "" {
		note(r.all)
		return
	}
	need := selectorIndex{}
	need.add(0, g.selector)
	if r.byValue == nil {
		r.index()
	}
	switch {
	case len(need.any) > 0:
		note(r.all)
	default:
		for key, values := range need.byValue {
			for value := range values {
				note(r.byValue[key][value])
			}
		}
		for key := range need.byKey {
			note(r.byKey[key])
		}
	}
}

// runningPods are the pods on nodes that this Solve does not schedule.
func (sv *solver) runningPods() *runningPods {
	if sv.podIndex == nil {
		sv.podIndex = &runningPods{}
		for _, n := range sv.nodes {
			for _, pod := range n.src.Pods {
				if !sv.pending[pod.UID] && snapshot.Active(pod) {
					sv.podIndex.all = append(sv.podIndex.all, runningPod{pod, n})
				}
			}
		}
	}
	return sv.podIndex
}

func (r *runningPods) index() {
	r.byValue, r.byKey = map[string]map[string][]runningPod{}, map[string][]runningPod{}
	for _, c := range r.all {
		for key, value := range c.pod.Labels {
			if r.byValue[key] == nil {
				r.byValue[key] = map[string][]runningPod{}
			}
			r.byValue[key][value] = append(r.byValue[key][value], c)
			r.byKey[key] = append(r.byKey[key], c)
		}
	}
}

// declaredGroups are the inverse groups of a running pod's required anti-affinity. They are cached for pods with many
// terms, which often have equals.
func (sv *solver) declaredGroups(pod *corev1.Pod) []*group {
	list := requiredAnti(pod)
	if len(list) <= fewTerms {
		return sv.apartGroups(inverse, pod)
	}
	f := classifier{}
	f.addString(pod.Namespace)
	f.addMap(pod.Labels)
	for i := range list {
		if err := f.addMessage(&list[i]); err != nil {
			return sv.apartGroups(inverse, pod)
		}
	}
	known, ok := sv.declarations[string(f.key)]
	if !ok {
		known = sv.apartGroups(inverse, pod)
		sv.declarations[string(f.key)] = known
	}
	return known
}
