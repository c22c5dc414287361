package instancetype

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Why an offering is not available, beside the incompatibilities of its type.
const (
	NotSold        = "not sold in the zone"
	NoSubnet       = "no subnet in the zone"
	ZoneShifted    = "the cluster keeps away from the zone"
	NoPrice        = "no price is known"
	NoCapacity     = "EC2 had no capacity lately"
	FullReserved   = "the capacity reservation is used up"
	EndingReserved = "the capacity reservation is about to end"
)

// lackOfReason has the reasons that the engine distinguishes.
var lackOfReason = map[string]catalog.UnavailableReason{
	NotSold:  catalog.ReasonNotOffered,
	NoSubnet: catalog.ReasonNotOffered,
	NoPrice:  catalog.ReasonNoPrice,

	FullReserved: catalog.ReasonFull,
}

// offerings returns one offering per zone of the market, capacity type and partition of the placement group, in this
// order, then those in reservations. Offerings that the class cannot launch are listed as unavailable.
func (m typeForClass) offerings(market Market, labels offeringLabels) []catalog.Offering {
	refused, partitions := m.incompatibility(), m.class.partitions()
	offerings := make([]catalog.Offering, 0, 2*len(market.Zones)*len(partitions))
	for _, zone := range market.Zones {
		for _, capacityType := range m.capacityTypes() {
			price, priced := m.price(capacityType, zone, market)
			priced = priced && price > 0
			derived := priced && market.PriceDerived != nil && market.PriceDerived(m.name, capacityType)
			for _, partition := range partitions {
				key := PartitionedOffering{
					OfferingKey: catalog.OfferingKey{InstanceType: m.name, Zone: zone, CapacityType: capacityType}, Partition: partition,
				}
				why := m.notLaunchable(key, refused, market)
				switch {
				case why == "" && !priced:
					why = NoPrice
				case why == "" && market.Unavailable != nil && market.Unavailable(key):
					why = NoCapacity
				}
				offerings = append(offerings, catalog.Offering{
					UnavailableReason: lackOfReason[why],
					Zone:              zone, CapacityType: capacityType, Requirements: labels.of(m, key), Price: price,
					PriceDerived: derived, Available: why == "", UnavailableMessage: why,
				})
			}
		}
	}
	return append(offerings, m.reservedOfferings(refused, market)...)
}

// notLaunchable returns why the class cannot launch an offering, whatever its price; empty if it can.
func (m typeForClass) notLaunchable(p PartitionedOffering, refused string, market Market) string {
	switch {
	case refused != "":
		return refused
	case !market.Offered(m.name, p.Zone) || !slices.Contains(market.Zones, p.Zone):
		return NotSold
	case !m.subnetIn(p.Zone):
		return NoSubnet
	case market.ZoneShifted != nil && market.ZoneShifted(p.Zone):
		return ZoneShifted
	}
	return ""
}

func (m typeForClass) price(capacityType, zone string, market Market) (float64, bool) {
	if capacityType == karpv1.CapacityTypeSpot {
		return market.Spot(m.name, zone)
	}
	return market.OnDemand(m.name)
}

// offeringLabels caches the labels of offerings: for one node class, they are the same for every type.
type offeringLabels map[PartitionedOffering]requirement.Set

func (known offeringLabels) of(m typeForClass, p PartitionedOffering) requirement.Set {
	p.InstanceType = ""
	set, ok := known[p]
	if !ok {
		set = requirement.NewSet(append(m.locationLabels(p),
			requirement.DoesNotExist(awsv1.LabelReservationID),
			requirement.DoesNotExist(awsv1.LabelReservationType),
			requirement.DoesNotExist(awsv1.LabelReservationInterruptible))...)
		known[p] = set
	}
	return set
}

// locationLabels returns the labels of every offering in a zone and partition.
func (m typeForClass) locationLabels(p PartitionedOffering) []requirement.Requirement {
	labels := []requirement.Requirement{
		requirement.In(karpv1.LabelCapacityType, p.CapacityType),
		requirement.In(corev1.LabelTopologyZone, p.Zone),
	}
	if id := m.zoneID(p.Zone); id != "" {
		labels = append(labels, requirement.In(awsv1.LabelZoneID, id))
	}
	if p.Partition != "" {
		labels = append(labels, requirement.In(awsv1.LabelPlacementGroupPartition, p.Partition))
	}
	return labels
}
