package nodepool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// Type is an instance type from the perspective of the template.
type Type struct {
	*catalog.InstanceType
	// unreserved has the offerings outside capacity reservations, reserved are the others.
	unreserved *catalog.InstanceType
	reserved   []reservedOffering
	// room holds what is left for pods after the daemon pods that come with the node. Types with equal room share it.
	room        resources.Vec
	daemonGroup int
	offering    int           // number of the first offering: all offerings of all types before
	capacity    resources.Vec // over the axes of the pool's limits
}

// reservedOffering is an offering of a type in a reservation.
type reservedOffering struct {
	reservation int
	offering    *catalog.Offering
}

// splitOfferings separates a type's offerings in reservations from the others. A reservation has the least that any of
// its offerings states, whatever pool it is in.
func (ti *Type) splitOfferings(s *reservation.Slots) {
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

// Sells reports whether the type names the offering's zone. Catalogs list offerings in other zones, too, as unavailable
// ones: nothing is ever launched there.
func (ti *Type) Sells(o *catalog.Offering) bool {
	return ti.Requirements.Get(corev1.LabelTopologyZone).Has(o.Zone)
}

// capacity returns what a type counts against limits; the type itself is one of "nodes".
func capacity(it *catalog.InstanceType, limits resources.Axes) resources.Vec {
	v := limits.Vec(it.Capacity)
	if i, ok := limits.Lookup(karpv1.ResourceNodes); ok {
		v[i] = 1
	}
	return v
}

// OfferingOf is the cheapest available offering that the requirements admit, in the reservation if there is one.
func (ti *Type) OfferingOf(reqs requirement.Set, reservation int) catalog.Offering {
	out, _ := ti.unreserved.Cheapest(reqs)
	for _, r := range ti.reserved {
		if reservation != 0 && r.reservation == reservation && reqs.Overlaps(r.offering.Requirements) {
			out = *r.offering
		}
	}
	return out
}

// Reservations are the numbers of the reservations that the type has offerings in, once per offering.
func (ti *Type) Reservations(yield func(int) bool) {
	for _, r := range ti.reserved {
		if !yield(r.reservation) {
			return
		}
	}
}

// AgainstLimits returns what a node of the type counts against the pool's limits, over their axes.
func (t *Type) AgainstLimits() resources.Vec { return t.capacity }

// FirstOffering is the number of the first of the type's Offerings; the others follow.
func (t *Type) FirstOffering() int { return t.offering }

// Room returns what is left for pods after the daemon pods that come with the node.
func (t *Type) Room() resources.Vec { return t.room }

// Unreserved is the type with only its offerings outside capacity reservations.
func (t *Type) Unreserved() *catalog.InstanceType { return t.unreserved }
