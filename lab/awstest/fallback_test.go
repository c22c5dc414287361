package awstest

import (
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// A spot price that has risen above the limit is a lack of capacity: the claim is given up at once, and the next one
// takes what there is. It makes no difference whether EC2 reports it of one offering or of the whole call.
func TestSpotPriceAboveTheLimitFallsBackToOnDemandAtOnce(t *testing.T) {
	const message = "Your Spot request price of 0.096 is lower than the minimum required Spot request fulfillment price of 0.101."
	either := in(karpv1.LabelCapacityType, "spot", "on-demand")
	for name, fail := range map[string]func(*launchFixture){
		"of an offering": func(s *launchFixture) { s.fail(awsim.Pool{Lifecycle: "spot"}, "SpotMaxPriceTooLow", message) },
		"of the whole call": func(s *launchFixture) {
			s.Sim.Inject(awsim.Fault{Service: "ec2", Action: "CreateFleet", Error: protocol.Errorf("SpotMaxPriceTooLow", "%s", message)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLaunchFixture(t, 1)
			fail(s)
			if got := s.launchOne("x", either, instanceTypes("m5.large"), zones("us-east-1a")); !withoutCapacity(got.err) {
				t.Fatalf("not taken for a lack of capacity: %v", got.err)
			}
			if s.offerings(s.class, "m5.large", "us-east-1a", "spot") || !s.offerings(s.class, "m5.large", "us-east-1b", "spot") {
				t.Error("the offering was not marked, or more than that")
			}
			s.Sim.ClearFaults()
			if got := s.launchOne("y", either, instanceTypes("m5.large"), zones("us-east-1a")); got.err != nil ||
				got.Labels[karpv1.LabelCapacityType] != "on-demand" {
				t.Errorf("the next launch: %s, %v", got.Labels[karpv1.LabelCapacityType], got.err)
			}
		})
	}
}
