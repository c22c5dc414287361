package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Near are the groups of the pod's required affinity, one per topology key. As in kube-scheduler, a pod counts only if
// all terms select it, whatever their keys.
func (r *Registry) Near(pod *corev1.Pod, terms []corev1.PodAffinityTerm) []*Group {
	if len(terms) == 0 {
		return nil
	}
	apart, bars := r.waitsForEnd(pod), r.barsOf(pod)
	if len(terms) == 1 && !apart && len(bars) == 0 {
		return []*Group{r.Affinity(Affinity, pod, &terms[0])}
	}
	all := r.term(Affinity, pod, &terms[0])
	keys, lacking := []string{all.key}, map[string][]string{all.key: all.lacking}
	for i := range terms[1:] {
		next := r.term(Affinity, pod, &terms[1+i])
		all.selector = both(all.selector, next.selector)
		all.intersectNamespaces(next)
		lacking[next.key] = slices.Concat(lacking[next.key], next.lacking)
		if !slices.Contains(keys, next.key) {
			keys = append(keys, next.key)
		}
	}
	id := "" // a group of one key means the same whatever the number of terms
	if len(keys) > 1 {
		id = "with " + strings.Join(slices.Sorted(slices.Values(keys)), ",")
	}
	if apart {
		id += " apart"
	}
	if len(bars) > 0 {
		id += fmt.Sprint(" barred ", bars)
	}
	out := make([]*Group, 0, len(keys))
	for _, key := range keys {
		out = append(out, r.intern(&Group{
			typ: Affinity, key: key, selector: all.selector, namespaces: all.namespaces, allNamespaces: all.allNamespaces, apart: apart,
			bars: bars, lacking: lacking[key],
		}, id))
	}
	for i, g := range out {
		if len(g.others) == 0 {
			g.others = slices.Delete(slices.Clone(out), i, i+1)
		}
	}
	return out
}

// both selects what each of the selectors does.
func both(a, b labels.Selector) labels.Selector {
	more, selectable := b.Requirements()
	if _, any := a.Requirements(); !any || !selectable {
		return labels.Nothing()
	}
	if a.String() == b.String() {
		return a
	}
	return a.Add(more...)
}

// intersectNamespaces leaves the namespaces that the other group has, too.
func (g *Group) intersectNamespaces(other *Group) {
	switch {
	case other.allNamespaces:
	case g.allNamespaces:
		g.allNamespaces, g.namespaces = false, other.namespaces
	default:
		g.namespaces = maps.Clone(g.namespaces)
		maps.DeleteFunc(g.namespaces, func(ns string, _ bool) bool { return !other.namespaces[ns] })
	}
}

// bootstrap reports whether the first pod of a self-affine set may choose its domains freely. It may while no pod in
// the cluster is counted in any domain of any of the set's keys: it does not matter whether the pod could follow one
// there. Undecided pods on the planned node at hand are in the same domain as the pod, wherever that comes up.
func (v *View) bootstrap() bool {
	if !v.self || v.g.foundsLast || v.g.foundsNever || v.g.undecided > v.ownUndecided || v.g.populated() {
		return false
	}
	return v.ownUndecided > 0 || !slices.ContainsFunc(v.g.others, func(g *Group) bool { return !g.Empty() })
}

// FollowsFounder reports whether the pod must be in the domain that the first pod of its set has chosen, though a DaemonSet's pod of the
// set comes with the node: where that may come up in another domain before the first pod is bound, this one has to follow it. Only once
// that has happened to the first pod: see FoundLast.
func (v *View) FollowsFounder() bool {
	return v.g.foundedLast && !v.g.foundsLast && !v.g.foundsNever && v.g.populated()
}

// populated reports whether a pod is counted in some domain.
func (g *Group) populated() bool {
	for _, n := range g.counts {
		if n > 0 {
			return true
		}
	}
	return slices.ContainsFunc(g.countsByNew, func(n int) bool { return n > 0 })
}

// ChoosesDomain reports whether the first pod of a set that must be together will choose the domain for all: none is
// there yet.
func (g *Group) ChoosesDomain() bool {
	return g.typ == Affinity && g.claim == "" && !g.OverHosts() && len(g.universe) > 1 && g.Empty()
}

// Pin leaves the first pod of a set only one domain to choose; all if it is empty.
func (g *Group) Pin(domain string) { g.pin = domain }
