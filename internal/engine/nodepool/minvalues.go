package nodepool

import (
	"maps"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// MinValuesShortfall returns, by key, how many values the types in list have of each key with minValues that they do
// not reach. The length is that of the shortest prefix that reaches all of them.
func (t *Template) MinValuesShortfall(reqs requirement.Set, list []Candidate) (missed map[string]int, length int) {
	seen := map[string]map[string]bool{}
	wanted := map[string]int{}
	for _, r := range reqs.All() {
		if r.MinValues() > 0 {
			wanted[r.Key()], seen[r.Key()] = r.MinValues(), map[string]bool{}
		}
	}
	unreserved := wanted[karpv1.LabelCapacityType] > 0 && t.ExcludesReservations(list, reqs)
	for i, c := range list {
		for key := range wanted {
			for _, v := range t.types[c.Type].Requirements.Get(key).Values() {
				if reqs.Get(key).Has(v) && !(unreserved && key == karpv1.LabelCapacityType && v == karpv1.CapacityTypeReserved) {
					seen[key][v] = true
				}
			}
		}
		length = i + 1
		if reached(wanted, seen) {
			return nil, length
		}
	}
	missed = map[string]int{}
	for key, n := range wanted {
		if len(seen[key]) < n {
			missed[key] = len(seen[key])
		}
	}
	return missed, length
}

func reached(wanted map[string]int, seen map[string]map[string]bool) bool {
	for key, n := range wanted {
		if len(seen[key]) < n {
			return false
		}
	}
	return true
}

// Shortfall is a shortfall as the rule of a rejection.
func Shortfall(reqs requirement.Set, missed map[string]int) *rejection.Rule {
	out := &rejection.Rule{}
	for _, key := range slices.Sorted(maps.Keys(missed)) {
		out.MinValues = append(out.MinValues, rejection.MinValue{Key: key, Values: missed[key], Wanted: reqs.Get(key).MinValues()})
	}
	return out
}

// Unusable lists, with the reason, each pool that has no instance types under its own requirements, or too few for
// its minValues, unless these may be lowered (policy BestEffort).
func (m *Models) Unusable(bestEffort bool) []rejection.Reason {
	var out []rejection.Reason
	for _, t := range m.All() {
		if t.unusable.Code != "" {
			out = append(out, t.unusable)
			continue
		}
		if bestEffort || !t.reqs.HasMinValues() {
			continue
		}
		all := make([]Candidate, len(t.types))
		for i := range all {
			all[i].Type = i
		}
		if missed, _ := t.MinValuesShortfall(t.reqs, all); len(missed) > 0 {
			out = append(out, rejection.Reason{Code: rejection.MinValues, NodePool: t.pool.Name, Rule: Shortfall(t.reqs, missed)})
		}
	}
	return out
}

// WithLoweredMinValues are the requirements with what the types have of each key in place of its minValues.
func WithLoweredMinValues(reqs requirement.Set, missed map[string]int) requirement.Set {
	for _, r := range reqs.All() {
		if n, ok := missed[r.Key()]; ok {
			reqs = reqs.Replace(r.WithMinValues(n))
		}
	}
	return reqs
}

// ExcludesReservations reports whether a claim of these types, outside reservations, must exclude the capacity type of
// reservations: one of the types has instances left in a reservation, or has a variant there that may not hold the pods,
// since it is not among the candidates.
//
// Cost: types times their offerings in reservations.
func (t *Template) ExcludesReservations(list []Candidate, reqs requirement.Set) bool {
	listed := func(i int) bool { return slices.ContainsFunc(list, func(c Candidate) bool { return c.Type == i }) }
	return slices.ContainsFunc(list, func(c Candidate) bool {
		if c.Reservation != 0 {
			return false
		}
		from, to := t.variantsOf(c.Type)
		for i := from; i < to; i++ {
			for _, r := range t.types[i].reserved {
				if reqs.Overlaps(r.offering.Requirements) && (r.offering.Available || t.types[i].Sells(r.offering) && !listed(i)) {
					return true
				}
			}
		}
		return false
	})
}

// ChoosesOfferings reports whether minValues requires several values of a label that offerings define, such as the
// capacity type. A capacity reservation has one value of each.
func (t *Template) ChoosesOfferings(reqs requirement.Set) bool {
	return slices.ContainsFunc(reqs.All(), func(r requirement.Requirement) bool {
		return r.MinValues() > 1 && slices.ContainsFunc(t.types, func(ti Type) bool {
			return slices.ContainsFunc(ti.reserved, func(o reservedOffering) bool { return o.offering.Requirements.Defines(r.Key()) })
		})
	})
}
