package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// TestEventualConsistency: what was just made is unknown to some calls for a while, and known to them afterwards.
func TestEventualConsistency(t *testing.T) {
	a := open(t)
	timing := awsim.DefaultTiming()
	timing.TemplateVisible, timing.ProfileVisible = time.Second, 10*time.Second
	id := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf(*a.template(t, "old", nil).LaunchTemplateName, 1, "m5.large")))(t))[0]
	ids := []string{id}
	a.Sim.SetTiming(timing)
	a.template(t, "new", nil)
	profiles := iam.NewFromConfig(a.Config)
	must(profiles.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("fresh")}))(t)
	launch := func(profile string) error {
		_, err := a.RunInstances(t.Context(), &awsec2.RunInstancesInput{
			DryRun: aws.Bool(true), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", ImageId: aws.String(a.x86),
			SubnetId: aws.String(a.subnets[0]), IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: aws.String(profile)},
		})
		return err
	}
	rows := []struct {
		name, early, late string
		call              func() error
	}{
		{"describe the instance", "InvalidInstanceID.NotFound", "", func() error {
			_, err := a.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{InstanceIds: ids})
			return err
		}},
		{"tag the instance", "InvalidInstanceID.NotFound", "", func() error {
			_, err := a.CreateTags(t.Context(), &awsec2.CreateTagsInput{Resources: ids, Tags: tags("Name", "me")})
			return err
		}},
		{"end the instance", "InvalidInstanceID.NotFound", "DryRunOperation", func() error {
			_, err := a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: ids, DryRun: aws.Bool(true)})
			return err
		}},
		{"template by name", "InvalidLaunchTemplateName.NotFoundException", "", func() error {
			_, err := a.DescribeLaunchTemplates(t.Context(), &awsec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"new"}})
			return err
		}},
		{"launch from the template", "InvalidLaunchTemplateName.NotFoundException", "DryRunOperation", func() error {
			in := a.fleetOf("new", 1, "m5.large")
			in.DryRun = aws.Bool(true)
			_, err := a.CreateFleet(t.Context(), in)
			return err
		}},
		{
			"make the template again",
			"InvalidLaunchTemplateName.AlreadyExistsException",
			"InvalidLaunchTemplateName.AlreadyExistsException",
			func() error {
				_, err := a.CreateLaunchTemplate(t.Context(), &awsec2.CreateLaunchTemplateInput{
					LaunchTemplateName: aws.String("new"), LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String(a.x86)},
				})
				return err
			},
		},
	}
	for _, row := range rows {
		if got := awsimtest.Code(row.call()); got != row.early {
			t.Errorf("%s, early: %q, want %q", row.name, got, row.early)
		}
	}
	if n := len(must(a.DescribeLaunchTemplates(t.Context(), nil))(t).LaunchTemplates); n != 1 {
		t.Errorf("%d templates are listed early, want the old one", n)
	}
	a.Clock.Advance(time.Second)
	for _, row := range rows {
		if got := awsimtest.Code(row.call()); got != row.late {
			t.Errorf("%s, late: %q, want %q", row.name, got, row.late)
		}
	}

	profile := func(when, code, text string) {
		t.Helper()
		err := launch("fresh")
		if awsimtest.Code(err) != code || !contains(err, text) {
			t.Errorf("%s: %v; want %s with %q", when, err, code, text)
		}
	}
	profile("a new profile", "InvalidParameterValue", "Invalid IAM Instance Profile name")
	a.Clock.Advance(10 * time.Second)
	must(profiles.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: aws.String("fresh"), RoleName: aws.String("node"),
	}))(t)
	profile("a profile with a new role", "InvalidParameterValue", "has no associated IAM Roles")
	a.Clock.Advance(10 * time.Second)
	profile("an old profile", "DryRunOperation", "")
}
