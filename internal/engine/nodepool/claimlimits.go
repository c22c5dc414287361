package nodepool

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// ClaimQuery requests the claim that a node becomes where offerings of a type hold different amounts, so that the claim has
// to leave types out: see KeepUnambiguous.
type ClaimQuery struct {
	FitQuery
	// Types are the types that the node can become, cheapest first; Requirements are the claim's.
	Types        []Candidate
	Requirements requirement.Set
}

// LimitsForMinValues returns what a claim reserves of the pool's limits so that its types reach minValues, as little as is found.
// It is false if no claim reaches them; then it is what the claim needs for the types that it does name. The first types up
// to keep reach minValues if none of them is left out.
//
// What one type needs of the limits decides whether another is left out: the more variants of a type are in a claim, the
// fewer of its variants exclude it. So limits for the first types are tried first, then limits for all, and then less, as
// long as nothing is lost: limits for types that the claim leaves out are limits that other nodes lack.
//
// Cost: one KeepUnambiguous per attempt. Each attempt to reserve less drops a type at least.
func (t *Template) LimitsForMinValues(q ClaimQuery, keep int) (reserved resources.Vec, reached bool) {
	best, missed := resources.Vec(nil), 0
	for _, n := range []int{keep, len(q.Types)} {
		limits := t.LargestOf(q.Types[:n])
		if _, m := t.claimWithin(q, limits); best == nil || m < missed {
			best, missed = limits, m
		}
		if missed == 0 || !t.HasLimits() {
			break
		}
	}
	for t.HasLimits() {
		sure, _ := t.claimWithin(q, best)
		less := t.LargestOf(sure)
		if _, m := t.claimWithin(q, less); m > missed || slices.Equal(less, best) {
			break
		}
		best = less
	}
	return best, missed == 0
}

// ReserveForClaim is ReserveForAll for the types of a claim, unless more limits would make the claim lack more of minValues:
// types that then need not be narrowed to one offering may exclude others.
func (t *Template) ReserveForClaim(q ClaimQuery) resources.Vec {
	grown := t.ReserveForAll(q.Types, q.Reserved)
	if !t.hasVariants || !q.Requirements.HasMinValues() || slices.Equal(grown, q.Reserved) {
		return grown
	}
	_, before := t.claimWithin(q, q.Reserved)
	if _, after := t.claimWithin(q, grown); after > before {
		t.Reserve(grown, q.Reserved)
		return q.Reserved
	}
	return grown
}

// claimWithin are the types of a claim that has reserved so much of the limits, and how many values it lacks of minValues.
func (t *Template) claimWithin(q ClaimQuery, reserved resources.Vec) (sure []Candidate, missed int) {
	var within []Candidate
	for _, cand := range q.Types {
		if t.types[cand.Type].capacity.Within(reserved) {
			within = append(within, cand)
		}
	}
	q.Reserved = reserved
	sure, reqs := t.KeepUnambiguous(within, q.Requirements, q.FitQuery)
	shortfall, _ := t.MinValuesShortfall(reqs, sure)
	for key, n := range shortfall {
		missed += reqs.Get(key).MinValues() - n
	}
	return sure, missed
}

// LargestOf is the most that any of the types counts against the pool's limits, per axis.
func (t *Template) LargestOf(types []Candidate) resources.Vec {
	most := t.NoLimits()
	for _, cand := range types {
		most = most.Max(t.types[cand.Type].capacity)
	}
	return most
}
