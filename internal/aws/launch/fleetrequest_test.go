package launch

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

func failure(code string) Failure {
	return Failure{Code: code, Message: "why", InstanceType: "m5.large", Zone: "a", SubnetID: "subnet-a", CapacityType: "spot"}
}

func TestFailureError(t *testing.T) {
	for _, tc := range []struct {
		name   string
		codes  []string
		scarce bool
		reason string
	}{
		{"no capacity", []string{"InsufficientInstanceCapacity", "UnfulfillableCapacity"}, true, ""},
		{"too many fleets", []string{"MaxFleetCountExceeded"}, true, ""},
		{"the spot price exceeds the limit", []string{"SpotMaxPriceTooLow", "InsufficientInstanceCapacity"}, true, ""},
		{"a reservation is being taken back", []string{"InvalidCapacityReservationState.Unavailable"}, true, ""},
		{"no service-linked role for spot", []string{"AuthFailure.ServiceLinkedRoleCreationNotPermitted"}, true, ""},
		{"no capacity, and not authorized", []string{"InsufficientInstanceCapacity", "UnauthorizedOperation"}, false, "Unauthorized"},
		{"throttled", []string{"RequestLimitExceeded"}, false, "RequestLimitExceeded"},
		{"unheard of", []string{"New"}, false, "LaunchFailed"},
		{"neither instance nor error", nil, false, "LaunchFailed"},
		{"an error without code", []string{""}, false, "LaunchFailed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var all []Failure
			for _, code := range tc.codes {
				all = append(all, failure(code))
			}
			err := failureError(all)
			var scarce *cloudprovider.InsufficientCapacityError
			var create *cloudprovider.CreateError
			if errors.As(err, &scarce) != tc.scarce || (errors.As(err, &create) && create.Reason != tc.reason) || (create == nil) != tc.scarce {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFailuresMarkOfferingsUnavailable(t *testing.T) {
	spot := unavailableofferings.Scope{OfferingKey: catalog.OfferingKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "a"}}
	elsewhere := unavailableofferings.Scope{OfferingKey: catalog.OfferingKey{CapacityType: "spot", InstanceType: "c5.large", Zone: "b"}}
	for _, tc := range []struct {
		code                         string
		offering, allSpot, exhausted bool
	}{
		{"InsufficientInstanceCapacity", true, false, false},
		{"SpotMaxPriceTooLow", true, false, false},
		{"InsufficientFreeAddressesInSubnet", true, false, true},
		{"AuthFailure.ServiceLinkedRoleCreationNotPermitted", true, true, false},
		{"RequestLimitExceeded", false, false, false},
		{"UnauthorizedOperation", false, false, false},
	} {
		t.Run(tc.code, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			m := unavailableofferings.New(func() time.Time { return now })
			var exhausted []string
			markUnavailable([]Failure{failure(tc.code)}, m, func(string, string) {}, func(id string) { exhausted = append(exhausted, id) })
			if m.IsUnavailable(spot, nil) != tc.offering || m.IsUnavailable(elsewhere, nil) != tc.allSpot ||
				slices.Contains(exhausted, "subnet-a") != tc.exhausted {
				t.Errorf("offering %v, all spot %v, exhausted %v", m.IsUnavailable(spot, nil), m.IsUnavailable(elsewhere, nil), exhausted)
			}
			if m.IsUnavailable(elsewhere, []string{"subnet-a"}) != (tc.exhausted || tc.allSpot) {
				t.Error("what the subnet's zone yields does not follow from the subnet")
			}
		})
	}
}

// failureMeter records the failures that a Meter gets.
type failureMeter struct {
	cloudprovider.NoMeter
	said []string
}

func (c *failureMeter) LaunchFailed(zone, zoneID, capacityType, reason string) {
	c.said = append(c.said, strings.Join([]string{zone, zoneID, capacityType, reason}, "/"))
}

func TestFailuresAreMeasured(t *testing.T) {
	in := &fleetCall{CreateFleetInput: &ec2.CreateFleetInput{}, capacityType: "spot", zones: map[string]string{"a": "az1"}}
	fleetError := func(code, message, zone string) ec2types.CreateFleetError {
		return ec2types.CreateFleetError{
			ErrorCode:    &code,
			ErrorMessage: &message,
			LaunchTemplateAndOverrides: &ec2types.LaunchTemplateAndOverridesResponse{
				Overrides: &ec2types.FleetLaunchTemplateOverrides{InstanceType: "m5.large", AvailabilityZone: &zone},
			},
		}
	}
	for _, tc := range []struct {
		name string
		err  ec2types.CreateFleetError
		want string
	}{
		{"a zone of the class's", fleetError("VcpuLimitExceeded", "no", "a"), "a/az1/spot/VCPULimitExceeded"},
		{"an unknown zone and an odd code", fleetError("Odd", "?", "z"), "z//spot/LaunchFailed"},
		{"an error that says nothing at all", ec2types.CreateFleetError{}, "//spot/LaunchFailed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &failureMeter{}
			l := newFakeEC2().start(newOrder()).Launcher
			l.cfg.Meter = c
			l.recordFailures(failures(in, &ec2.CreateFleetOutput{Errors: []ec2types.CreateFleetError{tc.err}}))
			if got := strings.Join(c.said, " "); got != tc.want {
				t.Errorf("counted %s, want %s", got, tc.want)
			}
		})
	}
}

// EC2 may leave out the offering of an error.
func TestErrorWithoutOffering(t *testing.T) {
	m := unavailableofferings.New(time.Now)
	markUnavailable([]Failure{{Code: "InsufficientInstanceCapacity"}}, m, func(string, string) {}, func(string) {})
	if m.Marks() != 0 {
		t.Error("an offering without name was marked")
	}
}
