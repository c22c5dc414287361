package validate

import (
	"slices"
	"strings"
)

// affinityTerm is one term of pod (anti-)affinity, with its owners.
type affinityTerm struct {
	*selection
	owners []*scheduledPod // the pods that have it
}

// distinctTerms merges equal terms.
func (c *check) distinctTerms(terms func(*scheduledPod) []*selection) []*affinityTerm {
	index := map[string]*affinityTerm{}
	var out []*affinityTerm
	for _, m := range c.pods.all {
		for _, s := range terms(m) {
			id := s.id()
			r := index[id]
			if r == nil {
				r = &affinityTerm{selection: s}
				index[id] = r
				out = append(out, r)
			}
			r.owners = append(r.owners, m)
		}
	}
	return out
}

// antiAffinity: no two pods with anti-affinity may come into the same domain.
func (c *check) antiAffinity() {
	for _, r := range c.distinctTerms(func(m *scheduledPod) []*selection {
		var out []*selection
		for _, t := range requiredAntiAffinity(m.pod) {
			out = append(out, c.affinitySelection(m.pod, &t))
		}
		return out
	}) {
		in := map[string][]*scheduledPod{}
		for _, m := range c.pods.selected(r.selection) {
			for _, d := range m.at.label(r.key).values {
				if m.active {
					in[d] = append(in[d], m)
				}
			}
		}
		for _, m := range r.owners {
			c.antiAffinityOf(m, r, in)
		}
	}
}

func (c *check) antiAffinityOf(m *scheduledPod, r *affinityTerm, in map[string][]*scheduledPod) {
	for _, d := range m.at.label(r.key).values {
		for _, o := range in[d] {
			if o.pod != m.pod && (m.placedByPlan || o.placedByPlan) {
				c.failAt([]*host{m.at, o.at}, "pods %s and %s may share %s %s, which anti-affinity forbids", name(m.pod), name(o.pod), r.key, d)
				return
			}
		}
	}
}

// affinity: there is an order in which every pod, when it is placed, finds the pods of its affinity, or is the first
// of a group that it belongs to itself. It builds such an order greedily: a pod that can be placed never prevents
// another, except by being first in its group.
func (c *check) affinity() {
	relations := c.distinctTerms(func(m *scheduledPod) []*selection {
		if !m.placedByPlan {
			return nil
		}
		var out []*selection
		for _, t := range requiredAffinity(m.pod) {
			out = append(out, c.affinitySelection(m.pod, &t))
		}
		return out
	})
	if len(relations) == 0 {
		return
	}
	a := &schedulingOrder{
		c:         c,
		firstPods: map[*affinityTerm][]*scheduledPod{},
		in:        map[*affinityTerm]map[string]bool{},
		on:        map[*affinityTerm]map[*host]bool{},
		of:        map[*scheduledPod][]*affinityTerm{},
		counted:   map[*scheduledPod][]*affinityTerm{},
	}
	for _, r := range relations {
		a.in[r], a.on[r] = map[string]bool{}, map[*host]bool{}
		for _, m := range r.owners {
			a.of[m] = append(a.of[m], r)
		}
		for _, m := range c.pods.selected(r.selection) {
			a.counted[m] = append(a.counted[m], r)
		}
	}
	var waiting []*scheduledPod
	for _, m := range c.pods.all {
		if len(a.of[m]) > 0 {
			waiting = append(waiting, m)
		} else if m.active {
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

// schedulingOrder is the state of placing pods in some order.
type schedulingOrder struct {
	c *check
	// in and on are the domains and hosts with pods of a term.
	in map[*affinityTerm]map[string]bool
	on map[*affinityTerm]map[*host]bool
	// of are the terms that a pod owns, counted those that select it.
	of, counted map[*scheduledPod][]*affinityTerm
	// firstPods are those that were placed as the first of their group.
	firstPods map[*affinityTerm][]*scheduledPod
}

func (a *schedulingOrder) place(m *scheduledPod) {
	for _, r := range a.counted[m] {
		a.on[r][m.at] = true
		if d, ok := m.at.label(r.key).single(); ok {
			a.in[r][d] = true
		}
	}
}

// satisfied reports whether the pod is with others of the term, wherever its node comes up.
func (a *schedulingOrder) satisfied(m *scheduledPod, r *affinityTerm) bool {
	mine := m.at.label(r.key)
	if mine.absent || len(mine.values) == 0 {
		return false
	}
	return a.on[r][m.at] || !slices.ContainsFunc(mine.values, func(d string) bool { return !a.in[r][d] })
}

// placeAll places pods as long as one can be placed, and returns the others.
func (a *schedulingOrder) placeAll(waiting []*scheduledPod) []*scheduledPod {
	for {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(m *scheduledPod) bool {
			if slices.ContainsFunc(a.of[m], func(r *affinityTerm) bool { return !a.satisfied(m, r) }) {
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
		for _, r := range a.of[waiting[k]] {
			if !a.satisfied(waiting[k], r) {
				a.firstPods[r] = append(a.firstPods[r], waiting[k])
			}
		}
		a.place(waiting[k])
		waiting = slices.Delete(waiting, k, k+1)
	}
}

// nextFirst is a pod that may be the first of a group, preferably one with the fewest bound keys; -1 if there is
// none.
func (a *schedulingOrder) nextFirst(waiting []*scheduledPod) int {
	best, fewest := -1, 0
	for k, m := range waiting {
		w := a.c.labelDemandsOf(m.pod)
		founds := true
		bound := 0
		for _, r := range a.of[m] {
			founds = founds && (a.satisfied(m, r) || a.mayBeFirst(m, r, w))
			if only := w.only(r.key); len(only.selector) > 0 || slices.ContainsFunc(only.terms, func(t []expr) bool { return len(t) > 0 }) {
				bound++
			}
		}
		if founds && (best < 0 || bound < fewest) {
			best, fewest = k, bound
		}
	}
	return best
}

// mayBeFirst reports whether the pod is of the group itself, and none of the group ran anywhere that the pod could
// have used. Of this plan, only first pods elsewhere count: all others may have been placed later.
func (a *schedulingOrder) mayBeFirst(m *scheduledPod, r *affinityTerm, w *labelDemands) bool {
	if !r.has(m.pod) {
		return false
	}
	if l := m.at.label(r.key); l.absent || len(l.values) == 0 {
		return false
	}
	for _, o := range a.c.pods.selected(r.selection) {
		if o == m || !o.active || o.placedByPlan && !slices.Contains(a.firstPods[r], o) {
			continue
		}
		if d, ok := o.at.label(r.key).single(); ok && w.reaches(r.key, d) {
			return false
		}
	}
	return true
}

func (a *schedulingOrder) unsatisfiedKeys(m *scheduledPod) string {
	var keys []string
	for _, r := range a.of[m] {
		if !a.satisfied(m, r) {
			keys = append(keys, r.key)
		}
	}
	return strings.Join(keys, ", ")
}
