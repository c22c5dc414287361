package schedule

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// wish is a set of requirements that pods add to a bin's, known by a small number.
type wish struct {
	id  int
	set requirement.Set
}

// wish interns a set.
func (sv *solver) wish(set requirement.Set) wish {
	sv.key = set.AppendKey(sv.key[:0])
	id, ok := sv.wishes[string(sv.key)]
	if !ok {
		id = len(sv.wishes)
		sv.wishes[string(sv.key)] = id
		sv.noteAbsent(set)
	}
	return wish{id, set}
}

// noteAbsent notes the labels that a set demands that nodes lack.
func (sv *solver) noteAbsent(set requirement.Set) {
	for _, r := range set.All() {
		if r.Operator() == corev1.NodeSelectorOpDoesNotExist {
			sv.absent[r.Key()] = true
		}
	}
}

// narrowing is what candidates become under a wish, or why they cannot.
type narrowing struct {
	known bool
	on    *candidates
	why   *refusal
}

// narrow adds what a pod or its volumes require to a bin's requirements. Each pair is worked out once.
func (sv *solver) narrow(on *candidates, w wish) (*candidates, *refusal) {
	if w.set.Len() == 0 {
		return on, nil
	}
	for w.id >= len(on.narrowed) {
		on.narrowed = append(on.narrowed, narrowing{})
	}
	if n := &on.narrowed[w.id]; n.known {
		return n.on, n.why
	}
	n := narrowing{known: true}
	if host := w.set.Get(corev1.LabelHostname); host.Operator() == corev1.NodeSelectorOpIn || host.Operator() == corev1.NodeSelectorOpDoesNotExist {
		n.why = &refusal{Requirement, true} // a new node has a name of its own
	} else if !on.reqs.Compatible(w.set, sv.s.Labels.WellKnown) {
		n.why = &refusal{Requirement, true}
	} else if n.on = sv.candidates(on.t, on.reqs.Intersect(sv.lasting(on, w.set))); n.on.reqs.Equal(on.reqs) {
		n.on = on
	}
	on.narrowed[w.id] = n
	return n.on, n.why
}

// lasting is what of the wish a claim must say. A label that nobody gives to nodes is missing, which is all that the wish asks
// of it, or it would be refused. Saying so would have the claim made up a value, which DaemonSets might go by.
func (sv *solver) lasting(on *candidates, set requirement.Set) requirement.Set {
	drop := []string{corev1.LabelHostname}
	for _, r := range set.All() {
		if key := r.Key(); !on.reqs.Defines(key) && !sv.s.Labels.WellKnown[key] && !on.t.typed(key) {
			drop = append(drop, key)
		}
	}
	return set.Without(drop...)
}

// typed tells whether the template's types give nodes the label.
func (t *template) typed(key string) bool {
	if t.keys == nil {
		t.keys = map[string]bool{}
		for i := range t.types {
			for _, r := range t.types[i].Requirements.All() {
				t.keys[r.Key()] = true
			}
		}
	}
	return t.keys[key]
}

// settled is the one value that a label can have, if there is one.
type settled struct {
	key, value string
	ok         bool
}

// domain is the only value of key that a node of the candidates can have.
func (c *candidates) domain(key string) (string, bool) {
	for i := range c.settled {
		if s := &c.settled[i]; s.key == key {
			return s.value, s.ok
		}
	}
	value, ok := c.reqs.Get(key).Single()
	c.settled = append(c.settled, settled{key, value, ok})
	return value, ok
}
