package ec2_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// TestLaunchTemplateRoundTrip writes a full template and reads it again.
func TestLaunchTemplateRoundTrip(t *testing.T) {
	a := open(t)
	created := a.template(t, "karpenter.k8s.aws/123", func(d *types.RequestLaunchTemplateData) {
		d.Monitoring = &types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(true)}
		d.Placement = &types.LaunchTemplatePlacementRequest{Tenancy: types.TenancyDedicated}
		d.EnclaveOptions = &types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(false)}
		d.CapacityReservationSpecification = &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: types.CapacityReservationPreferenceNone,
		}
	})
	out := must(
		a.DescribeLaunchTemplateVersions(
			t.Context(),
			&awsec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: created.LaunchTemplateId},
		),
	)(
		t,
	)
	want := types.ResponseLaunchTemplateData{
		ImageId: aws.String(a.x86), UserData: aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/bash\n"))),
		IamInstanceProfile: &types.LaunchTemplateIamInstanceProfileSpecification{Name: aws.String(profileName)},
		NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecification{
			{DeviceIndex: aws.Int32(0), Groups: []string{a.group}},
		},
		MetadataOptions: &types.LaunchTemplateInstanceMetadataOptions{
			HttpTokens: types.LaunchTemplateHttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(2),
		},
		BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMapping{{
			DeviceName: aws.String("/dev/xvda"),
			Ebs: &types.LaunchTemplateEbsBlockDevice{
				VolumeSize: aws.Int32(40),
				VolumeType: types.VolumeTypeGp3,
				Encrypted:  aws.Bool(true),
			},
		}},
		TagSpecifications: []types.LaunchTemplateTagSpecification{
			{ResourceType: types.ResourceTypeNetworkInterface, Tags: tags("from", "template")},
		},
		Monitoring:     &types.LaunchTemplatesMonitoring{Enabled: aws.Bool(true)},
		Placement:      &types.LaunchTemplatePlacement{Tenancy: types.TenancyDedicated},
		EnclaveOptions: &types.LaunchTemplateEnclaveOptions{Enabled: aws.Bool(false)},
		CapacityReservationSpecification: &types.LaunchTemplateCapacityReservationSpecificationResponse{
			CapacityReservationPreference: types.CapacityReservationPreferenceNone,
		},
	}
	exported := cmpopts.IgnoreUnexported(
		types.ResponseLaunchTemplateData{},
		types.LaunchTemplateIamInstanceProfileSpecification{},
		types.LaunchTemplateInstanceMetadataOptions{},
		types.LaunchTemplateInstanceNetworkInterfaceSpecification{},
		types.LaunchTemplateBlockDeviceMapping{},
		types.LaunchTemplateEbsBlockDevice{},
		types.LaunchTemplateTagSpecification{},
		types.Tag{},
		types.LaunchTemplatesMonitoring{},
		types.LaunchTemplatePlacement{},
		types.LaunchTemplateEnclaveOptions{},
		types.LaunchTemplateCapacityReservationSpecificationResponse{},
	)
	if diff := cmp.Diff(want, *out.LaunchTemplateVersions[0].LaunchTemplateData, exported, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("template data (-want +got):\n%s", diff)
	}
}

func TestTemplateVersions(t *testing.T) {
	a := open(t)
	lt := a.template(t, "general", nil)
	must(a.CreateLaunchTemplateVersion(t.Context(), &awsec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateName: lt.LaunchTemplateName,
		LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String(a.arm), InstanceType: "m7g.large"},
	}))(t)
	launch := func(version string) types.InstanceType {
		in := a.fleetOf("general", 1)
		in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.Version = aws.String(version)
		in.LaunchTemplateConfigs[0].Overrides = []types.FleetLaunchTemplateOverridesRequest{{SubnetId: aws.String(a.subnets[0])}}
		if version != "$Latest" && version != "2" {
			in.LaunchTemplateConfigs[0].Overrides[0].InstanceType = "m5.large"
		}
		return must(a.CreateFleet(t.Context(), in))(t).Instances[0].InstanceType
	}
	for version, want := range map[string]types.InstanceType{"$Latest": "m7g.large", "2": "m7g.large", "$Default": "m5.large", "1": "m5.large"} {
		if got := launch(version); got != want {
			t.Errorf("version %s launched %s, want %s", version, got, want)
		}
	}
	must(
		a.ModifyLaunchTemplate(
			t.Context(),
			&awsec2.ModifyLaunchTemplateInput{LaunchTemplateId: lt.LaunchTemplateId, DefaultVersion: aws.String("2")},
		),
	)(
		t,
	)
	deleted := must(a.DeleteLaunchTemplateVersions(t.Context(), &awsec2.DeleteLaunchTemplateVersionsInput{
		LaunchTemplateId: lt.LaunchTemplateId, Versions: []string{"1", "2"},
	}))(t)
	if ok, kept := len(deleted.SuccessfullyDeletedLaunchTemplateVersions), len(deleted.UnsuccessfullyDeletedLaunchTemplateVersions); ok != 1 ||
		kept != 1 {
		t.Errorf("%d versions deleted, %d kept; want the old one deleted and the default kept", ok, kept)
	}
}

func TestTemplatesByNameAndTag(t *testing.T) {
	a := open(t)
	for _, name := range []string{"one", "two", "three"} {
		a.template(t, name, nil)
	}
	names := func(in awsec2.DescribeLaunchTemplatesInput) (list []string) {
		p := awsec2.NewDescribeLaunchTemplatesPaginator(a, &in)
		for p.HasMorePages() {
			for _, lt := range must(p.NextPage(t.Context()))(t).LaunchTemplates {
				list = append(list, *lt.LaunchTemplateName)
			}
		}
		slices.Sort(list)
		return list
	}
	byTag := awsec2.DescribeLaunchTemplatesInput{Filters: []types.Filter{filter("tag:cluster", "blue")}, MaxResults: aws.Int32(2)}
	if got := strings.Join(names(byTag), " "); got != "one three two" {
		t.Errorf("by tag: %s", got)
	}
	if got := strings.Join(names(awsec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"two"}}), " "); got != "two" {
		t.Errorf("by name: %s", got)
	}
	must(a.DeleteLaunchTemplate(t.Context(), &awsec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("two")}))(t)
	_, err := a.DescribeLaunchTemplates(t.Context(), &awsec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"two"}})
	if awsimtest.Code(err) != "InvalidLaunchTemplateName.NotFoundException" {
		t.Errorf("a deleted template by name: %v", err)
	}
}

func TestRunInstances(t *testing.T) {
	a := open(t)
	in := &awsec2.RunInstancesInput{
		ImageId: aws.String(
			a.arm,
		), InstanceType: "t4g.small", MinCount: aws.Int32(2), MaxCount: aws.Int32(2), SubnetId: aws.String(a.subnets[1]),
		SecurityGroupIds: []string{a.group}, UserData: aws.String(base64.StdEncoding.EncodeToString([]byte("hello"))),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tags("k", "v")}},
	}
	in.DryRun = aws.Bool(true)
	if _, err := a.RunInstances(t.Context(), in); awsimtest.Code(err) != "DryRunOperation" {
		t.Errorf("dry run: %v", err)
	}
	in.DryRun = nil
	out := must(a.RunInstances(t.Context(), in))(t)
	if len(out.Instances) != 2 || out.Instances[0].State.Name != types.InstanceStateNamePending || *out.Instances[1].AmiLaunchIndex != 1 {
		t.Errorf("launched %d", len(out.Instances))
	}
	a.Clock.Advance(time.Minute)
	got := a.Sim.Instances()[0]
	if got.State != "running" || string(got.UserData) != "hello" || got.Tags["k"] != "v" || got.VCPUs != 2 ||
		got.Architecture != "arm64" ||
		got.MaxENIs != 3 {
		t.Errorf("instance %+v", got)
	}
	in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: aws.String("gone")}
	if _, err := a.RunInstances(t.Context(), in); awsimtest.Code(err) != "InvalidParameterValue" ||
		!strings.Contains(err.Error(), "Invalid IAM Instance Profile name") {
		t.Errorf("unknown profile: %v", err)
	}
}

func TestRunInstancesFromTemplate(t *testing.T) {
	a := open(t)
	lt := a.template(t, "general", nil)
	in := &awsec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", SubnetId: aws.String(a.subnets[0]),
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: lt.LaunchTemplateId},
	}
	if _, err := a.RunInstances(t.Context(), in); awsimtest.Code(err) != "InvalidParameterCombination" {
		t.Errorf("a subnet beside the template's interfaces: %v", err)
	}
	in.SubnetId = nil
	in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{
		{DeviceIndex: aws.Int32(0), SubnetId: aws.String(a.subnets[0]), Groups: []string{a.group}},
	}
	out := must(a.RunInstances(t.Context(), in))(t)
	i := out.Instances[0]
	if *i.ImageId != a.x86 || tagValue(i.Tags, "aws:ec2launchtemplate:id") != *lt.LaunchTemplateId {
		t.Errorf("image %s, tags %v", *i.ImageId, i.Tags)
	}
}
