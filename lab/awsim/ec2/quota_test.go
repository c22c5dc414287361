package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Quotas count vCPUs of a class and lifecycle that run; what finishes gives its own back.
func TestQuotas(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	if err := a.Sim.EC2().SetQuota("on-demand", "standard", 5); err != nil {
		t.Fatal(err)
	}
	code := func(in *ec2.CreateFleetInput) string {
		in.ClientToken = nil
		out := must(a.CreateFleet(t.Context(), in))(t)
		if len(out.Instances) > 0 {
			return ""
		}
		return *out.Errors[0].ErrorCode
	}
	large := a.fleetOf("general", 1, "m5.large") // 2 vCPUs
	for _, want := range []string{"", "", "VcpuLimitExceeded"} {
		if got := code(large); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := code(a.fleetOf("general", 1, "x2idn.16xlarge")); got != "" {
		t.Errorf("another class: %q", got)
	}
	spot := a.fleetOf("general", 1, "m5.large")
	spot.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeSpot
	if got := code(spot); got != "" {
		t.Errorf("another lifecycle: %q", got)
	}
	if err := a.Sim.EC2().SetQuota("spot", "standard", 3); err != nil {
		t.Fatal(err)
	}
	if got := code(spot); got != "MaxSpotInstanceCountExceeded" {
		t.Errorf("spot beyond its quota: %q", got)
	}
	for _, i := range a.Sim.Instances() {
		if i.Lifecycle == "" && i.Type == "m5.large" {
			a.Clock.Advance(time.Second)
			must(a.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{i.ID}}))(t)
			break
		}
	}
	if got := code(large); got != "" {
		t.Errorf("after one has ended: %q", got)
	}
	if err := a.Sim.EC2().SetQuota("on-demand", "m5", 1); err == nil {
		t.Error("a class that there is not")
	}
}
