package ec2_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// placed makes a template launch into a placement group.
func placed(id string, partition int32) func(*types.RequestLaunchTemplateData) {
	return func(d *types.RequestLaunchTemplateData) {
		d.Placement = &types.LaunchTemplatePlacementRequest{GroupId: aws.String(id)}
		if partition > 0 {
			d.Placement.PartitionNumber = aws.Int32(partition)
		}
	}
}

func TestPlacementGroups(t *testing.T) {
	a := open(t)
	near := must(
		a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "near", Strategy: "cluster", Tags: map[string]string{"team": "ml"}}),
	)(
		t,
	)
	parts := must(a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "parts", Strategy: "partition", Partitions: 3}))(t)
	must(a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "far", Strategy: "spread"}))(t)
	if _, err := a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "near", Strategy: "spread"}); err == nil {
		t.Error("two groups of one name")
	}
	list := func(in *awsec2.DescribePlacementGroupsInput) (names []string, err error) {
		out, err := a.DescribePlacementGroups(t.Context(), in)
		if err != nil {
			return nil, err
		}
		for _, g := range out.PlacementGroups {
			names = append(names, *g.GroupName)
		}
		return names, nil
	}
	available := []types.Filter{{Name: aws.String("state"), Values: []string{"available"}}}
	for _, tc := range []struct {
		name string
		in   awsec2.DescribePlacementGroupsInput
		want []string
		code string
	}{
		{"all", awsec2.DescribePlacementGroupsInput{}, []string{"near", "parts", "far"}, ""},
		{"by name", awsec2.DescribePlacementGroupsInput{GroupNames: []string{"far"}}, []string{"far"}, ""},
		{"by ID", awsec2.DescribePlacementGroupsInput{GroupIds: []string{near}, Filters: available}, []string{"near"}, ""},
		{
			"by tag",
			awsec2.DescribePlacementGroupsInput{Filters: []types.Filter{{Name: aws.String("tag:team"), Values: []string{"ml"}}}},
			[]string{"near"},
			"",
		},
		{"unknown name", awsec2.DescribePlacementGroupsInput{GroupNames: []string{"far", "none"}}, nil, "InvalidPlacementGroup.Unknown"},
		{"no ID", awsec2.DescribePlacementGroupsInput{GroupIds: []string{"near"}}, nil, "InvalidPlacementGroupId.Malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := list(&tc.in); !slices.Equal(got, tc.want) || awsimtest.Code(err) != tc.code {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	shown := must(a.DescribePlacementGroups(t.Context(), &awsec2.DescribePlacementGroupsInput{GroupIds: []string{parts}}))(t).PlacementGroups[0]
	if shown.Strategy != "partition" || aws.ToInt32(shown.PartitionCount) != 3 || shown.State != "available" ||
		!strings.HasSuffix(*shown.GroupArn, "placement-group/parts") {
		t.Errorf("%+v", shown)
	}
	t.Run("on its way out", func(t *testing.T) {
		if err := a.Sim.DeletePlacementGroup("far"); err != nil {
			t.Fatal(err)
		}
		if got, err := list(&awsec2.DescribePlacementGroupsInput{GroupNames: []string{"far"}, Filters: available}); err != nil ||
			len(got) > 0 {
			t.Errorf("while it is deleted: %v, %v", got, err)
		}
		a.Clock.Advance(time.Minute)
		if _, err := list(&awsec2.DescribePlacementGroupsInput{GroupNames: []string{"far"}}); awsimtest.Code(
			err,
		) != "InvalidPlacementGroup.Unknown" {
			t.Errorf("once it is gone: %v", err)
		}
	})
}

func TestLaunchIntoAPlacementGroup(t *testing.T) {
	a := open(t)
	near := must(a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "near", Strategy: "cluster"}))(t)
	parts := must(a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "parts", Strategy: "partition", Partitions: 3}))(t)
	far := must(a.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: "far", Strategy: "spread"}))(t)
	fleet := func(template string, typ types.InstanceType, n int32) *awsec2.CreateFleetOutput {
		in := a.fleetOf(template, n, typ)
		in.LaunchTemplateConfigs[0].Overrides = in.LaunchTemplateConfigs[0].Overrides[:1]
		return must(a.CreateFleet(t.Context(), in))(t)
	}
	placements := func(group string) (out []types.Placement) {
		for _, r := range must(a.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{}))(t).Reservations {
			for _, i := range r.Instances {
				if aws.ToString(i.Placement.GroupId) == group {
					out = append(out, *i.Placement)
				}
			}
		}
		return out
	}
	t.Run("partitions are filled evenly, and known once the instance runs", func(t *testing.T) {
		a.template(t, "parts", placed(parts, 0))
		fleet("parts", "m5.large", 3)
		a.Clock.Advance(time.Second)
		for _, p := range placements(parts) {
			if p.PartitionNumber != nil || *p.GroupName != "parts" {
				t.Errorf("pending: %+v", p)
			}
		}
		a.Clock.Advance(time.Minute)
		var got []int32
		for _, p := range placements(parts) {
			got = append(got, aws.ToInt32(p.PartitionNumber))
		}
		if slices.Sort(got); !slices.Equal(got, []int32{1, 2, 3}) {
			t.Errorf("partitions %v", got)
		}
	})
	t.Run("a partition that was asked for", func(t *testing.T) {
		a.template(t, "second", placed(parts, 2))
		fleet("second", "m5.large", 2)
		a.Clock.Advance(time.Minute)
		if all := placements(parts); len(all) != 5 || aws.ToInt32(all[3].PartitionNumber) != 2 || aws.ToInt32(all[4].PartitionNumber) != 2 {
			t.Errorf("%+v", all)
		}
	})
	t.Run("a spread group holds seven per zone", func(t *testing.T) {
		a.template(t, "far", placed(far, 0))
		if out := fleet("far", "m5.large", 7); len(out.Errors) > 0 {
			t.Fatalf("%+v", out.Errors)
		}
		out := fleet("far", "m5.large", 1)
		if len(out.Instances) > 0 || len(out.Errors) != 1 || *out.Errors[0].ErrorCode != "InsufficientInstanceCapacity" ||
			!strings.Contains(*out.Errors[0].ErrorMessage, "limit of instances in this spread placement group") {
			t.Errorf("%+v", out)
		}
	})
	for _, tc := range []struct {
		name string
		typ  types.InstanceType
		edit func(*types.RequestLaunchTemplateData)
		code string
	}{
		{"a group that does not exist", "m5.large", placed("pg-0123456789abcdef0", 0), "InvalidPlacementGroup.Unknown"},
		{"a type that the strategy does not take", "t3.large", placed(near, 0), "InvalidParameterCombination"},
		{"a partition of none", "m5.large", placed(near, 1), "InvalidParameterCombination"},
		{"a partition too high", "m5.large", placed(parts, 4), "InvalidParameterValue"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a.template(t, strings.ReplaceAll(tc.name, " ", "-"), tc.edit)
			if out := fleet(strings.ReplaceAll(tc.name, " ", "-"), tc.typ, 1); len(out.Instances) > 0 || len(out.Errors) != 1 ||
				*out.Errors[0].ErrorCode != tc.code {
				t.Errorf("%+v", out)
			}
		})
	}
	t.Run("one in use cannot be deleted", func(t *testing.T) {
		if err := a.Sim.DeletePlacementGroup("parts"); err == nil {
			t.Error("deleted")
		}
	})
}

// Placement groups are created and deleted through the API.
func TestPlacementGroupsAreCreatedAndDeletedByCalls(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	made := must(a.CreatePlacementGroup(ctx, &awsec2.CreatePlacementGroupInput{
		GroupName: aws.String("parts"), Strategy: types.PlacementStrategyPartition, PartitionCount: aws.Int32(3),
		TagSpecifications: tagged(types.ResourceTypePlacementGroup, "team", "ml"),
	}))(t).PlacementGroup
	must(a.CreatePlacementGroup(ctx, &awsec2.CreatePlacementGroupInput{GroupName: aws.String("near")}))(t)
	listed := func() (names []string) {
		out := must(a.DescribePlacementGroups(ctx, &awsec2.DescribePlacementGroupsInput{Filters: []types.Filter{filter("state", "available")}}))(t)
		for _, g := range out.PlacementGroups {
			names = append(names, fmt.Sprintf("%s %s %d", *g.GroupName, g.Strategy, aws.ToInt32(g.PartitionCount)))
		}
		return names
	}
	if got := listed(); !slices.Equal(got, []string{"parts partition 3", "near cluster 0"}) || len(made.Tags) != 1 {
		t.Errorf("groups %v, made %+v", got, made)
	}
	a.template(t, "parts", placed(*made.GroupId, 0))
	in := a.fleetOf("parts", 1, "m5.large")
	in.LaunchTemplateConfigs[0].Overrides = in.LaunchTemplateConfigs[0].Overrides[:1]
	if out := must(a.CreateFleet(ctx, in))(t); len(out.Instances) != 1 {
		t.Errorf("no instance is launched into the group: %+v", out.Errors)
	}
	for _, c := range []struct {
		code string
		call func() error
	}{
		{"InvalidPlacementGroup.Duplicate", func() error {
			_, err := a.CreatePlacementGroup(ctx, &awsec2.CreatePlacementGroupInput{GroupName: aws.String("near")})
			return err
		}},
		{"InvalidParameterCombination", func() error {
			_, err := a.CreatePlacementGroup(ctx, &awsec2.CreatePlacementGroupInput{
				GroupName: aws.String("x"), Strategy: types.PlacementStrategySpread, PartitionCount: aws.Int32(2),
			})
			return err
		}},
		{"InvalidParameterValue", func() error {
			_, err := a.CreatePlacementGroup(ctx, &awsec2.CreatePlacementGroupInput{
				GroupName: aws.String("x"), Strategy: types.PlacementStrategyPartition, PartitionCount: aws.Int32(8),
			})
			return err
		}},
		{"InvalidPlacementGroup.InUse", func() error {
			_, err := a.DeletePlacementGroup(ctx, &awsec2.DeletePlacementGroupInput{GroupName: aws.String("parts")})
			return err
		}},
		{"InvalidPlacementGroup.Unknown", func() error {
			_, err := a.DeletePlacementGroup(ctx, &awsec2.DeletePlacementGroupInput{GroupName: aws.String("none")})
			return err
		}},
	} {
		wantError(t, c.call(), c.code, "")
	}
	must(a.DeletePlacementGroup(ctx, &awsec2.DeletePlacementGroupInput{GroupName: aws.String("near")}))(t)
	if got := listed(); !slices.Equal(got, []string{"parts partition 3"}) {
		t.Errorf("after the deletion: %v", got)
	}
}
