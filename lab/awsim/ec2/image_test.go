package ec2_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
)

func contains(err error, text string) bool {
	return text == "" || err != nil && strings.Contains(err.Error(), text)
}

// TestWhoMayUseAnImage: images of other accounts, and those that are not available.
func TestWhoMayUseAnImage(t *testing.T) {
	a := open(t)
	img := image.Image{
		Name: "theirs", Architecture: "x86_64", Created: a.Clock.Now(), RootDevice: "/dev/xvda", Disks: []image.Disk{{
			Device:  "/dev/xvda",
			SizeGiB: 8,
		}},
	}
	const other = "999988887777"
	hidden, shared := a.Sim.EC2().AddForeignImage(img, other), a.Sim.EC2().AddForeignImage(img, other)
	a.Sim.EC2().ShareImage(shared, true)
	states := map[string]string{}
	for _, state := range []string{"pending", "failed", "disabled"} {
		states[state] = a.Sim.EC2().AddImage(img, nil)
		if err := a.Sim.EC2().SetImageState(states[state], state); err != nil {
			t.Fatal(err)
		}
	}
	available := []types.Filter{filter("state", "available")}
	for _, c := range []struct {
		name string
		in   awsec2.DescribeImagesInput
		want []string
	}{
		{"nobody sees what is not shared", awsec2.DescribeImagesInput{ImageIds: []string{hidden}}, nil},
		{"shared, by ID", awsec2.DescribeImagesInput{ImageIds: []string{hidden, shared}}, []string{shared}},
		{"shared, by owner", awsec2.DescribeImagesInput{Owners: []string{other}}, []string{shared}},
		{"shared is not one's own", awsec2.DescribeImagesInput{ImageIds: []string{shared}, Owners: []string{"self"}}, nil},
		{"executable by the account", awsec2.DescribeImagesInput{ExecutableUsers: []string{"self"}, Owners: []string{other}}, []string{shared}},
		{"of one's own", awsec2.DescribeImagesInput{Owners: []string{"self"}}, []string{states["pending"], states["failed"]}},
		{"disabled too", awsec2.DescribeImagesInput{Owners: []string{"self"}, IncludeDisabled: aws.Bool(true)}, []string{
			states["pending"],
			states["failed"], states["disabled"],
		}},
		{"available only", awsec2.DescribeImagesInput{Owners: []string{"self", other}, Filters: available}, []string{shared}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, i := range must(a.DescribeImages(t.Context(), &c.in))(t).Images {
				got = append(got, *i.ImageId)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	for _, c := range []struct{ name, id, code, text string }{
		{"launch of what is not shared", hidden, "AuthFailure", "Not authorized for images: [" + hidden + "]"},
		{"launch of what is shared", shared, "DryRunOperation", ""},
		{"launch of what is not ready", states["pending"], "InvalidAMIID.Unavailable", states["pending"]},
		{"launch of what is disabled", states["disabled"], "InvalidAMIID.Unavailable", states["disabled"]},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := a.RunInstances(t.Context(), &awsec2.RunInstancesInput{
				DryRun: aws.Bool(
					true,
				), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", ImageId: &c.id, SubnetId: aws.String(a.subnets[0]),
			})
			if awsimtest.Code(err) != c.code || !contains(err, c.text) {
				t.Errorf("%v; want %s with %q", err, c.code, c.text)
			}
		})
	}
}
