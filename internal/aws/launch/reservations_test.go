package launch

import (
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// reservedOffering is an offering in a reservation with n free instances.
func reservedOffering(r cloudprovider.Reservation, price float64, zone string, n int) catalog.Offering {
	o := offering("reserved", price, zone)
	o.ReservationID, o.Remaining = r.ID, n
	o.Requirements = o.Requirements.With(
		requirement.In(awsv1.LabelReservationID, r.ID),
		requirement.In(awsv1.LabelReservationType, r.Type),
		requirement.In(awsv1.LabelReservationInterruptible, strconv.FormatBool(r.Interruptible)),
	)
	return o
}

func defaultReservation(id string) cloudprovider.Reservation {
	return cloudprovider.Reservation{ID: id, Type: reservation.Default}
}

func blockReservation(id string) cloudprovider.Reservation {
	return cloudprovider.Reservation{ID: id, Type: reservation.Block}
}

func interruptibleReservation(id string) cloudprovider.Reservation {
	return cloudprovider.Reservation{ID: id, Type: reservation.Default, Interruptible: true}
}

func TestReservationChoice(t *testing.T) {
	const a, b = "us-east-1a", "us-east-1b"
	all := []requirement.Requirement{requirement.In("karpenter.sh/capacity-type", "reserved", "spot", "on-demand")}
	for _, tc := range []struct {
		name  string
		reqs  []requirement.Requirement
		types []*catalog.InstanceType
		want  string // type zone reservation, in order
	}{
		{"reserved comes first, and alone", all, []*catalog.InstanceType{
			instanceType("x", nil, offering("on-demand", 0.1, a), offering("spot", 0.05, a)), instanceType("y", nil, offering("on-demand", 0.2, a),
				reservedOffering(defaultReservation("cr-1"), 1e-8, a, 1)),
		}, "y us-east-1a cr-1"},
		{"both zones of a type", all, []*catalog.InstanceType{instanceType("x", nil, reservedOffering(defaultReservation("cr-1"), 1e-8, a, 1),
			reservedOffering(defaultReservation("cr-2"), 1e-8, b, 1))}, "x us-east-1a cr-1, x us-east-1b cr-2"},
		{"in a zone the one with most room", all, []*catalog.InstanceType{instanceType("x", nil, reservedOffering(defaultReservation("cr-1"),
			1e-8, a, 1), reservedOffering(defaultReservation("cr-2"), 1e-8, a, 5))}, "x us-east-1a cr-2"},
		{"one kind only, the cheapest: here one that is lent", all, []*catalog.InstanceType{
			instanceType("x", nil, reservedOffering(defaultReservation("cr-1"), 2e-8, a, 1)), instanceType("y", nil,
				reservedOffering(interruptibleReservation("cr-2"), 1e-8, a, 1)),
		}, "y us-east-1a cr-2"},
		{"at one price plain ones before blocks", all, []*catalog.InstanceType{
			instanceType("x", nil, reservedOffering(blockReservation("cr-1"), 1e-8, a, 1), reservedOffering(interruptibleReservation("cr-2"), 1e-8,
				a, 1), reservedOffering(defaultReservation("cr-3"), 1e-8, a, 1)),
		}, "x us-east-1a cr-3"},
		{"at one price blocks before those that are lent", all, []*catalog.InstanceType{
			instanceType("x", nil, reservedOffering(interruptibleReservation("cr-1"), 1e-8, a, 1)), instanceType("y", nil,
				reservedOffering(blockReservation("cr-2"), 1e-8, a, 1)),
		}, "y us-east-1a cr-2"},
		{"a single block", all, []*catalog.InstanceType{
			instanceType("x", nil, reservedOffering(blockReservation("cr-1"), 1e-8, a, 1), reservedOffering(blockReservation("cr-2"), 1e-8, b, 1)),
			instanceType("y", nil, reservedOffering(blockReservation("cr-3"), 1e-8, a, 1)),
		}, "x us-east-1a cr-1"},
		{"none is left", all, []*catalog.InstanceType{
			instanceType("x", nil, offering("on-demand", 0.1, a), func() catalog.Offering {
				o := reservedOffering(defaultReservation("cr-1"), 1e-8, a, 0)
				o.Available = false
				return o
			}()),
		}, "x us-east-1a "},
		{"not allowed", []requirement.Requirement{requirement.In("karpenter.sh/capacity-type", "on-demand")}, []*catalog.InstanceType{
			instanceType("x", nil, offering("on-demand", 0.1, a), reservedOffering(defaultReservation("cr-1"), 1e-8, a, 1)),
		}, "x us-east-1a "},
		{"only the requested one", []requirement.Requirement{requirement.In(awsv1.LabelReservationID, "cr-2")}, []*catalog.InstanceType{
			instanceType("x", nil, reservedOffering(defaultReservation("cr-1"), 1e-8, a, 9), reservedOffering(defaultReservation("cr-2"), 1e-8, a,
				1)),
		}, "x us-east-1a cr-2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, err := candidates(tc.types, requirement.NewSet(tc.reqs...), nil, false)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range found {
				for _, o := range c.offerings {
					got = append(got, c.Name+" "+o.Zone+" "+o.ReservationID)
				}
			}
			if s := strings.Join(got, ", "); s != tc.want {
				t.Errorf("%q, want %q", s, tc.want)
			}
		})
	}
}

func TestTemplatePerReservation(t *testing.T) {
	t.Run("reservations of one type in two zones have a launch template each", func(t *testing.T) {
		const a, b = "us-east-1a", "us-east-1b"
		o := newOrder(
			instanceType(
				"x",
				nil,
				reservedOffering(defaultReservation("cr-1"), 1e-8, a, 1),
				reservedOffering(defaultReservation("cr-2"), 1e-8, b, 1),
			),
		)
		o.Class.Status.Subnets = append(o.Class.Status.Subnets, awsv1.Subnet{ID: "subnet-b", Zone: b, ZoneID: "use1-az2"})
		f := fleetFor(t, o)
		if len(f.configs) != 2 ||
			*f.configs[0].LaunchTemplateSpecification.LaunchTemplateName == *f.configs[1].LaunchTemplateSpecification.LaunchTemplateName ||
			len(f.configs[0].Overrides) != 1 ||
			len(f.configs[1].Overrides) != 1 {
			t.Errorf("%+v", f.configs)
		}
	})
}

func TestFleetOfReservations(t *testing.T) {
	for _, tc := range []struct {
		r        cloudprovider.Reservation
		target   ec2types.DefaultTargetCapacityType
		onDemand bool
		reserved bool
		market   ec2types.MarketType
	}{
		{defaultReservation("cr-1"), "on-demand", true, false, ""},
		{blockReservation("cr-1"), "capacity-block", false, false, "capacity-block"},
		{interruptibleReservation("cr-1"), "reserved-capacity", false, true, "interruptible-capacity-reservation"},
	} {
		in := fleet{capacityType: "reserved", sample: tc.r}.input()
		if in.TargetCapacitySpecification.DefaultTargetCapacityType != tc.target || (in.OnDemandOptions != nil) != tc.onDemand ||
			(in.ReservedCapacityOptions != nil) != tc.reserved || in.SpotOptions != nil {
			t.Errorf("%+v: %+v", tc.r, in)
		}
		data := &ec2types.RequestLaunchTemplateData{}
		setReservation(data, tc.r)
		spec, market := data.CapacityReservationSpecification, ec2types.MarketType("")
		if data.InstanceMarketOptions != nil {
			market = data.InstanceMarketOptions.MarketType
		}
		if spec.CapacityReservationPreference != "capacity-reservations-only" ||
			*spec.CapacityReservationTarget.CapacityReservationId != "cr-1" ||
			market != tc.market {
			t.Errorf("%+v: template %+v, market %q", tc.r, spec, market)
		}
	}
}

// An error about a reservation marks the reservation, not the on-demand or spot offering of the type.
func TestReservationIsFull(t *testing.T) {
	for code, want := range map[string]string{
		"ReservationCapacityExceeded": "full ", "InsufficientInstanceCapacity": "unavailable ",
		"InvalidCapacityReservationState.Unavailable": "unavailable ", "RequestLimitExceeded": "",
	} {
		in := &fleetCall{
			CreateFleetInput: &ec2.CreateFleetInput{}, capacityType: "reserved",
			reservations: map[catalog.OfferingKey]cloudprovider.Reservation{reservedKey("m5.large", "a"): defaultReservation("cr-1")},
		}
		out := &ec2.CreateFleetOutput{Errors: []ec2types.CreateFleetError{{
			ErrorCode: aws.String(code), LaunchTemplateAndOverrides: &ec2types.LaunchTemplateAndOverridesResponse{
				Overrides: &ec2types.FleetLaunchTemplateOverrides{InstanceType: "m5.large", AvailabilityZone: aws.String("a")},
			},
		}}}
		l, said := newFakeEC2().start(newOrder()).Launcher, reservationLog{}
		l.cfg.Reservations = said
		l.recordFailures(failures(in, out))
		if said["cr-1"] != want || l.cfg.UnavailableOfferings.Marks() != 0 {
			t.Errorf("%s: the reservation is %q, %d offerings unavailable", code, said["cr-1"], l.cfg.UnavailableOfferings.Marks())
		}
	}
}
