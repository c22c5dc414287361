package schedule

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// internedSet is a set of requirements with a small number: equal sets have equal ids.
type internedSet struct {
	id  int
	set requirement.Set
}

// internSet returns the interned form of a set.
func (sv *solver) internSet(set requirement.Set) internedSet {
	sv.keyBuf = set.AppendKey(sv.keyBuf[:0])
	id, ok := sv.setIDs[string(sv.keyBuf)]
	if !ok {
		id = len(sv.setIDs)
		sv.setIDs[string(sv.keyBuf)] = id
		sv.noteAbsentLabels(set)
	}
	return internedSet{id, set}
}

// noteAbsentLabels records the labels that a set requires nodes to lack.
func (sv *solver) noteAbsentLabels(set requirement.Set) {
	for _, r := range set.All() {
		if r.Operator() == corev1.NodeSelectorOpDoesNotExist {
			sv.absentLabels[r.Key()] = true
		}
	}
}

// narrowResult is what a list of candidates becomes under an interned set, or why no candidate is left.
type narrowResult struct {
	known bool
	cands *candidates
	why   *refusal
}

// narrow adds the requirements of a pod or of its volumes to the requirements of a bin.
//
// Cost: each pair of candidates and set is computed once per Problem; after that it is one slice access.
func (sv *solver) narrow(cands *candidates, w internedSet) (*candidates, *refusal) {
	if w.set.Len() == 0 {
		return cands, nil
	}
	for w.id >= len(cands.narrowedBySet) {
		cands.narrowedBySet = append(cands.narrowedBySet, narrowResult{})
	}
	if n := &cands.narrowedBySet[w.id]; n.known {
		return n.cands, n.why
	}
	n := narrowResult{known: true}
	if host := w.set.Get(corev1.LabelHostname); host.Operator() == corev1.NodeSelectorOpIn ||
		host.Operator() == corev1.NodeSelectorOpDoesNotExist {
		n.why = &refusal{code: Requirement, final: true} // a new node gets a name of its own
	} else if !cands.reqs.Compatible(w.set, sv.s.Labels.WellKnown) {
		n.why = &refusal{code: Requirement, final: true}
	} else if n.cands = sv.candidates(cands.t, cands.reqs.Intersect(sv.claimRequirements(cands, w.set))); n.cands.reqs.Equal(cands.reqs) {
		n.cands = cands
	}
	cands.narrowedBySet[w.id] = n
	return n.cands, n.why
}

// claimRequirements is the part of a set that the NodeClaim must state. A label that neither the pool nor its types
// define will be absent from the node. That is all that the set can require of it, or the set would be incompatible. If
// the claim stated it, the claim would get a made-up value, and DaemonSets might select by it.
func (sv *solver) claimRequirements(cands *candidates, set requirement.Set) requirement.Set {
	drop := []string{corev1.LabelHostname}
	for _, r := range set.All() {
		if key := r.Key(); !cands.reqs.Defines(key) && !sv.s.Labels.WellKnown[key] && !cands.t.Defines(key) {
			drop = append(drop, key)
		}
	}
	return set.Without(drop...)
}

// Defines reports whether the template's instance types define the label.
func (t *template) Defines(key string) bool {
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

// knownDomain is the only value that a label can have, if there is exactly one.
type knownDomain struct {
	key, value string
	ok         bool
}

// domain is the only value of key that a node of the candidates can have.
func (c *candidates) domain(key string) (string, bool) {
	for i := range c.domains {
		if s := &c.domains[i]; s.key == key {
			return s.value, s.ok
		}
	}
	value, ok := c.reqs.Get(key).Single()
	c.domains = append(c.domains, knownDomain{key, value, ok})
	return value, ok
}
