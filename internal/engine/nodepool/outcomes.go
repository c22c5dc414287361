package nodepool

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// AllSatisfy reports whether a node of the candidates has the labels that the pod selects, whatever it is launched as. If
// the pod has alternatives, different offerings may satisfy different ones.
//
// Cost: types times offerings times the pod's requirements.
func (c *Candidates) AllSatisfy(pod requirement.Pod) bool {
	for _, cand := range c.list {
		from, to := c.t.variantsOf(cand.Type)
		for i := from; i < to; i++ {
			ti := &c.t.types[i]
			for k := range ti.Offerings {
				o := &ti.Offerings[k]
				if ti.Sells(o) && c.reqs.Overlaps(o.Requirements) && !c.satisfies(ti, o, pod) {
					return false
				}
			}
		}
	}
	return true
}

// MaySatisfy reports whether a node of the candidates may have the labels that the pod selects.
//
// Cost: as AllSatisfy.
func (c *Candidates) MaySatisfy(pod requirement.Pod) bool { return c.SomeMaySatisfy(c.list, pod) }

// SomeMaySatisfy is MaySatisfy for some of the candidates.
func (c *Candidates) SomeMaySatisfy(some []Candidate, pod requirement.Pod) bool {
	return slices.ContainsFunc(some, func(cand Candidate) bool {
		ti := &c.t.types[cand.Type]
		return slices.ContainsFunc(ti.Offerings, func(o catalog.Offering) bool {
			may := func(set requirement.Set) bool {
				return !slices.ContainsFunc(set.All(), func(r requirement.Requirement) bool { return !c.mayBe(ti, &o, r) })
			}
			return ti.Sells(&o) && c.reqs.Overlaps(o.Requirements) && may(pod.Selector) &&
				(len(pod.Required) == 0 || slices.ContainsFunc(pod.Required, may))
		})
	})
}

// mayBe reports whether the label of a node of the offering may satisfy the requirement.
func (c *Candidates) mayBe(ti *Type, o *catalog.Offering, r requirement.Requirement) bool {
	have, known := c.labelOn(ti, o, r.Key())
	if !known {
		return c.t.models.config.Labels.WellKnown[r.Key()] || r.AllowsAbsent()
	}
	return have.Agrees(r)
}

// labelOn is what is known of a label of a node of the offering; false if nothing is. A type or an offering may state that there is none.
func (c *Candidates) labelOn(ti *Type, o *catalog.Offering, key string) (have requirement.Requirement, known bool) {
	switch {
	case o.Requirements.Defines(key):
		have = o.Requirements.Get(key)
	case ti.Requirements.Defines(key):
		have = ti.Requirements.Get(key)
	default:
		return c.reqs.Get(key), c.reqs.Defines(key)
	}
	if c.reqs.Defines(key) {
		have = have.Intersect(c.reqs.Get(key))
	}
	return have, true
}

// variantsOf are the indexes of the types that are variants of the same instance type, the last one excluded. Types are
// sorted by name.
func (t *Template) variantsOf(i int) (from, to int) {
	from, to = i, i+1
	for from > 0 && t.types[from-1].Name == t.types[i].Name {
		from--
	}
	for to < len(t.types) && t.types[to].Name == t.types[i].Name {
		to++
	}
	return from, to
}

// satisfies reports whether a node of the offering has the labels that the pod selects.
func (c *Candidates) satisfies(ti *Type, o *catalog.Offering, pod requirement.Pod) bool {
	has := func(set requirement.Set) bool {
		return !slices.ContainsFunc(set.All(), func(r requirement.Requirement) bool { return !c.surelyHas(ti, o, r) })
	}
	return has(pod.Selector) && (len(pod.Required) == 0 || slices.ContainsFunc(pod.Required, has))
}

// surelyHas reports whether the label of a node of the offering satisfies the requirement with each value that it may get.
func (c *Candidates) surelyHas(ti *Type, o *catalog.Offering, r requirement.Requirement) bool {
	key := r.Key()
	have, known := c.labelOn(ti, o, key)
	if own := c.reqs.Get(key); own.MinValues() > 0 { // the claim leaves a choice of values
		have, known = own, true
	}
	if !known {
		return !c.t.models.config.Labels.WellKnown[key] && r.AllowsAbsent()
	}
	return have.Equal(have.Intersect(r.WithMinValues(0)))
}
