package ec2_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// into makes a template use reservations as preference and target state.
func into(preference types.CapacityReservationPreference, id string, market types.MarketType) func(*types.RequestLaunchTemplateData) {
	return func(d *types.RequestLaunchTemplateData) {
		d.CapacityReservationSpecification = &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: preference,
		}
		if id != "" {
			d.CapacityReservationSpecification.CapacityReservationTarget = &types.CapacityReservationTarget{
				CapacityReservationId: aws.String(id),
			}
		}
		if market != "" {
			d.InstanceMarketOptions = &types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: market}
		}
	}
}

// reserve adds a reservation of m5.large in the first zone.
func (a *account) reserve(t testing.TB, total int, edit func(*awsim.CapacityReservation)) string {
	t.Helper()
	r := awsim.CapacityReservation{
		InstanceType: "m5.large",
		Zone:         "us-east-1a",
		Total:        total,
		Targeted:     true,
		Tags:         map[string]string{"team": "ml"},
	}
	if edit != nil {
		edit(&r)
	}
	return must(a.Sim.AddCapacityReservation(r))(t)
}

// available is how many more instances the reservations take, as the API shows them.
func (a *account) available(t testing.TB) map[string]int32 {
	t.Helper()
	out := map[string]int32{}
	for _, r := range must(a.DescribeCapacityReservations(t.Context(), &awsec2.DescribeCapacityReservationsInput{}))(t).CapacityReservations {
		out[*r.CapacityReservationId] = *r.AvailableInstanceCount
	}
	return out
}

// inZoneA requests n m5.large in the first zone.
func (a *account) inZoneA(template string, n int32) *awsec2.CreateFleetInput {
	in := a.fleetOf(template, n, "m5.large")
	in.LaunchTemplateConfigs[0].Overrides = in.LaunchTemplateConfigs[0].Overrides[:1]
	return in
}

func TestLaunchIntoAReservation(t *testing.T) {
	a := open(t)
	id := a.reserve(t, 2, nil)
	a.template(t, "reserved", into("capacity-reservations-only", id, ""))
	a.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large"}, 0) // what is reserved is there all the same
	out := must(a.CreateFleet(t.Context(), a.inZoneA("reserved", 3)))(t)
	if n := len(launchedIDs(out)); n != 2 || len(out.Errors) != 1 || *out.Errors[0].ErrorCode != "ReservationCapacityExceeded" {
		t.Fatalf("%d instances, errors %v", n, out.Errors)
	}
	if left := a.available(t)[id]; left != 0 {
		t.Errorf("%d left", left)
	}
	a.Clock.Advance(time.Minute)
	for _, i := range a.describe(t, types.Filter{Name: aws.String("capacity-reservation-id"), Values: []string{id}}) {
		if *i.CapacityReservationId != id ||
			i.CapacityReservationSpecification.CapacityReservationPreference != "capacity-reservations-only" {
			t.Errorf("instance %s: reservation %v, %+v", *i.InstanceId, i.CapacityReservationId, i.CapacityReservationSpecification)
		}
	}
	must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: launchedIDs(out)[:1]}))(t)
	if left := a.available(t)[id]; left != 0 {
		t.Errorf("%d left while the instance shuts down", left)
	}
	a.Clock.Advance(time.Minute)
	if left := a.available(t)[id]; left != 1 {
		t.Errorf("%d left after one instance is gone", left)
	}
}

func TestWhoUsesAReservation(t *testing.T) {
	for _, c := range []struct {
		name       string
		targeted   bool
		preference types.CapacityReservationPreference
		target     bool
		want       string // code, or whether the instance is in the reservation
	}{
		{"an open one takes what says nothing", false, "", false, "true"},
		{"and what says open", false, "open", false, "true"},
		{"and what wants any", false, "capacity-reservations-only", false, "true"},
		{"but not what avoids reservations", false, "none", false, "false"},
		{"a targeted one takes only what names it", true, "open", false, "false"},
		{"and does so", true, "capacity-reservations-only", true, "true"},
		{"also without a preference", true, "", true, "true"},
		{"what wants any does not get a targeted one", true, "capacity-reservations-only", false, "ReservationCapacityExceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := open(t)
			id := a.reserve(t, 1, func(r *awsim.CapacityReservation) { r.Targeted = c.targeted })
			target := ""
			if c.target {
				target = id
			}
			a.template(t, "general", into(c.preference, target, ""))
			out := must(a.CreateFleet(t.Context(), a.inZoneA("general", 1)))(t)
			got := ""
			for _, e := range out.Errors {
				got += *e.ErrorCode
			}
			for _, i := range a.Sim.Instances() {
				got += fmt.Sprint(i.CapacityReservationID == id)
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestReservationsThatDoNotTakeAnInstance(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*account, *awsim.CapacityReservation)
		market types.MarketType
		code   string
	}{
		"another type": {
			func(_ *account, r *awsim.CapacityReservation) { r.InstanceType = "m5.xlarge" }, "",
			"ReservationCapacityExceeded",
		},
		"another zone": {func(_ *account, r *awsim.CapacityReservation) { r.Zone = "us-east-1b" }, "", "ReservationCapacityExceeded"},
		"not yet": {
			func(a *account, r *awsim.CapacityReservation) { r.Start = a.Clock.Now().Add(time.Hour) }, "",
			"ReservationCapacityExceeded",
		},
		"no longer": {func(a *account, r *awsim.CapacityReservation) { r.End = a.Clock.Now() }, "", "ReservationCapacityExceeded"},
		"a block, unasked": {
			func(a *account, r *awsim.CapacityReservation) { r.Block, r.End = true, a.Clock.Now().Add(24*time.Hour) }, "",
			"ReservationCapacityExceeded",
		},
		"a block, by fleet":  {nil, "capacity-block", "InvalidParameterCombination"},
		"interruptible only": {func(_ *account, r *awsim.CapacityReservation) { r.Interruptible = true }, "", "ReservationCapacityExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			a := open(t)
			id := a.reserve(t, 1, func(r *awsim.CapacityReservation) {
				if c.edit != nil {
					c.edit(a, r)
				}
			})
			a.template(t, "reserved", into("capacity-reservations-only", id, c.market))
			out := must(a.CreateFleet(t.Context(), a.inZoneA("reserved", 1)))(t)
			if len(out.Instances) > 0 || len(out.Errors) != 1 || *out.Errors[0].ErrorCode != c.code {
				t.Errorf("%+v", out)
			}
		})
	}
}

func TestMarketsOfReservations(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*awsim.CapacityReservation)
		market types.MarketType
		fleet  func(*awsec2.CreateFleetInput)
	}{
		"capacity-block": {
			func(r *awsim.CapacityReservation) { r.Block = true }, types.MarketTypeCapacityBlock,
			func(in *awsec2.CreateFleetInput) {
				in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeCapacityBlock
			},
		},
		"interruptible-capacity-reservation": {
			func(r *awsim.CapacityReservation) { r.Interruptible = true }, types.MarketTypeInterruptibleCapacityReservation,
			func(in *awsec2.CreateFleetInput) {
				in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeReservedCapacity
				in.ReservedCapacityOptions = &types.ReservedCapacityOptionsRequest{ReservationTypes: []types.FleetReservationType{types.FleetReservationTypeInterruptibleCapacityReservation}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := open(t)
			end := a.Clock.Now().Add(24 * time.Hour)
			id := a.reserve(t, 1, func(r *awsim.CapacityReservation) {
				r.End = end
				c.edit(r)
			})
			a.template(t, "reserved", into("capacity-reservations-only", id, c.market))
			in := a.inZoneA("reserved", 1)
			c.fleet(in)
			out := must(a.CreateFleet(t.Context(), in))(t)
			if len(out.Instances) != 1 || string(out.Instances[0].Lifecycle) != name {
				t.Fatalf("%+v", out)
			}
			a.Clock.Advance(time.Minute)
			if i := a.describe(t)[0]; string(i.InstanceLifecycle) != name || *i.CapacityReservationId != id {
				t.Errorf("lifecycle %s, reservation %v", i.InstanceLifecycle, i.CapacityReservationId)
			}
			// Half an hour before its end EC2 takes the instances of a block. Others stay, and leave the reservation when it
			// finishes.
			a.Clock.Advance(end.Sub(a.Clock.Now()) - 29*time.Minute)
			if i := a.Sim.Instances()[0]; (i.State == "terminated") != (name == "capacity-block") ||
				(i.CapacityReservationID == id) != (i.State == "running") {
				t.Errorf("before the end: %s in reservation %q", i.State, i.CapacityReservationID)
			}
			a.Clock.Advance(30 * time.Minute)
			if i := a.Sim.Instances()[0]; i.CapacityReservationID != "" || (i.State == "running") != (name != "capacity-block") {
				t.Errorf("after the end: %s in reservation %q", i.State, i.CapacityReservationID)
			}
		})
	}
}

func TestDescribeCapacityReservations(t *testing.T) {
	a := open(t)
	first := a.reserve(t, 3, nil)
	second := a.reserve(t, 5, func(r *awsim.CapacityReservation) {
		r.Targeted, r.Tags, r.OwnerID, r.InstanceType, r.End = false, nil, "999988887777", "c5.large", a.Clock.Now().Add(time.Hour)
	})
	filter := func(name, value string) []types.Filter {
		return []types.Filter{{Name: aws.String(name), Values: []string{value}}}
	}
	for _, c := range []struct {
		name string
		in   awsec2.DescribeCapacityReservationsInput
		want []string
		code string
	}{
		{"all", awsec2.DescribeCapacityReservationsInput{}, []string{first, second}, ""},
		{
			"by ID",
			awsec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{second}, Filters: filter("state", "active")},
			[]string{second},
			"",
		},
		{
			"by owner",
			awsec2.DescribeCapacityReservationsInput{Filters: filter("owner-id", "999988887777"), MaxResults: aws.Int32(1000)},
			[]string{second},
			"",
		},
		{"by tag", awsec2.DescribeCapacityReservationsInput{Filters: filter("tag:team", "ml")}, []string{first}, ""},
		{"by criteria", awsec2.DescribeCapacityReservationsInput{Filters: filter("instance-match-criteria", "open")}, []string{second}, ""},
		{"by state", awsec2.DescribeCapacityReservationsInput{Filters: filter("state", "expired")}, nil, ""},
		{
			"unknown ID",
			awsec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{first, "cr-0123456789abcdef0"}},
			nil,
			"InvalidCapacityReservationId.NotFound",
		},
		{"no ID", awsec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{"x"}}, nil, "InvalidCapacityReservationId.Malformed"},
		{
			"IDs by page",
			awsec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{first}, MaxResults: aws.Int32(5)},
			nil,
			"InvalidParameterCombination",
		},
		{"unknown filter", awsec2.DescribeCapacityReservationsInput{Filters: filter("colour", "red")}, nil, "InvalidParameterValue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := a.DescribeCapacityReservations(t.Context(), &c.in)
			if code := awsimtest.Code(err); code != c.code {
				t.Fatal(err)
			}
			got := map[string]bool{}
			if err == nil {
				for _, r := range out.CapacityReservations {
					got[*r.CapacityReservationId] = true
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			for _, id := range c.want {
				if !got[id] {
					t.Errorf("%v, want %v", got, c.want)
				}
			}
		})
	}
	a.Clock.Advance(2 * time.Hour)
	if err := a.Sim.CancelCapacityReservation(first); err != nil {
		t.Fatal(err)
	}
	states := map[string]types.CapacityReservationState{}
	for _, r := range must(a.DescribeCapacityReservations(t.Context(), &awsec2.DescribeCapacityReservationsInput{}))(t).CapacityReservations {
		states[*r.CapacityReservationId] = r.State
	}
	if states[first] != "cancelled" || states[second] != "expired" {
		t.Errorf("%v", states)
	}
}

// The owner of an interruptible reservation takes a place back: the instance terminates after its notice, and no other takes its place.
func TestAReclaimedPlaceIsNotGivenAgain(t *testing.T) {
	a := open(t)
	id := a.reserve(t, 1, func(r *awsim.CapacityReservation) { r.Interruptible = true })
	a.template(t, "reserved", into("capacity-reservations-only", id, types.MarketTypeInterruptibleCapacityReservation))
	launch := func() *awsec2.CreateFleetOutput {
		in := a.inZoneA("reserved", 1)
		in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeReservedCapacity
		in.ReservedCapacityOptions = &types.ReservedCapacityOptionsRequest{
			ReservationTypes: []types.FleetReservationType{types.FleetReservationTypeInterruptibleCapacityReservation},
		}
		return must(a.CreateFleet(t.Context(), in))(t)
	}
	places := func() (total, available int) {
		r := a.Sim.EC2().CapacityReservations()[0]
		return r.Total, r.Available
	}
	instance := launch().Instances[0].InstanceIds[0]
	a.Clock.Advance(time.Minute)
	if err := a.Sim.EC2().ReclaimReservation(instance); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, 5 * time.Minute} {
		a.Clock.Advance(after)
		if total, available := places(); total != 0 || available != 0 {
			t.Errorf("%s after the warning, %d of %d places are free", after, available, total)
		}
		if out := launch(); len(out.Instances) > 0 {
			t.Errorf("%s after the warning, another instance is launched into the place", after)
		}
	}
	if i := a.Sim.Instances()[0]; i.State != "terminated" {
		t.Errorf("the instance is %s", i.State)
	}
}
