package ec2_test

import (
	"testing"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// TestTaggableResources tags one thing of each kind, and finds it by its tag.
func TestTaggableResources(t *testing.T) {
	a := open(t)
	lt := a.template(t, "general", nil)
	id := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.large")))(t))[0]
	a.Clock.Advance(1e9)
	i := a.describe(t, filter("instance-id", id))[0]
	kinds := map[types.ResourceType]string{
		types.ResourceTypeInstance: id, types.ResourceTypeVolume: *i.BlockDeviceMappings[0].Ebs.VolumeId,
		types.ResourceTypeNetworkInterface: *i.NetworkInterfaces[0].NetworkInterfaceId, types.ResourceTypeImage: a.x86,
		types.ResourceTypeLaunchTemplate: *lt.LaunchTemplateId, types.ResourceTypeVpc: a.vpc, types.ResourceTypeSubnet: a.subnets[0],
		types.ResourceTypeSecurityGroup: a.group,
		types.ResourceTypeCapacityReservation: must(a.Sim.AddCapacityReservation(awsim.CapacityReservation{
			InstanceType: "m5.large", Zone: "us-east-1a", Total: 1, Targeted: true,
		}))(t),
		types.ResourceTypePlacementGroup: must(a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "near", Strategy: "cluster"}))(t),
	}
	for kind, id := range kinds {
		must(a.CreateTags(t.Context(), &awsec2.CreateTagsInput{Resources: []string{id}, Tags: tags("kind", string(kind))}))(t)
	}
	out := must(a.DescribeTags(t.Context(), &awsec2.DescribeTagsInput{Filters: []types.Filter{filter("key", "kind")}}))(t)
	for _, tag := range out.Tags {
		if kinds[tag.ResourceType] != *tag.ResourceId || *tag.Value != string(tag.ResourceType) {
			t.Errorf("%s %s is tagged %s", tag.ResourceType, *tag.ResourceId, *tag.Value)
		}
		delete(kinds, tag.ResourceType)
	}
	if len(kinds) > 0 {
		t.Errorf("without a tag: %v", kinds)
	}
	groups := must(
		a.DescribePlacementGroups(t.Context(), &awsec2.DescribePlacementGroupsInput{Filters: []types.Filter{filter("tag-key", "kind")}}),
	)(
		t,
	)
	if len(groups.PlacementGroups) != 1 {
		t.Errorf("%d placement groups with the tag", len(groups.PlacementGroups))
	}
}
