package launch

import (
	"cmp"
	"slices"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Reservations records the use of capacity reservations by launches.
type Reservations interface {
	// Launched records an instance that was launched into a reservation.
	Launched(id string)
	// Full records that a reservation had no free instance.
	Full(id string)
	// Unavailable records that EC2 rejected a reservation for another reason, which its count of free instances does
	// not show.
	Unavailable(id string)
}

// reservedKey identifies the reserved offering of an instance type in a zone. A fleet requests at most one reservation per
// type and zone, so its response shows which reservation an instance is in.
func reservedKey(instanceType, zone string) catalog.OfferingKey {
	return catalog.OfferingKey{InstanceType: instanceType, Zone: zone, CapacityType: karpv1.CapacityTypeReserved}
}

// reservationOf returns the reservation of an offering; zero if none.
func reservationOf(o *catalog.Offering) cloudprovider.Reservation {
	if o.ReservationID == "" {
		return cloudprovider.Reservation{}
	}
	kind, _ := o.Requirements.Get(awsv1.LabelReservationType).Single()
	interruptible, _ := o.Requirements.Get(awsv1.LabelReservationInterruptible).Single()
	return cloudprovider.Reservation{ID: o.ReservationID, Type: kind, Interruptible: interruptible == "true"}
}

// reservationMarket is the kind of reservations in a fleet: a fleet can use only one kind.
type reservationMarket int

// Reservation markets, in the order of preference at equal price.
const (
	defaultReservations reservationMarket = iota
	capacityBlocks
	interruptibleReservations
)

func marketOf(r cloudprovider.Reservation) reservationMarket {
	switch {
	case r.Type == reservation.Block:
		return capacityBlocks
	case r.Interruptible:
		return interruptibleReservations
	}
	return defaultReservations
}

// onlyReserved keeps the reserved offerings that one fleet can request, if there are any: one kind of reservation, that
// with the lowest price; of capacity blocks a single one; else in each zone the reservation with the most free
// instances.
func onlyReserved(all []candidate) []candidate {
	lowest, chosen := 0.0, reservationMarket(-1)
	for _, c := range all {
		for i := range c.offerings {
			o := &c.offerings[i]
			if o.ReservationID == "" {
				continue
			}
			m := marketOf(reservationOf(o))
			if chosen < 0 || cmp.Or(cmp.Compare(o.Price, lowest), cmp.Compare(m, chosen)) < 0 {
				lowest, chosen = o.Price, m
			}
		}
	}
	if chosen < 0 {
		return all
	}
	var out []candidate
	for _, c := range all {
		best := map[string]catalog.Offering{} // by zone
		for i := range c.offerings {
			o := c.offerings[i]
			if o.ReservationID == "" || marketOf(reservationOf(&o)) != chosen {
				continue
			}
			known, seen := best[o.Zone]
			if !seen || cmp.Or(cmp.Compare(known.Remaining, o.Remaining), cmp.Compare(o.ReservationID, known.ReservationID)) < 0 {
				best[o.Zone] = o
			}
		}
		kept := candidate{InstanceType: c.InstanceType}
		for _, o := range c.offerings {
			if o.ReservationID != "" && best[o.Zone].ReservationID == o.ReservationID {
				kept.offerings = append(kept.offerings, o)
			}
		}
		if len(kept.offerings) > 0 {
			out = append(out, kept)
		}
	}
	if chosen == capacityBlocks {
		c := slices.MinFunc(out, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.cheapest(), b.cheapest()), cmp.Compare(a.Name, b.Name))
		})
		return []candidate{{InstanceType: c.InstanceType, offerings: c.offerings[:1]}}
	}
	return out
}

// hasReserved reports whether a NodeClaim is launched into a reservation.
func hasReserved(all []candidate) bool {
	return slices.ContainsFunc(all, func(c candidate) bool { return c.has(karpv1.CapacityTypeReserved) })
}

// target returns the target capacity type of a fleet.
func target(capacityType string, r cloudprovider.Reservation) ec2types.DefaultTargetCapacityType {
	switch {
	case capacityType != karpv1.CapacityTypeReserved:
		return ec2types.DefaultTargetCapacityType(capacityType)
	case marketOf(r) == capacityBlocks:
		return ec2types.DefaultTargetCapacityTypeCapacityBlock
	case marketOf(r) == interruptibleReservations:
		return ec2types.DefaultTargetCapacityTypeReservedCapacity
	}
	return ec2types.DefaultTargetCapacityTypeOnDemand
}

// setReservation makes a launch template launch into a reservation. For the zero reservation, it keeps instances out of
// open reservations.
func setReservation(data *ec2types.RequestLaunchTemplateData, r cloudprovider.Reservation) {
	spec := &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
		CapacityReservationPreference: ec2types.CapacityReservationPreferenceNone,
	}
	data.CapacityReservationSpecification = spec
	if r.ID == "" {
		return
	}
	spec.CapacityReservationPreference = ec2types.CapacityReservationPreferenceCapacityReservationsOnly
	spec.CapacityReservationTarget = &ec2types.CapacityReservationTarget{CapacityReservationId: &r.ID}
	switch marketOf(r) {
	case capacityBlocks:
		data.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeCapacityBlock}
	case interruptibleReservations:
		data.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{
			MarketType: ec2types.MarketTypeInterruptibleCapacityReservation,
		}
	}
}
