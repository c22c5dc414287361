package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// affinityTerm is one term of pod anti-affinity, with its owners.
type affinityTerm struct {
	*selection
	owners []*scheduledPod // the pods that have it
}

// antiAffinity: no pod of the plan may come into the same domain as another pod, if one of the two keeps away from the
// other. DaemonSets' pods that come with a node are there before its other pods.
func (c *check) antiAffinity() {
	for _, r := range c.termsOf(c.neighbors()) {
		in := map[string][]*scheduledPod{}
		for _, m := range c.selected(r.selection) {
			for _, d := range c.domainsOf(m, r.selection) {
				if m.repels {
					in[d] = append(in[d], m)
				}
			}
		}
		for _, m := range r.owners {
			if m.repels {
				c.antiAffinityOf(m, r, in)
			}
		}
	}
}

func (c *check) antiAffinityOf(m *scheduledPod, r *affinityTerm, in map[string][]*scheduledPod) {
	for _, d := range c.domainsOf(m, r.selection) {
		for _, o := range in[d] {
			if o.pod != m.pod && (m.placedByPlan || o.placedByPlan) {
				c.failAt([]*host{m.at, o.at}, "pods %s and %s may share %s %s, which anti-affinity forbids", name(m.pod), name(o.pod), r.key, d)
				return
			}
		}
	}
}

// domainsOf are the domains in which the pod may be. A DaemonSet's pod comes only where it runs.
func (c *check) domainsOf(m *scheduledPod, s *selection) []string {
	values := m.at.named(s.stated).values
	if !m.daemon {
		return values
	}
	return slices.DeleteFunc(slices.Clone(values), func(d string) bool { return !c.labelDemandsOf(m.pod).reaches(s.key, d) })
}

// affinitySet is all terms of a pod's required affinity. A pod counts if it matches all of them; it counts once for the
// key of each term.
type affinitySet struct {
	terms  []*selection
	owners []*scheduledPod
	// apart is true if the pod keeps away from pods that are about to be gone. As long as it could follow such a pod, it may have to keep away
	// from another. Barred are the domains, by key as it is stated, that such pods keep it out of.
	apart  bool
	barred map[string]map[string]bool
}

// affinitySetOf reads the terms of a pod; nil if it has none.
func (c *check) affinitySetOf(pod *corev1.Pod) *affinitySet {
	terms := requiredAffinity(pod)
	if len(terms) == 0 {
		return nil
	}
	out := &affinitySet{apart: c.waitsForEnd(pod), barred: keptOutOf(pod, c.pods.ending)}
	for i := range terms {
		out.terms = append(out.terms, c.affinitySelection(pod, &terms[i]))
	}
	return out
}

// waitsForEnd reports whether the pod has anti-affinity to a pod that is about to be gone.
func (c *check) waitsForEnd(pod *corev1.Pod) bool {
	return slices.ContainsFunc(requiredAntiAffinity(pod), func(t corev1.PodAffinityTerm) bool {
		return slices.ContainsFunc(c.selected(c.affinitySelection(pod, &t)), func(m *scheduledPod) bool { return m.endsSoon })
	})
}

func (s *affinitySet) id() string {
	var out strings.Builder
	for _, t := range s.terms {
		fmt.Fprintf(&out, "%q", t.id())
	}
	return fmt.Sprint(out.String(), s.apart, s.barred)
}

// forgets reports whether the pod is about to be gone, and those of the set may have to wait until then.
func (s *affinitySet) forgets(m *scheduledPod) bool {
	return m.endsSoon && (s.apart || m.at.isWithin(s.barred))
}

// has reports whether the pod matches all terms.
func (s *affinitySet) has(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(s.terms, func(t *selection) bool { return !t.has(pod) })
}

// keys returns those of the terms as they are stated, each once.
func (s *affinitySet) keys() []string {
	var out []string
	for _, t := range s.terms {
		if !slices.Contains(out, t.stated) {
			out = append(out, t.stated)
		}
	}
	return out
}

// counts reports whether a pod of the set would be counted on the host: that has, or may get, one of the labels.
func (s *affinitySet) counts(at *host) bool {
	return slices.ContainsFunc(s.terms, func(t *selection) bool { return len(at.named(t.stated).values) > 0 })
}

// affinity: there is an order in which every pod, when it is placed, finds the pods of its affinity, or is the first
// of a group that it belongs to itself. It builds such an order greedily: a pod that can be placed never prevents
// another, except by being first in its group.
func (c *check) affinity() {
	index := map[string]*affinitySet{}
	var sets []*affinitySet
	for _, m := range c.pods.all {
		s := c.affinitySetOf(m.pod)
		if s == nil || !m.placedByPlan {
			continue
		}
		if known := index[s.id()]; known != nil {
			s = known
		} else {
			index[s.id()] = s
			sets = append(sets, s)
		}
		s.owners = append(s.owners, m)
	}
	if len(sets) == 0 {
		return
	}
	a := &schedulingOrder{
		c:         c,
		firstPods: map[*affinitySet][]*scheduledPod{},
		in:        map[*affinitySet]map[topologyPair]bool{},
		on:        map[*affinitySet]map[*host]bool{},
		of:        map[*scheduledPod]*affinitySet{},
		counted:   map[*scheduledPod][]*affinitySet{},
	}
	for _, s := range sets {
		a.in[s], a.on[s] = map[topologyPair]bool{}, map[*host]bool{}
		for _, m := range s.owners {
			a.of[m] = s
		}
		for _, m := range c.selected(s.terms[0]) {
			if s.has(m.pod) {
				a.counted[m] = append(a.counted[m], s)
			}
		}
	}
	var waiting []*scheduledPod
	for _, m := range c.neighbors() {
		if a.of[m] != nil {
			waiting = append(waiting, m)
		} else if m.attracts {
			a.place(m)
		}
	}
	for _, m := range a.placeAll(waiting) {
		c.failAt(
			[]*host{m.at},
			"pod %s is in %s, away from all pods that affinity demands over %s",
			name(m.pod),
			m.at.name,
			a.unsatisfiedKeys(m),
		)
	}
}

// topologyPair is a domain: a label with its value.
type topologyPair struct{ key, value string }

// schedulingOrder is the state of placing pods in some order.
type schedulingOrder struct {
	c *check
	// in and on are the domains and hosts with pods of a set.
	in map[*affinitySet]map[topologyPair]bool
	on map[*affinitySet]map[*host]bool
	// of is the set that a pod owns, counted are those that it matches.
	of      map[*scheduledPod]*affinitySet
	counted map[*scheduledPod][]*affinitySet
	// firstPods are the pods that were placed as the first of their group.
	firstPods map[*affinitySet][]*scheduledPod
}

func (a *schedulingOrder) place(m *scheduledPod) {
	for _, s := range a.counted[m] {
		if s.forgets(m) {
			continue
		}
		a.on[s][m.at] = true
		for _, key := range s.keys() {
			if d, ok := m.at.named(key).single(); ok {
				a.in[s][topologyPair{key, d}] = true
			}
		}
	}
}

// unsatisfied are the keys over which the pod may be away from the pods of its set, for something that its node may come
// up as.
func (a *schedulingOrder) unsatisfied(m *scheduledPod) []string {
	s := a.of[m]
	return slices.DeleteFunc(s.keys(), func(key string) bool {
		mine := m.at.named(key)
		if mine.absent || len(mine.values) == 0 {
			return false
		}
		return a.on[s][m.at] || !slices.ContainsFunc(mine.values, func(d string) bool { return !a.in[s][topologyPair{key, d}] })
	})
}

// placeAll places pods as long as one can be placed, and returns the others.
func (a *schedulingOrder) placeAll(waiting []*scheduledPod) []*scheduledPod {
	for {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(m *scheduledPod) bool {
			if len(a.unsatisfied(m)) > 0 {
				return false
			}
			a.place(m)
			return true
		})
		if len(waiting) == 0 {
			return nil
		}
		if len(waiting) < before {
			continue
		}
		k := a.nextFirst(waiting)
		if k < 0 {
			return waiting
		}
		m := waiting[k]
		a.firstPods[a.of[m]] = append(a.firstPods[a.of[m]], m)
		a.place(m)
		waiting = slices.Delete(waiting, k, k+1)
	}
}

// nextFirst is a pod that may be the first of a group, preferably one with the fewest bound keys; -1 if there is
// none.
func (a *schedulingOrder) nextFirst(waiting []*scheduledPod) int {
	best, fewest := -1, 0
	for k, m := range waiting {
		if !a.mayBeFirst(m) {
			continue
		}
		w, bound := a.c.labelDemandsOf(m.pod), 0
		for _, key := range a.of[m].keys() {
			if only := w.only(key); len(only.selector) > 0 || slices.ContainsFunc(only.terms, func(t []expr) bool { return len(t) > 0 }) {
				bound++
			}
		}
		if best < 0 || bound < fewest {
			best, fewest = k, bound
		}
	}
	return best
}

// mayBeFirst reports whether the pod matches its own terms, its node has the labels of all of them, and no pod in the
// cluster matches them on a node with any of the labels, wherever that is. Of this plan, only first pods count: all others
// may have been placed later.
func (a *schedulingOrder) mayBeFirst(m *scheduledPod) bool {
	s := a.of[m]
	if !s.has(m.pod) || slices.ContainsFunc(s.keys(), func(key string) bool {
		l := m.at.named(key)
		return l.absent || len(l.values) == 0
	}) {
		return false
	}
	return !slices.ContainsFunc(a.c.selected(s.terms[0]), func(o *scheduledPod) bool {
		later := o.placedByPlan || o.daemon
		return o != m && o.attracts && !s.forgets(o) && s.has(o.pod) && s.counts(o.at) && (!later || a.isFirst(o, s))
	})
}

// isFirst reports whether the pod was placed as the first of a group, and counts for this one.
func (a *schedulingOrder) isFirst(o *scheduledPod, s *affinitySet) bool {
	return slices.Contains(a.firstPods[s], o)
}

func (a *schedulingOrder) unsatisfiedKeys(m *scheduledPod) string {
	return strings.Join(a.unsatisfied(m), ", ")
}
