package awstest

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
)

// While EC2 answers no Describe call, a class that was resolved before launches all the same: with a launch template that is new, and
// with one that another process has created.
func TestLaunchWithANewTemplateWhileEC2DescribesNothing(t *testing.T) {
	for _, outage := range []string{"ec2.Describe*=InternalError", "ec2.DescribeLaunchTemplates=hang"} {
		t.Run(outage, func(t *testing.T) {
			t.Parallel()
			s := newLaunchFixture(t, 1)
			other := *s
			other.cloud = s.start(s.config("uid-1"))
			for _, process := range []*launchFixture{s, &other} {
				if err := process.RefreshTypes(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Sim.InjectSpec(outage); err != nil {
				t.Fatal(err)
			}
			claims := sameRequirements(2)
			for i, process := range []*launchFixture{s, &other} {
				if got := process.launchBatch(claims[i])[0]; got.err != nil {
					t.Errorf("process %d: %v", i+1, got.err)
				}
			}
			if n := s.succeeded("CreateLaunchTemplate"); n != 1 {
				t.Errorf("%d launch templates, want one for both", n)
			}
		})
	}
}

// While EC2 creates no launch templates, a process that has just started launches from one that an earlier process has created. Without
// such a template, or while EC2 does not describe it, nothing is launched.
func TestLaunchFromAnEarlierTemplateWhileEC2CreatesNone(t *testing.T) {
	for _, tc := range []struct {
		name     string
		earlier  bool
		outage   []string
		launches bool
	}{
		{"an earlier template", true, []string{"ec2.CreateLaunchTemplate=Unavailable"}, true},
		{"no template", false, []string{"ec2.CreateLaunchTemplate=Unavailable"}, false},
		{
			"a template that cannot be read", true,
			[]string{"ec2.CreateLaunchTemplate=Unavailable", "ec2.DescribeLaunchTemplates=InternalError"},
			false,
		},
		{"no permission", true, []string{"ec2.CreateLaunchTemplate=UnauthorizedOperation"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newLaunchFixture(t, 1)
			if tc.earlier {
				if got := s.launchBatch(sameRequirements(1)...)[0]; got.err != nil {
					t.Fatal(got.err)
				}
			}
			restarted := *s
			restarted.cloud = s.start(s.config("uid-1"))
			if err := restarted.RefreshTypes(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, fault := range tc.outage {
				if err := s.Sim.InjectSpec(fault); err != nil {
					t.Fatal(err)
				}
			}
			if got := restarted.launchBatch(sameRequirements(2)[1:]...)[0]; (got.err == nil) != tc.launches {
				t.Errorf("launch: %v", got.err)
			}
		})
	}
}

// A launch template with the name of ours and another cluster's tags is not launched from.
func TestLaunchTemplateOfOthersIsNotUsed(t *testing.T) {
	s := newLaunchFixture(t, 1)
	admin := ec2.NewFromConfig(s.Config)
	if got := s.launchBatch(sameRequirements(1)...)[0]; got.err != nil {
		t.Fatal(got.err)
	}
	out, err := admin.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
	if err != nil || len(out.LaunchTemplates) != 1 {
		t.Fatalf("%d launch templates, %v", len(out.LaunchTemplates), err)
	}
	id, key, theirs := *out.LaunchTemplates[0].LaunchTemplateId, "dovetail.sh/cluster-uid", "uid-of-another"
	_, err = admin.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: &key, Value: &theirs}}})
	if err != nil {
		t.Fatal(err)
	}
	other := *s
	other.cloud = s.start(s.config("uid-1"))
	second := sameRequirements(2)[1:]
	if got := other.launchBatch(second...)[0]; !errors.Is(got.err, identity.ErrNotOurs) {
		t.Errorf("error %v, want that the template is not ours", got.err)
	}
}
