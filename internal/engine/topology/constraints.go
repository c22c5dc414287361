package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// MaxTerms is the number of required anti-affinity terms of a pod up to which each is a group of its own. More are
// joined per topology key, which is equivalent.
const MaxTerms = 64

func compileSelector(s *metav1.LabelSelector, pod *corev1.Pod, match, mismatch []string) labels.Selector {
	if s == nil {
		return labels.Nothing()
	}
	s = s.DeepCopy()
	for i, keys := range [][]string{match, mismatch} {
		for _, k := range keys {
			if v, ok := pod.Labels[k]; ok {
				op := [...]metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn}[i]
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
			}
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// unmerged are those of the keys with labels that the API server has not added to the selector. It adds them as they are when the pod is
// created, and kube-scheduler goes by the selector alone, also once a label is another: templates and buffers still need the keys.
func unmerged(s *metav1.LabelSelector, keys []string, op metav1.LabelSelectorOperator) []string {
	if s == nil || len(keys) == 0 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
			return e.Key == key && e.Operator == op && len(e.Values) == 1
		})
	})
}

// Affinity is the group of a term of the pod's affinity or anti-affinity.
func (r *Registry) Affinity(typ Type, pod *corev1.Pod, t *corev1.PodAffinityTerm) *Group {
	return r.intern(r.term(typ, pod, t), "")
}

// term is the term as a group that counts nothing yet.
func (r *Registry) term(typ Type, pod *corev1.Pod, t *corev1.PodAffinityTerm) *Group {
	g := &Group{
		typ: typ, key: r.labels.Normalize(t.TopologyKey),
		selector: compileSelector(t.LabelSelector, pod, unmerged(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn),
			unmerged(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)),
		namespaces: map[string]bool{}, lacking: r.labels.Lacking[t.TopologyKey],
	}
	for _, ns := range t.Namespaces {
		g.namespaces[ns] = true
	}
	switch {
	case t.NamespaceSelector != nil:
		selector := compileSelector(t.NamespaceSelector, pod, nil, nil)
		g.allNamespaces = selector.Empty()
		for ns, l := range r.namespaces {
			if selector.Matches(labels.Set(l)) {
				g.namespaces[ns] = true
			}
		}
	case len(t.Namespaces) == 0:
		g.namespaces[pod.Namespace] = true
	}
	return g
}

// Apart are the groups of the pod's required anti-affinity: AntiAffinity for the pod itself, Inverse for the pods that it
// keeps out.
func (r *Registry) Apart(typ Type, pod *corev1.Pod) []*Group {
	list := RequiredAntiAffinity(pod)
	if len(list) > MaxTerms {
		all := make([]*corev1.PodAffinityTerm, len(list))
		for i := range list {
			all[i] = &list[i]
		}
		return r.Joined(typ, pod, all)
	}
	var out []*Group
	for i := range list {
		out = append(out, r.Affinity(typ, pod, &list[i]))
	}
	return out
}

// RequiredAntiAffinity are the terms of the pod's required anti-affinity.
func RequiredAntiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// Joined makes one group per topology key, which counts the pods that any of the terms selects. Keeping away from those
// is equivalent to keeping away from each. Being near any of them is the best that one joined preference can express.
func (r *Registry) Joined(typ Type, pod *corev1.Pod, list []*corev1.PodAffinityTerm) []*Group {
	byKey := map[string][]*Group{}
	for _, t := range list {
		g := r.term(typ, pod, t)
		byKey[t.TopologyKey] = append(byKey[t.TopologyKey], g)
	}
	var out []*Group
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		parts := byKey[key]
		if len(parts) == 1 {
			out = append(out, r.intern(parts[0], ""))
			continue
		}
		g := &Group{
			typ: typ, key: parts[0].key, selector: labels.Nothing(), namespaces: map[string]bool{}, parts: parts, lacking: parts[0].lacking,
		}
		var id strings.Builder
		for i, part := range parts {
			fmt.Fprintf(&id, "|%v%v%s", part.allNamespaces, slices.Sorted(maps.Keys(part.namespaces)), part.selector)
			g.lookup.add(i, part.selector)
		}
		out = append(out, r.intern(g, id.String()))
	}
	return out
}

// SharedClaim is the group that keeps users of a volume claim in one zone: an affinity to each other.
func (r *Registry) SharedClaim(claim types.NamespacedName) *Group {
	return r.intern(&Group{
		typ: Affinity, key: corev1.LabelTopologyZone, selector: labels.Nothing(), namespaces: map[string]bool{claim.Namespace: true},
		claim: claim.Name,
	}, "claim "+claim.Name)
}

// intern returns the one group with this meaning. It counts the running pods of a new group.
func (r *Registry) intern(g *Group, filter string) *Group {
	// The selector of all pods and that of none both print as the empty string.
	id := fmt.Sprintf("%d|%s|%v|%v|%v|%s|%d|%d|%s", g.typ, g.key, g.allNamespaces, slices.Sorted(maps.Keys(g.namespaces)),
		g.selector.Empty(), g.selector.String(), g.maxSkew, g.minDomains, filter)
	if len(g.lacking) > 0 {
		id += fmt.Sprint("|lacking", g.lacking)
	}
	if known, ok := r.byID[id]; ok {
		return known
	}
	g.counts = map[string]int{}
	if !g.OverHosts() {
		g.universe = r.universe(g)
		g.usable = g.reachable()
		if g.requested = r.requestedDomains(g); len(g.requested) > 0 {
			g.universe = slices.Sorted(slices.Values(slices.Concat(g.universe, g.requested)))
		}
	}
	if g.typ == Spread && g.OverHosts() {
		g.hosts = newHosts(r)
	}
	if g.typ != Inverse {
		r.countRunning(g)
		r.countComing(g)
	}
	r.byID[id] = g
	r.groups = append(r.groups, g)
	return g
}
