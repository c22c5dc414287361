package instancetype

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// ReservedDiscount is what a price on demand is divided by for an instance in a reservation: it is paid for, whether or not
// it is used, but among reserved types the smaller is still the cheaper.
const ReservedDiscount = 10_000_000

// reservations are those of the class that hold instances of the type.
func (m machine) reservations() []awsv1.CapacityReservation {
	var out []awsv1.CapacityReservation
	for _, r := range m.class.Reservations {
		if r.InstanceType == m.name {
			out = append(out, r)
		}
	}
	return out
}

// reserved are the offerings in reservations, one each.
func (m machine) reserved(zones []string, market Market) []catalog.Offering {
	var out []catalog.Offering
	usable := m.compatible()
	price, _ := market.OnDemand(m.name)
	for _, r := range m.reservations() {
		exhausted := market.Unavailable != nil && market.Unavailable(m.name, r.AvailabilityZone, karpv1.CapacityTypeReserved)
		remaining := 0
		if market.Remaining != nil {
			remaining = market.Remaining(r.ID)
		}
		out = append(out, catalog.Offering{
			Zone: r.AvailabilityZone, CapacityType: karpv1.CapacityTypeReserved, Requirements: m.reservedLabels(r), Price: price / ReservedDiscount,
			ReservationID: r.ID, Remaining: remaining,
			Available: usable && remaining > 0 && !exhausted && r.State != reservation.Expiring && slices.Contains(zones, r.AvailabilityZone),
		})
	}
	return out
}

func (m machine) reservedLabels(r awsv1.CapacityReservation) requirement.Set {
	labels := []requirement.Requirement{
		requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved),
		requirement.In(corev1.LabelTopologyZone, r.AvailabilityZone),
		requirement.In(awsv1.LabelReservationID, r.ID),
		requirement.In(awsv1.LabelReservationType, r.ReservationType),
		requirement.In(awsv1.LabelReservationInterruptible, strconv.FormatBool(r.Interruptible)),
	}
	if id := m.zoneID(r.AvailabilityZone); id != "" {
		labels = append(labels, requirement.In(awsv1.LabelZoneID, id))
	}
	return requirement.NewSet(labels...)
}

// withoutReservations rules the labels of reservations out on a type without any. On others each offering says which.
func (m machine) withoutReservations() []requirement.Requirement {
	if len(m.reservations()) > 0 {
		return nil
	}
	return []requirement.Requirement{
		requirement.DoesNotExist(awsv1.LabelReservationID),
		requirement.DoesNotExist(awsv1.LabelReservationType),
		requirement.DoesNotExist(awsv1.LabelReservationInterruptible),
	}
}
