package instancetype_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

func reservation(id, zone string, change ...func(*awsv1.CapacityReservation)) awsv1.CapacityReservation {
	r := awsv1.CapacityReservation{ID: id, InstanceType: "m5.large", AvailabilityZone: zone, ReservationType: "default", State: "active"}
	for _, f := range change {
		f(&r)
	}
	return r
}

func TestReservedOfferings(t *testing.T) {
	c := class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) {
		c.Reservations = []awsv1.CapacityReservation{
			reservation("cr-1", "us-east-1a"),
			reservation(
				"cr-2",
				"us-east-1b",
				func(r *awsv1.CapacityReservation) { r.ReservationType, r.Interruptible = "capacity-block", true },
			),
			reservation("cr-full", "us-east-1a"),
			reservation("cr-no-subnet", "us-east-1c"),
			reservation("cr-refused", "us-east-1a"),
			reservation("cr-ending", "us-east-1a", func(r *awsv1.CapacityReservation) { r.State = "expiring" }),
		}
	})
	m := market()
	m.Remaining = func(id string) int { return map[bool]int{true: 2}[id != "cr-full" && id != "cr-refused"] }
	m.ReservationHealthy = func(id string) bool { return id != "cr-refused" }
	it := resolved(t, settings, info(t, "m5.large"), c, m)
	got := map[string]string{}
	for _, o := range it.Offerings {
		if o.ReservationID == "" {
			if o.Requirements.Get(awsv1.LabelReservationID).Operator() != corev1.NodeSelectorOpDoesNotExist {
				t.Errorf("%s in %s may be in a reservation", o.CapacityType, o.Zone)
			}
			continue
		}
		id, _ := o.Requirements.Get(awsv1.LabelReservationID).Single()
		kind, _ := o.Requirements.Get(awsv1.LabelReservationType).Single()
		lent, _ := o.Requirements.Get(awsv1.LabelReservationInterruptible).Single()
		if id != o.ReservationID || o.CapacityType != karpv1.CapacityTypeReserved {
			t.Errorf("%+v", o)
		}
		got[id] = fmt.Sprintf("%s %s %s %.0e %d %v %s", o.Zone, kind, lent, o.Price, o.Remaining, o.Available, o.UnavailableReason)
	}
	want := map[string]string{
		"cr-1":         "us-east-1a default false 1e-07 2 true ",
		"cr-2":         "us-east-1b capacity-block true 1e-07 2 true ",
		"cr-full":      "us-east-1a default false 1e-07 0 false full",
		"cr-refused":   "us-east-1a default false 1e-07 0 false ",
		"cr-no-subnet": "us-east-1c default false 1e-07 2 false place",
		"cr-ending":    "us-east-1a default false 1e-07 2 false ",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant\n%v", got, want)
	}
	if !it.Requirements.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeReserved) {
		t.Error("the type is not known to be reserved")
	}
	asked := requirement.NewSet(requirement.In(awsv1.LabelReservationID, "cr-1"))
	other := resolved(t, settings, info(t, "m5.xlarge"), c, m)
	if !asked.Overlaps(it.Requirements) || asked.Overlaps(other.Requirements) ||
		other.Requirements.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeReserved) {
		t.Error("a type without the reservation matches its ID")
	}
}

// Without counts, as while the feature is off, no reservation is used.
func TestReservationsNobodyCounts(t *testing.T) {
	c := class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) {
		c.Reservations = []awsv1.CapacityReservation{reservation("cr-1", "us-east-1a")}
	})
	for _, o := range resolve(t, "m5.large", c).Offerings {
		if o.ReservationID != "" && o.Available {
			t.Errorf("%+v", o)
		}
	}
}
