package ec2_test

import (
	"slices"
	"testing"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
)

// TestFirstSpotInstance: who launches the first spot instance of an account must be allowed to make the role that spot
// needs.
func TestFirstSpotInstance(t *testing.T) {
	const (
		allow  = `{"Effect":"Allow","Action":"*","Resource":"*"}`
		forbid = `{"Effect":"Deny","Action":"iam:CreateServiceLinkedRole","Resource":"*"}`
		code   = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
	)
	a := open(t)
	a.template(t, "general", nil)
	as := func(name, statements string) *awsec2.Client {
		must(a.Sim.IAM().CreateRole(iam.Role{Name: name, TrustPolicy: `{"Statement":[]}`}))(t)
		if err := a.Sim.IAM().PutRolePolicy(name, "inline", `{"Version":"2012-10-17","Statement":[`+statements+`]}`); err != nil {
			t.Fatal(err)
		}
		return awsec2.NewFromConfig(a.As(must(a.Sim.RoleCredentials(name))(t)))
	}
	launch := func(c *awsec2.Client, target types.DefaultTargetCapacityType) []string {
		in := a.fleetOf("general", 1, "m5.large")
		in.TargetCapacitySpecification.DefaultTargetCapacityType = target
		out := must(c.CreateFleet(t.Context(), in))(t)
		var codes []string
		for _, e := range out.Errors {
			codes = append(codes, *e.ErrorCode)
		}
		return append(codes, launchedIDs(out)...)
	}
	may, mayNot := as("may", allow), as("may-not", allow+","+forbid)
	const spot, onDemand = types.DefaultTargetCapacityTypeSpot, types.DefaultTargetCapacityTypeOnDemand
	if got := launch(mayNot, spot); len(got) != 1 || got[0] == code {
		t.Errorf("in an account that has the role: %v", got)
	}
	a.Sim.EC2().ForgetSpotRole()
	if got := launch(mayNot, spot); !slices.Equal(got, []string{code, code, code}) {
		t.Errorf("without the right: %v", got)
	}
	if got := launch(mayNot, onDemand); len(got) != 1 || got[0] == code {
		t.Errorf("on demand: %v", got)
	}
	run := func() string {
		one, dry := int32(1), true
		_, err := mayNot.RunInstances(t.Context(), &awsec2.RunInstancesInput{
			DryRun: &dry, MinCount: &one, MaxCount: &one, ImageId: &a.x86, InstanceType: "m5.large", SubnetId: &a.subnets[0],
			InstanceMarketOptions: &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot},
		})
		return awsimtest.Code(err)
	}
	if got := run(); got != code {
		t.Errorf("dry run without the right: %s", got)
	}
	if got := launch(may, spot); len(got) != 1 || got[0] == code {
		t.Errorf("with the right: %v", got)
	}
	if got := run(); got != "DryRunOperation" {
		t.Errorf("dry run once the role is there: %s", got)
	}
	if got := launch(mayNot, spot); len(got) != 1 || got[0] == code {
		t.Errorf("once the role is there: %v", got)
	}
}
