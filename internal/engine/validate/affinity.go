package validate

import (
	"slices"
	"strings"
)

// relation is one term of pod (anti-)affinity, whoever states it.
type relation struct {
	*selection
	who []*member // that state it
}

// relations joins equal terms.
func (c *check) relations(terms func(*member) []*selection) []*relation {
	index := map[string]*relation{}
	var out []*relation
	for _, m := range c.crowd.all {
		for _, s := range terms(m) {
			id := s.id()
			r := index[id]
			if r == nil {
				r = &relation{selection: s}
				index[id] = r
				out = append(out, r)
			}
			r.who = append(r.who, m)
		}
	}
	return out
}

// apart: no two pods that must be kept apart may come into the same domain.
func (c *check) apart() {
	for _, r := range c.relations(func(m *member) []*selection {
		var out []*selection
		for _, t := range requiredAntiAffinity(m.pod) {
			out = append(out, c.related(m.pod, &t))
		}
		return out
	}) {
		in := map[string][]*member{}
		for _, m := range c.crowd.among(r.selection) {
			for _, d := range m.at.label(r.key).values {
				if m.active {
					in[d] = append(in[d], m)
				}
			}
		}
		for _, m := range r.who {
			c.alone(m, r, in)
		}
	}
}

func (c *check) alone(m *member, r *relation, in map[string][]*member) {
	for _, d := range m.at.label(r.key).values {
		for _, o := range in[d] {
			if o.pod != m.pod && (m.fresh || o.fresh) {
				c.failAt([]*place{m.at, o.at}, "pods %s and %s may share %s %s, which anti-affinity forbids", name(m.pod), name(o.pod), r.key, d)
				return
			}
		}
	}
}

// together: there is an order in which every pod, when its turn comes, finds those that it must be near to, or is the
// first of a family that it belongs to itself.
func (c *check) together() {
	relations := c.relations(func(m *member) []*selection {
		if !m.fresh {
			return nil
		}
		var out []*selection
		for _, t := range requiredAffinity(m.pod) {
			out = append(out, c.related(m.pod, &t))
		}
		return out
	})
	if len(relations) == 0 {
		return
	}
	a := &arrival{c: c, founders: map[*relation][]*member{}, in: map[*relation]map[string]bool{}, on: map[*relation]map[*place]bool{}, of: map[*member][]*relation{}, counted: map[*member][]*relation{}}
	for _, r := range relations {
		a.in[r], a.on[r] = map[string]bool{}, map[*place]bool{}
		for _, m := range r.who {
			a.of[m] = append(a.of[m], r)
		}
		for _, m := range c.crowd.among(r.selection) {
			a.counted[m] = append(a.counted[m], r)
		}
	}
	var waiting []*member
	for _, m := range c.crowd.all {
		if len(a.of[m]) > 0 {
			waiting = append(waiting, m)
		} else if m.active {
			a.arrive(m)
		}
	}
	for _, m := range a.seat(waiting) {
		c.failAt([]*place{m.at}, "pod %s is in %s, away from all pods that affinity demands over %s", name(m.pod), m.at.name, a.missed(m))
	}
}

// arrival is who is there so far.
type arrival struct {
	c *check
	// in and on are the domains and places where somebody of a relation is.
	in map[*relation]map[string]bool
	on map[*relation]map[*place]bool
	// of are the relations that a pod states, counted those that are about it.
	of, counted map[*member][]*relation
	// founders came to nobody.
	founders map[*relation][]*member
}

func (a *arrival) arrive(m *member) {
	for _, r := range a.counted[m] {
		a.on[r][m.at] = true
		if d, ok := m.at.label(r.key).single(); ok {
			a.in[r][d] = true
		}
	}
}

// near tells whether the pod is with others of the relation, wherever its node comes up.
func (a *arrival) near(m *member, r *relation) bool {
	mine := m.at.label(r.key)
	if mine.absent || len(mine.values) == 0 {
		return false
	}
	return a.on[r][m.at] || !slices.ContainsFunc(mine.values, func(d string) bool { return !a.in[r][d] })
}

// seat lets pods arrive for as long as one can, and returns those who cannot.
func (a *arrival) seat(waiting []*member) []*member {
	for {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(m *member) bool {
			if slices.ContainsFunc(a.of[m], func(r *relation) bool { return !a.near(m, r) }) {
				return false
			}
			a.arrive(m)
			return true
		})
		if len(waiting) == 0 {
			return nil
		}
		if len(waiting) < before {
			continue
		}
		k := a.first(waiting)
		if k < 0 {
			return waiting
		}
		for _, r := range a.of[waiting[k]] {
			if !a.near(waiting[k], r) {
				a.founders[r] = append(a.founders[r], waiting[k])
			}
		}
		a.arrive(waiting[k])
		waiting = slices.Delete(waiting, k, k+1)
	}
}

// first is one who may found a family, rather one who might have gone anywhere; -1 if there is none.
func (a *arrival) first(waiting []*member) int {
	best, fewest := -1, 0
	for k, m := range waiting {
		w := a.c.wantsOf(m.pod)
		founds := true
		bound := 0
		for _, r := range a.of[m] {
			founds = founds && (a.near(m, r) || a.founds(m, r, w))
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

// founds tells whether the pod is of the family itself, and nobody of it was anywhere that the pod could have followed to.
// Of this plan, that is only who founded it elsewhere: all others may have come later.
func (a *arrival) founds(m *member, r *relation, w *wants) bool {
	if !r.has(m.pod) {
		return false
	}
	if l := m.at.label(r.key); l.absent || len(l.values) == 0 {
		return false
	}
	for _, o := range a.c.crowd.among(r.selection) {
		if o == m || !o.active || o.fresh && !slices.Contains(a.founders[r], o) {
			continue
		}
		if d, ok := o.at.label(r.key).single(); ok && w.reaches(r.key, d) {
			return false
		}
	}
	return true
}

func (a *arrival) missed(m *member) string {
	var keys []string
	for _, r := range a.of[m] {
		if !a.near(m, r) {
			keys = append(keys, r.key)
		}
	}
	return strings.Join(keys, ", ")
}
