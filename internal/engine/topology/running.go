package topology

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// manyGroups is the number of groups from which running pods are found by their labels instead of one by one. For fewer
// groups, building the index costs more than it saves.
const manyGroups = 16

// runningPods are the pods on nodes that count for topology, indexed by their labels.
type runningPods struct {
	all []runningPod
	// byLabels are the pods that share one map of labels, as those of an owner do in a cache; byValue and byKey find them by their labels.
	// An entry of an index for each label of each pod would take 60 MB for 100,000 pods.
	byLabels [][]runningPod
	byValue  map[string]map[string][]int32
	byKey    map[string][]int32
}

type runningPod struct {
	pod  *corev1.Pod
	node *Node
}

// countRunning counts the running pods for a new group.
func (r *Registry) countRunning(g *Group) {
	r.steps += len(r.nodes)
	domains := make(map[*Node]string, len(r.nodes))
	for _, n := range r.nodes {
		if domain, ok := n.Domain(g.key); ok && r.Counts(g, n) {
			domains[n] = domain
		}
	}
	if len(domains) == 0 {
		return
	}
	note := func(list []runningPod) {
		r.steps += len(list)
		for _, c := range list {
			if domain, ok := domains[c.node]; ok && g.selects(c.pod) && r.CountsPod(g, c.node, c.pod) {
				g.counts[domain]++
				g.note(c.pod, c.node)
			}
		}
	}
	pods := r.runningPods()
	if len(r.groups) < manyGroups || !g.indexed() {
		note(pods.all)
		return
	}
	need := selectorIndex{}
	need.add(0, g.selector)
	if pods.byValue == nil {
		pods.index()
	}
	switch {
	case len(need.any) > 0:
		note(pods.all)
	default:
		for key, values := range need.byValue {
			for value := range values {
				for _, i := range pods.byValue[key][value] {
					note(pods.byLabels[i])
				}
			}
		}
		for key := range need.byKey {
			for _, i := range pods.byKey[key] {
				note(pods.byLabels[i])
			}
		}
	}
}

// runningPods are the pods on nodes that are not being placed.
func (r *Registry) runningPods() *runningPods {
	if r.running == nil {
		most := 0
		for _, n := range r.nodes {
			most += len(n.Pods)
		}
		r.running = &runningPods{all: make([]runningPod, 0, most)}
		for _, n := range r.nodes {
			for _, pod := range n.Pods {
				if !r.pending[pod.UID] && !snapshot.Terminal(pod) {
					r.running.all = append(r.running.all, runningPod{pod, n})
				}
			}
		}
	}
	return r.running
}

func (p *runningPods) index() {
	p.byValue, p.byKey = map[string]map[string][]int32{}, map[string][]int32{}
	known := map[uintptr]int32{}
	for _, c := range p.all {
		shared := reflect.ValueOf(c.pod.Labels).Pointer()
		i, found := known[shared]
		if !found {
			i = int32(len(p.byLabels))
			known[shared] = i
			p.byLabels = append(p.byLabels, nil)
			p.indexLabels(i, c.pod.Labels)
		}
		p.byLabels[i] = append(p.byLabels[i], c)
	}
}

func (p *runningPods) indexLabels(i int32, labels map[string]string) {
	for key, value := range labels {
		if p.byValue[key] == nil {
			p.byValue[key] = map[string][]int32{}
		}
		p.byValue[key][value] = append(p.byValue[key][value], i)
		p.byKey[key] = append(p.byKey[key], i)
	}
}

// fewTerms is the number of anti-affinity terms up to which finding the groups of a running pod costs less than to look
// for an equal pod's.
const fewTerms = 16

// declaredBy are the inverse groups of a running pod's required anti-affinity. They are cached for pods with many terms,
// which often have equals.
func (r *Registry) declaredBy(pod *corev1.Pod) []*Group {
	list := RequiredAntiAffinity(pod)
	if len(list) <= fewTerms {
		return r.Apart(Inverse, pod)
	}
	var key strings.Builder
	key.WriteString(pod.Namespace)
	for _, name := range slices.Sorted(maps.Keys(pod.Labels)) {
		key.WriteString("\x00" + name + "\x00" + pod.Labels[name])
	}
	for i := range list {
		term, err := list[i].Marshal()
		if err != nil {
			return r.Apart(Inverse, pod)
		}
		key.WriteByte(0)
		key.Write(term)
	}
	known, ok := r.declared[key.String()]
	if !ok {
		known = r.Apart(Inverse, pod)
		r.declared[key.String()] = known
	}
	return known
}
