// Package catalog describes what can be launched: instance types, their resources, and their offerings.
//
// It depends on no cloud. A cloud adapter fills it (see internal/aws), the engine reads it.
package catalog

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// InstanceType is an instance type as one node class would launch it.
//
// Values are shared between snapshots and must not be modified after construction.
type InstanceType struct {
	Name string
	// Requirements holds every label that a node of this type has; zone and capacity type hold the union over
	// Offerings. A label that the type must not have is present as DoesNotExist.
	Requirements requirement.Set
	Offerings    []Offering
	// Capacity holds what the instance has, Allocatable what is left for pods after the reservations of kubelet, system
	// and eviction threshold (0 <= Allocatable <= Capacity per resource).
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
	// DeviceSlices holds what the DRA drivers of a node of this type will publish: slices of devices that come with the
	// node, in complete pools. The node, and the names of pools, are filled in per node.
	DeviceSlices []resourcev1.ResourceSliceSpec
	// DRAResources are the extended resources that DRA drivers serve on a node of this type, sorted: kube-scheduler allocates devices for
	// requests of them. Of others that pods request, device plugins set the amounts.
	DRAResources []corev1.ResourceName
	// VolumeLimits counts how many volumes a node of this type can attach for pods, by CSI driver: less its own disks
	// and whatever else counts against the limit. A driver that is absent has no known limit.
	VolumeLimits map[string]int
	// LocalStorage counts how many bytes of the instance's own disks CSI drivers can make volumes of; 0 if it has none, or if kubelet and
	// containers have them.
	LocalStorage int64
	// CapacityOverlaid is true if a NodeOverlay has added to Capacity and Allocatable.
	CapacityOverlaid bool
}

// Offering is an InstanceType in one zone with one capacity type.
type Offering struct {
	Zone         string
	CapacityType string
	// Requirements are the labels that hold for this offering only: zone, capacity type, zone ID, ...
	Requirements requirement.Set
	// Price in $/h. Meaningless unless Available.
	Price float64
	// PriceOverlaid is true if Price is set by a NodeOverlay.
	PriceOverlaid bool
	// PriceDerived is true if no price list has Price: it was estimated from other prices.
	PriceDerived bool
	// Available is false if there is no price, no subnet, or no capacity at the moment.
	Available bool
	// UnavailableMessage it is not Available, as a short message; empty if it is, or if the reason is unknown.
	UnavailableMessage string
	// UnavailableReason is the reason why it is not Available, if decisions depend on it.
	UnavailableReason UnavailableReason
	// ReservationID is the capacity reservation that the offering uses; empty if it uses none.
	ReservationID string
	// Remaining counts how many more instances fit in the reservation; meaningless without one.
	Remaining int
	// Capacity and Allocatable replace those of the type, resource by resource, for a node of this offering.
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
type UnavailableReason string

// What an offering can lack. Any other reason passes, or is for the author of the pool or of its class to change.
const (
	ReasonNotOffered UnavailableReason = "place" // the zone does not offer the type, or the class has no subnet there
	ReasonNoPrice    UnavailableReason = "price" // nothing is launched at an unknown price
	ReasonFull       UnavailableReason = "full"  // the capacity reservation is healthy, and has no free instance
)

// PriceOverlaid reports whether a NodeOverlay sets the price of any offering.
func (t *InstanceType) PriceOverlaid() bool {
	return slices.ContainsFunc(t.Offerings, func(o Offering) bool { return o.PriceOverlaid })
}

// Cheapest returns the available offering with the lowest price that set admits (well-known labels may be undefined
// in set). Of equal prices, the first in the order of Offerings wins.
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
