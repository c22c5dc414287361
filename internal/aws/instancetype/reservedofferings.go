package instancetype

import (
	"strconv"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// ReservedDiscount is what a price on demand is divided by for an instance in a reservation: it is paid for, whether or not
// it is used, but among reserved types the smaller is still the cheaper.
const ReservedDiscount = 10_000_000

// typicalVCPUPrice is what a vCPU costs per hour, more or less: the order among reserved types without a price.
const typicalVCPUPrice = 0.05

// reservations are those of the class that hold instances of the type.
func (m typeForClass) reservationsOfType() []awsv1.CapacityReservation {
	var out []awsv1.CapacityReservation
	for _, r := range m.class.Reservations {
		if r.InstanceType == m.name {
			out = append(out, r)
		}
	}
	return out
}

// reserved are the offerings in reservations, one each for every partition of the placement group.
func (m typeForClass) reservedOfferings(refused string, market Market) []catalog.Offering {
	reservations := m.reservationsOfType()
	if len(reservations) == 0 {
		return nil
	}
	var out []catalog.Offering
	price, known := market.OnDemand(m.name)
	if !known || price <= 0 {
		price = typicalVCPUPrice * float64(max(1, m.vcpus()))
	}
	for _, r := range reservations {
		remaining := 0
		if market.Remaining != nil {
			remaining = market.Remaining(r.ID)
		}
		for _, partition := range m.class.partitions() {
			key := PartitionedOffering{
				OfferingKey: catalog.OfferingKey{InstanceType: m.name, Zone: r.AvailabilityZone, CapacityType: karpv1.CapacityTypeReserved},
				Partition:   partition,
			}
			why := m.notLaunchable(key, refused, market)
			switch {
			case why != "":
			case r.State == reservation.Expiring:
				why = EndingReserved
			case remaining <= 0:
				why = FullReserved
			case market.Unavailable != nil && market.Unavailable(key):
				why = NoCapacity
			}
			out = append(out, catalog.Offering{
				Zone: r.AvailabilityZone, CapacityType: karpv1.CapacityTypeReserved, Requirements: m.reservedLabels(r, key), Price: price / ReservedDiscount,
				ReservationID: r.ID, Remaining: remaining, Available: why == "", Why: why,
			})
		}
	}
	return out
}

func (m typeForClass) reservedLabels(r awsv1.CapacityReservation, p PartitionedOffering) requirement.Set {
	return requirement.NewSet(append(m.locationLabels(p),
		requirement.In(awsv1.LabelReservationID, r.ID),
		requirement.In(awsv1.LabelReservationType, r.ReservationType),
		requirement.In(awsv1.LabelReservationInterruptible, strconv.FormatBool(r.Interruptible)))...)
}

// absentReservationLabels rules the labels of reservations out on a type without any. On others each offering says which.
func (m typeForClass) absentReservationLabels() []requirement.Requirement {
	if len(m.reservationsOfType()) > 0 {
		return nil
	}
	return []requirement.Requirement{
		requirement.DoesNotExist(awsv1.LabelReservationID),
		requirement.DoesNotExist(awsv1.LabelReservationType),
		requirement.DoesNotExist(awsv1.LabelReservationInterruptible),
	}
}
