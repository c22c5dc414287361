package schedule

import (
	"cmp"
	"math"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// reservedOffering is an offering of a type in a reservation.
type reservedOffering struct {
	reservation int
	offering    *catalog.Offering
}

// reservedType is a type in a reservation.
type reservedType struct{ t, reservation int }

// splitOfferings separates a type's offerings in reservations from the others. A reservation has the least that any of
// its offerings states, whatever pool it is in.
func splitOfferings(ti *typeInfo, s *reservation.Slots) {
	ti.unreserved = ti.InstanceType
	if !slices.ContainsFunc(ti.Offerings, func(o catalog.Offering) bool { return o.ReservationID != "" }) {
		return
	}
	open := *ti.InstanceType
	open.Offerings = nil
	for i := range ti.Offerings {
		o := &ti.Offerings[i]
		if o.ReservationID == "" {
			open.Offerings = append(open.Offerings, *o)
			continue
		}
		ti.reserved = append(ti.reserved, reservedOffering{s.Add(o.ReservationID, o.Remaining), o})
	}
	ti.unreserved = &open
}

// reservedFirst puts pods first that fit only into reservations, and of those the ones with the fewest reservations to
// choose from. Other pods can get any instance, and would leave them nothing.
func (sv *solver) reservedFirst(queue []*queuedPod) []*queuedPod {
	if sv.slots.Len() == 0 {
		return queue
	}
	choice := make(map[*class]int, len(sv.classes))
	for _, c := range sv.classes {
		choice[c] = sv.reservationChoices(c)
	}
	slices.SortStableFunc(queue, func(a, b *queuedPod) int { return cmp.Compare(choice[a.class], choice[b.class]) })
	slices.SortStableFunc(sv.classes, func(a, b *class) int { return cmp.Compare(choice[a], choice[b]) })
	return queue
}

// reservationChoices is how many reservations the pods fit into, if they fit on no other new node; else math.MaxInt.
func (sv *solver) reservationChoices(c *class) int {
	var reservations resources.Bitset
	n := 0
	for _, l := range sv.candidateLists(c.constraintClass) {
		for _, cand := range l.list {
			switch {
			case !c.requests.Fits(l.t.types[cand.t].room):
			case cand.reservation == 0:
				return math.MaxInt
			case !reservations.Has(cand.reservation):
				reservations.Add(cand.reservation)
				n++
			}
		}
	}
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// reservationAllows reports whether the bin may become the candidate, as far as reservations are concerned. A bin
// leaves its reservation, which is paid for, only for a pod that fits nowhere else.
func (sv *solver) reservationAllows(b *bin, cand candidate, u ceilingMode) bool {
	return sv.slots.Available(cand.reservation, b.reservation) && (cand.reservation != 0 || b.reservation == 0 || u != ceilingEnforced)
}

// addReserved lists the type's offerings in reservations that the requirements admit, the cheapest per reservation.
func (sv *solver) addReserved(c *candidates, i int, ti *typeInfo) {
	at := len(c.list)
	for _, r := range ti.reserved {
		if !r.offering.Available || !c.reqs.Overlaps(r.offering.Requirements) {
			continue
		}
		cand := candidate{t: i, price: sv.nodePrice(r.offering.Price), offering: -1, reservation: r.reservation}
		if k := slices.IndexFunc(c.list[at:], func(o candidate) bool { return o.reservation == r.reservation }); k >= 0 {
			cand.price = min(cand.price, c.list[at+k].price)
			c.list[at+k] = cand
		} else {
			c.list = append(c.list, cand)
		}
		if c.reservedPrices == nil {
			c.reservedPrices = map[reservedType]float64{}
		}
		c.reservedPrices[reservedType{i, r.reservation}] = cand.price
	}
}

// priceOf is the price of the candidate under these requirements; +Inf if they do not admit it.
func (c *candidates) priceOf(cand candidate) float64 {
	if cand.reservation == 0 {
		return c.price[cand.t]
	}
	return c.reservedPrice(cand)
}

func (c *candidates) reservedPrice(cand candidate) float64 {
	if p, ok := c.reservedPrices[reservedType{cand.t, cand.reservation}]; ok {
		return p
	}
	return math.Inf(1)
}

// lowest is the lowest price of the candidates available to the bin; +Inf if there is none.
func (sv *solver) lowest(b *bin, c *candidates) float64 {
	for _, cand := range c.list {
		if sv.slots.Available(cand.reservation, b.reservation) {
			return cand.price
		}
	}
	return math.Inf(1)
}

// reservationTypes lists what a bin in a reservation can be launched as: the types of its own reservation and of all
// others with a slot left, so that the launch has alternatives. It takes those slots; see releaseUnusedSlots.
func (sv *solver) reservationTypes(b *bin, blocked []bool) []candidate {
	var types []candidate
	for n := 1; n <= sv.slots.Len(); n++ {
		if !sv.slots.Available(n, b.reservation) {
			continue
		}
		more := sv.fitting(nil, fitQuery{b, growth{cands: b.cands, reservation: n}, b.total, blocked})
		if len(more) > 0 && n != b.reservation {
			sv.slots.Take(n)
		}
		types = append(types, more...)
	}
	slices.SortStableFunc(types, func(a, c candidate) int { return cmp.Compare(a.price, c.price) })
	return types
}

// releaseUnusedSlots returns the slots of reservations that no type of the launch is in. Its results are the types,
// each once, and the reservations that the launch keeps.
func (sv *solver) releaseUnusedSlots(b *bin, all, kept []candidate) (types []candidate, reserved []string) {
	if b.reservation == 0 {
		return kept, nil
	}
	var wanted, given resources.Bitset
	seen := map[int]bool{}
	for _, cand := range kept {
		if !wanted.Has(cand.reservation) {
			wanted.Add(cand.reservation)
			reserved = append(reserved, sv.slots.ID(cand.reservation))
		}
		if !seen[cand.t] {
			types = append(types, cand)
		}
		seen[cand.t] = true
	}
	for _, cand := range all {
		if cand.reservation != b.reservation && !wanted.Has(cand.reservation) && !given.Has(cand.reservation) {
			given.Add(cand.reservation)
			sv.slots.Return(cand.reservation)
		}
	}
	slices.Sort(reserved)
	return types, reserved
}

// restrictToReservations narrows a launch's requirements to the reservations that it keeps, or, without any, to
// capacity outside reservations.
func (sv *solver) restrictToReservations(l *Launch, reserved []string) requirement.Set {
	if len(reserved) > 0 {
		reqs := l.Requirements.With(requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved))
		if key := sv.s.Labels.ReservationID; key != "" {
			reqs = reqs.With(requirement.In(key, reserved...))
		}
		return reqs
	}
	if sv.slots.Len() == 0 {
		return l.Requirements
	}
	for _, it := range l.InstanceTypes {
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.ReservationID != "" && o.Available && l.Requirements.Overlaps(o.Requirements) {
				return l.Requirements.With(requirement.NotIn(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved))
			}
		}
	}
	return l.Requirements
}

// reservedValue bounds the value of pods that all reservations together can hold: nodes in them cost next to nothing.
// After the axes of resources, duals may have those of host rules; each node has that much of them.
func (sv *solver) reservedValue(duals vec64, hostRoom []int64) float64 {
	byHostRules := 0.0
	for i, r := range hostRoom {
		byHostRules += duals[sv.axes.Len()+i] * float64(r)
	}
	most := make([]float64, sv.slots.Len())
	for _, t := range sv.templates {
		for i := range t.types {
			ti := &t.types[i]
			worth := byHostRules
			for axis, r := range ti.room {
				worth += duals[axis] * float64(max(0, r))
			}
			for _, r := range ti.reserved {
				most[r.reservation-1] = max(most[r.reservation-1], worth)
			}
		}
	}
	total := 0.0
	for i, worth := range most {
		total += worth * float64(sv.slots.Total(i+1))
	}
	return total
}
