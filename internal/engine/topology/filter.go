package topology

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// filter decides which nodes a spread constraint counts (nodeAffinityPolicy and nodeTaintsPolicy). A nil filter counts
// all.
type filter struct {
	node        requirement.Pod
	affinity    bool
	tolerations []corev1.Toleration
	taints      bool
	// present are labels that nodes must have, too: the keys of the pod's other constraints.
	present []string
	// onOutcomes caches whether all of the outcomes have the labels that node selects.
	onOutcomes map[Outcomes]bool
}

// admitsTaints reports whether a node with these taints counts. As in kube-scheduler, only taints that keep pods off
// exclude a node: those with effect PreferNoSchedule do not.
func (f *filter) admitsTaints(taints []corev1.Taint) bool {
	if f == nil || !f.taints {
		return true
	}
	_, found := snapshot.UntoleratedHard(f.tolerations, taints)
	return !found
}

// admits reports whether a node with these labels counts; undefined are labels that it may still get.
func (f *filter) admits(node requirement.Set, taints []corev1.Taint, undefined map[string]bool) bool {
	if !f.admitsTaints(taints) || !f.hasKeys(node, undefined) {
		return false
	}
	if f == nil || !f.affinity {
		return true
	}
	if !node.Compatible(f.node.Selector, undefined) {
		return false
	}
	return len(f.node.Required) == 0 ||
		slices.ContainsFunc(f.node.Required, func(t requirement.Set) bool { return node.Compatible(t, undefined) })
}

// hasKeys reports whether the node has the keys of the pod's other constraints, or may have them.
func (f *filter) hasKeys(node requirement.Set, undefined map[string]bool) bool {
	return f == nil || !slices.ContainsFunc(f.present, func(key string) bool {
		return !node.Defines(key) && !undefined[key] || node.Get(key).Operator() == corev1.NodeSelectorOpDoesNotExist
	})
}

// certain reports whether the planned node counts whatever it is launched as, as far as affinity is concerned.
func (f *filter) certain(at *NewNode) bool {
	if f == nil || !f.affinity {
		return true
	}
	if f.anyTerm(func(set requirement.Set) bool {
		return !slices.ContainsFunc(set.All(), func(r requirement.Requirement) bool {
			have := at.Labels.Get(r.Key())
			return !at.Labels.Defines(r.Key()) || !have.Equal(have.Intersect(r.WithMinValues(0)))
		})
	}) {
		return true // the common case
	}
	if at.Outcomes == nil {
		return false
	}
	known, ok := f.onOutcomes[at.Outcomes]
	if !ok {
		if f.onOutcomes == nil {
			f.onOutcomes = map[Outcomes]bool{}
		}
		known = at.Outcomes.AllSatisfy(f.node)
		f.onOutcomes[at.Outcomes] = known
	}
	return known
}

// key is equal for filters that count the same nodes.
func (f *filter) key() string {
	out := ""
	if f.affinity {
		out = "selects " + f.node.Selector.Key() // String abbreviates long lists of values
		for _, t := range f.node.Required {
			out += "|" + t.Key()
		}
	}
	for _, key := range f.present {
		out += "|" + key
	}
	if f.taints {
		if t, err := json.Marshal(f.tolerations); err == nil {
			out += string(t)
		}
	}
	return out
}

// labelKeys are the labels by which the filter distinguishes nodes .
func (f *filter) labelKeys() []string {
	if f == nil {
		return nil
	}
	out := slices.Clone(f.present)
	if !f.affinity {
		return out
	}
	out = append(out, f.node.Selector.Keys()...)
	for _, term := range f.node.Required {
		out = append(out, term.Keys()...)
	}
	return out
}

// reaches reports whether a pod may run in a domain by any of its alternatives, considering only the label of the
// domain.
func reaches(pod requirement.Pod, key, domain string) bool {
	return pod.Selector.Get(key).Has(domain) &&
		(len(pod.Required) == 0 || slices.ContainsFunc(pod.Required, func(t requirement.Set) bool { return t.Get(key).Has(domain) }))
}
