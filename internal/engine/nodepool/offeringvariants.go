package nodepool

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// variants splits types with offerings of different capacity, so that all offerings of a type in the search are alike.
// Variants of one type share its name.
func variants(types []*catalog.InstanceType) []*catalog.InstanceType {
	out := make([]*catalog.InstanceType, 0, len(types))
	for _, it := range types {
		if !slices.ContainsFunc(it.Offerings, overridesResources) {
			out = append(out, it)
			continue
		}
		var groups [][]catalog.Offering
		for _, o := range it.Offerings {
			i := slices.IndexFunc(groups, func(g []catalog.Offering) bool {
				return equal(g[0].Capacity, o.Capacity) && equal(g[0].Allocatable, o.Allocatable)
			})
			if i < 0 {
				i, groups = len(groups), append(groups, nil)
			}
			groups[i] = append(groups[i], o)
		}
		for _, g := range groups {
			out = append(out, variant(it, g))
		}
	}
	return out
}

func overridesResources(o catalog.Offering) bool { return len(o.Capacity)+len(o.Allocatable) > 0 }

func equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if other, ok := b[name]; !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// variant is the type limited to some of its offerings, which all hold the same.
func variant(it *catalog.InstanceType, offerings []catalog.Offering) *catalog.InstanceType {
	v := *it
	v.Offerings = offerings
	v.Capacity = catalog.Override(it.Capacity, offerings[0].Capacity)
	v.Allocatable = catalog.Override(it.Allocatable, offerings[0].Allocatable)
	v.Requirements = narrowed(it.Requirements, offerings)
	return &v
}

// narrowed limits labels that offerings define to the values of these offerings.
func narrowed(reqs requirement.Set, offerings []catalog.Offering) requirement.Set {
	for _, key := range offerings[0].Requirements.Keys() {
		if !reqs.Defines(key) {
			continue
		}
		var values []string
		all := true
		for i := range offerings {
			v, one := offerings[i].Requirements.Get(key).Single()
			values, all = append(values, v), all && one
		}
		if all {
			reqs = reqs.With(requirement.In(key, values...))
		}
	}
	return reqs
}

// KeepUnambiguous makes sure that no node is launched on which the pods do not fit. For each type that the claim
// names, any offering may be launched that the requirements admit. If an unlisted variant of the cheapest type is among
// these, the requirements are narrowed to the cheapest type's offering; other types are left out. If too few values are
// left for minValues then, the cheapest type is left out instead, where that helps. The query is that by which the types
// were found.
func (t *Template) KeepUnambiguous(types []Candidate, reqs requirement.Set, q FitQuery) ([]Candidate, requirement.Set) {
	if !t.hasVariants || len(types) == 0 {
		return types, reqs
	}
	listed := map[int]bool{}
	for _, cand := range types {
		listed[cand.Type] = true
	}
	// Claims use either reservations or other offerings, never both.
	capacityType := requirement.NotIn(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved)
	if q.Reservation != 0 {
		capacityType = requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved)
	}
	admitted := reqs.With(capacityType)
	if t.ambiguous(types[0].Type, listed, admitted, &q) {
		offering, _ := t.types[types[0].Type].Cheapest(admitted)
		narrow := reqs.Intersect(offering.Requirements)
		if t.missesMinValues(narrow, types) && len(types) > 1 {
			others, of := t.KeepUnambiguous(types[1:], reqs, q)
			if !t.missesMinValues(of, others) {
				return others, of
			}
		}
		reqs, admitted = narrow, admitted.Intersect(offering.Requirements)
	}
	sure := []Candidate{types[0]}
	for _, cand := range types[1:] {
		if o, ok := t.types[cand.Type].Cheapest(admitted); ok && !t.ambiguous(cand.Type, listed, admitted, &q) {
			cand.Price = o.Price
			sure = append(sure, cand)
		}
	}
	slices.SortStableFunc(sure[1:], func(a, b Candidate) int { return cmp.Compare(a.Price, b.Price) })
	return sure, reqs
}

func (t *Template) missesMinValues(reqs requirement.Set, types []Candidate) bool {
	if !reqs.HasMinValues() {
		return false
	}
	missed, _ := t.MinValuesShortfall(reqs, types)
	return len(missed) > 0
}

// ambiguous reports whether another variant of the type, one that is not listed, could be launched under reqs. One that
// is unavailable may be available by the time of the launch: it must at least hold the pods.
func (t *Template) ambiguous(i int, listed map[int]bool, reqs requirement.Set, q *FitQuery) bool {
	from, to := t.variantsOf(i)
	for j := from; j < to; j++ {
		if listed[j] {
			continue
		}
		if _, ok := t.types[j].Cheapest(reqs); ok || !q.heldBy(&t.types[j]) && slices.ContainsFunc(t.types[j].Offerings,
			func(o catalog.Offering) bool { return t.types[j].Sells(&o) && reqs.Overlaps(o.Requirements) }) {
			return true
		}
	}
	return false
}

// heldBy reports whether a type holds the total, within what is reserved of the pool's limits.
func (q *FitQuery) heldBy(ti *Type) bool {
	return q.Total.Fits(ti.room) && !ti.BlockedBy(q.Blocked) && ti.capacity.Within(q.Reserved)
}

// addVariant adds a type to a list, cheapest first, in which each name occurs once. Variants are joined into one type
// again, with the offerings of all.
func (t *Template) addVariant(list []*catalog.InstanceType, it *catalog.InstanceType) []*catalog.InstanceType {
	i := -1
	if t.hasVariants {
		i = slices.IndexFunc(list, func(o *catalog.InstanceType) bool { return o.Name == it.Name })
	}
	if i < 0 {
		return append(list, it)
	}
	joined := *list[i]
	joined.Offerings = append(slices.Clone(joined.Offerings), it.Offerings...)
	joined.Allocatable = combineAmounts(joined.Allocatable, it.Allocatable, -1)
	joined.Capacity = combineAmounts(joined.Capacity, it.Capacity, 1)
	reqs := joined.Requirements
	for _, r := range it.Requirements.All() {
		if have := reqs.Get(r.Key()); have.Operator() == corev1.NodeSelectorOpIn && r.Operator() == corev1.NodeSelectorOpIn {
			reqs = reqs.Replace(requirement.In(r.Key(), append(slices.Clone(have.Values()), r.Values()...)...))
		}
	}
	joined.Requirements = reqs
	list[i] = &joined
	return list
}

// combineAmounts takes the greater (sign 1) or the lesser (-1) amount of each resource; a missing amount is zero.
func combineAmounts(a, b corev1.ResourceList, sign int) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{a, b} {
		for name := range list {
			x, y := a[name], b[name]
			if y.Cmp(x)*sign > 0 {
				x = y
			}
			out[name] = x
		}
	}
	return out
}
