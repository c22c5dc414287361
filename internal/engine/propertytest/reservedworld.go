package propertytest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ReservedWorld is a SchedulerWorld with a capacity reservation that has a few instances left, for some of the types. Some pods select
// reserved capacity, or exclude it.
func ReservedWorld(next func() byte) *snapshot.Snapshot { return random{next}.reservedWorld() }

func (d random) reservedWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	s.Labels.ReservationID = ReservationID
	s.Labels.WellKnown[ReservationID] = true
	left := d.n(4)
	replaceTypes(s, func(it *catalog.InstanceType) *catalog.InstanceType {
		if !d.maybe(70) {
			return WithLabel(it, ReservationID)
		}
		return WithReservation(it, "r-1", left)
	})
	edits := map[string]edit{}
	for _, p := range s.Pods {
		family := p.Name[:1]
		if edits[family] == nil {
			edits[family] = d.reservationEdit()
		}
		edits[family](p)
	}
	return s
}

func (d random) reservationEdit() edit {
	switch d.n(6) {
	case 0:
		return Needs(Expr(Capacity, pick(d, in, notIn), karpv1.CapacityTypeReserved))
	case 1:
		return Needs(Expr(ReservationID, pick(d, in, notIn), pick(d, "r-1", "r-1", "r-2")))
	case 2:
		return Needs(Expr(ReservationID, pick(d, exists, absent)))
	case 3:
		return Spread(pick(d, Capacity, ReservationID), int32(d.from(1, 2)), pick(d, "a", "b"), d.spreadEdits())
	}
	return func(*corev1.Pod) {}
}

// launchable reports whether the claim may become the offering: one of a capacity reservation only if the claim names that.
func launchable(reqs []karpv1.Requirement, o *catalog.Offering) bool {
	names := slices.ContainsFunc(reqs, func(r karpv1.Requirement) bool {
		return r.Key == ReservationID && r.Operator == in && slices.Contains(r.Values, o.ReservationID)
	})
	return o.Available && allowed(reqs, Zone, o.Zone) && allowed(reqs, Capacity, o.CapacityType) && names == (o.ReservationID != "")
}

// exhausted reports whether the plan uses all that is left of the offering's reservation.
func exhausted(plan *schedule.Plan, o *catalog.Offering) bool {
	if o.ReservationID == "" {
		return false
	}
	used := 0
	for i := range plan.Launches {
		if slices.ContainsFunc(plan.Launches[i].ClaimRequirements(), func(r karpv1.Requirement) bool {
			return r.Key == ReservationID && r.Operator == in && slices.Contains(r.Values, o.ReservationID)
		}) {
			used++
		}
	}
	return used >= o.Remaining
}

// named is the offering in words.
func (out outcome) named(pool string) string {
	return fmt.Sprintf("one more %s of %s in %s as %s", out.it.Name, pool, out.o.Zone, out.o.CapacityType)
}
