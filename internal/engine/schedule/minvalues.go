package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// withLoweredMinValues are the requirements with what the types have of each key in place of its minValues.
func withLoweredMinValues(reqs requirement.Set, missed map[string]int) requirement.Set {
	for _, r := range reqs.All() {
		if n, ok := missed[r.Key()]; ok {
			reqs = reqs.Replace(r.WithMinValues(n))
		}
	}
	return reqs
}

// reservationApart reports whether a claim of these types, outside reservations, must exclude the capacity type of
// reservations, since one of them has instances left: see restrictToReservations.
func (t *template) reservationApart(list []candidate, reqs requirement.Set) bool {
	return slices.ContainsFunc(list, func(c candidate) bool {
		return c.reservation == 0 && slices.ContainsFunc(t.types[c.t].reserved, func(o reservedOffering) bool {
			return o.offering.Available && reqs.Overlaps(o.offering.Requirements)
		})
	})
}

// choosesOfferings reports whether minValues requires several values of a label that offerings define, such as the
// capacity type. A capacity reservation has one value of each.
func (t *template) choosesOfferings(reqs requirement.Set) bool {
	return slices.ContainsFunc(reqs.All(), func(r requirement.Requirement) bool {
		return r.MinValues() > 1 && slices.ContainsFunc(t.types, func(ti typeInfo) bool {
			return slices.ContainsFunc(ti.reserved, func(o reservedOffering) bool { return o.offering.Requirements.Defines(r.Key()) })
		})
	})
}
