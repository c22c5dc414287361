// Package catalog is what can be bought: instance types, what they hold, and their offerings.
//
// It knows no cloud. A cloud adapter fills it (see internal/aws), the engine reads it.
package catalog

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// InstanceType is one kind of machine as one node class would launch it.
//
// Values are shared between snapshots and must not be modified after construction.
type InstanceType struct {
	Name string
	// Requirements holds every label that a node of this type carries; zone and capacity type hold
	// the union over Offerings. A label that the type must not have is present as DoesNotExist.
	Requirements requirement.Set
	Offerings    []Offering
	// Capacity is what the machine has, Allocatable what is left for pods after the reservations of
	// kubelet, system and eviction threshold (0 <= Allocatable <= Capacity per resource).
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
	// DeviceSlices are what the DRA drivers of a node of this type will publish: each a slice of devices that come with
	// the node, in pools that are complete. Which node that is, and the names of pools, are filled in per node.
	DeviceSlices []resourcev1.ResourceSliceSpec
	// VolumeLimits are how many volumes a node of this type can attach for pods, by CSI driver: after its own disks and whatever else
	// counts against the limit. A driver that is absent has no limit that is known.
	VolumeLimits map[string]int
	// CapacityOverlaid is true when a NodeOverlay has added to Capacity and Allocatable.
	CapacityOverlaid bool
}

// Offering is one way to buy an InstanceType.
type Offering struct {
	Zone         string
	CapacityType string
	// Requirements are the labels that hold for this offering only: zone, capacity type, zone ID, ...
	Requirements requirement.Set
	// Price in $/h. Meaningless unless Available.
	Price float64
	// PriceOverlaid is true when Price is a NodeOverlay's.
	PriceOverlaid bool
	// PriceDerived is true when no price list has Price: it was worked out from prices of others.
	PriceDerived bool
	// Available is false when there is no price, no subnet, or no capacity at the moment.
	Available bool
	// Why it is not Available, in a few words for people; empty if it is, or if whoever knows has not said.
	Why string
	// Lacks is what it is not Available for, as far as something follows from it.
	Lacks Lack
	// ReservationID is the capacity reservation that the offering is taken from; empty if everybody can buy it.
	ReservationID string
	// Remaining is how many more instances the reservation takes; meaningless without one.
	Remaining int
	// Capacity and Allocatable hold what a node that is bought this way has otherwise than its type says, resource
	// by resource.
	Capacity, Allocatable corev1.ResourceList
}

// OfferingKey identifies an offering across snapshots. It is comparable, so that it serves as the key of a map.
// Offerings of capacity reservations share the key of their type, zone, and capacity type "reserved".
type OfferingKey struct {
	InstanceType, Zone, CapacityType string
}

// Key returns the key of an offering of the instance type with the given name.
func (o *Offering) Key(instanceType string) OfferingKey {
	return OfferingKey{InstanceType: instanceType, Zone: o.Zone, CapacityType: o.CapacityType}
}

// String reads like "spot m7i.large in us-east-1a".
func (k OfferingKey) String() string {
	return k.CapacityType + " " + k.InstanceType + " in " + k.Zone
}

// Lack is what keeps an offering from being Available.
type Lack string

// What an offering can lack. Anything else passes, or is for the author of the pool or its class to change.
const (
	LacksPlace Lack = "place" // the zone does not offer the type, or the class has no subnet there
	LacksPrice Lack = "price" // nothing is launched at an unknown price
)

// PriceOverlaid tells whether the price of any offering is a NodeOverlay's.
func (t *InstanceType) PriceOverlaid() bool {
	return slices.ContainsFunc(t.Offerings, func(o Offering) bool { return o.PriceOverlaid })
}

// Cheapest returns the lowest-priced available offering that set admits (well-known labels may be undefined in set).
// The first of equals in the order of Offerings wins.
func (t *InstanceType) Cheapest(set requirement.Set) (Offering, bool) {
	var best Offering
	found := false
	for _, o := range t.Offerings {
		if !o.Available || (found && o.Price >= best.Price) || !set.Overlaps(o.Requirements) {
			continue
		}
		best, found = o, true
	}
	return best, found
}
