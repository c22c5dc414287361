package instancetype

import (
	"strconv"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// ReservedDiscount divides the on-demand price of an instance in a reservation. The reservation is paid for whether or
// not it is used, so its price must be far below every other one; but among reserved types the smaller one must stay
// the cheaper.
const ReservedDiscount = 10_000_000

// typicalVCPUPrice is a rough price of a vCPU per hour. It only orders reserved types without a price by size.
const typicalVCPUPrice = 0.05

// reservationsOfType returns the class's reservations of the type.
func (m typeForClass) reservationsOfType() []awsv1.CapacityReservation {
	var out []awsv1.CapacityReservation
	for _, r := range m.class.Reservations {
		if r.InstanceType == m.name {
			out = append(out, r)
		}
	}
	return out
}

// reservedOfferings returns the offerings in reservations, one for each partition of the placement group.
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
			case market.Unavailable != nil && market.Unavailable(key), market.ReservationHealthy != nil && !market.ReservationHealthy(r.ID):
				why = NoCapacity
			case remaining <= 0:
				why = FullReserved
			}
			out = append(out, catalog.Offering{
				Zone: r.AvailabilityZone, CapacityType: karpv1.CapacityTypeReserved, Requirements: m.reservedLabels(r, key),
				Price:         price / ReservedDiscount,
				ReservationID: r.ID, Remaining: remaining, Available: why == "", UnavailableMessage: why,
				UnavailableReason: lackOfReason[why],
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

// absentReservationLabels excludes reservation labels on a type without reservations. On other types each offering has
// them.
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
