package drift

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// stamps are hash and version of an object; empty ones are missing.
func stamps(hash, version string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Annotations: map[string]string{}}
	if hash != "" {
		m.Annotations[awsv1.AnnotationNodeClassHash] = hash
	}
	if version != "" {
		m.Annotations[awsv1.AnnotationNodeClassHashVersion] = version
	}
	return m
}

func TestStatic(t *testing.T) {
	for _, tc := range []struct {
		name         string
		class, claim metav1.ObjectMeta
		want         bool
	}{
		{"equal", stamps("1", "v1"), stamps("1", "v1"), false},
		{"different", stamps("2", "v1"), stamps("1", "v1"), true},
		{"the class has no hash", stamps("", "v1"), stamps("1", "v1"), false},
		{"the class has no version", stamps("2", ""), stamps("1", "v1"), false},
		{"the claim has no hash", stamps("2", "v1"), stamps("", "v1"), false},
		{"the claim has no version", stamps("2", "v1"), stamps("1", ""), false},
		{"neither has a version", stamps("2", ""), stamps("1", ""), false},
		{"another version", stamps("2", "v2"), stamps("1", "v1"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Static(&awsv1.EC2NodeClass{ObjectMeta: tc.class}, &karpv1.NodeClaim{ObjectMeta: tc.claim}); got != tc.want {
				t.Errorf("drift %v", got)
			}
		})
	}
}

func TestImage(t *testing.T) {
	for _, tc := range []struct {
		name, has, mapped string
		images            int
		want, fails       bool
	}{
		{"the image that its type gets", "ami-1", "ami-1", 1, false, false},
		{"another image", "ami-1", "ami-2", 2, true, false},
		{"no image suits its type any more", "ami-1", "", 1, true, false},
		{"the class has no images", "ami-1", "", 0, false, true},
		{"the claim names no image", "", "ami-1", 1, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := &awsv1.EC2NodeClass{Status: awsv1.EC2NodeClassStatus{AMIs: make([]awsv1.AMI, tc.images)}}
			got, err := Image(class, &karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ImageID: tc.has}}, tc.mapped)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("drift %v, %v", got, err)
			}
		})
	}
}

func TestDynamic(t *testing.T) {
	// wrong is one fact, or two, that are not as the class has them.
	groups := func(f *Facts) { f.Instance.SecurityGroupIDs = []string{"sg-1"} }
	subnet := func(f *Facts) { f.Instance.SubnetID = "subnet-9" }
	reservation := func(f *Facts) { f.Instance.Reservation.ID = "cr-9" }
	placed := func(f *Facts) { f.GroupID = "pg-9" }
	for _, tc := range []struct {
		name  string
		wrong []func(*Facts)
		want  string
		fails bool
	}{
		{"as the class specifies", nil, "", false},
		{"the same groups in another order, one named twice", []func(*Facts){func(f *Facts) {
			f.Instance.SecurityGroupIDs = []string{
				"sg-2",
				"sg-1", "sg-2",
			}
		}}, "", false},
		{"a group too few", []func(*Facts){groups}, SecurityGroup, false},
		{
			"a group too many",
			[]func(*Facts){func(f *Facts) { f.Instance.SecurityGroupIDs = []string{"sg-1", "sg-2", "sg-3"} }},
			SecurityGroup,
			false,
		},
		{
			"as many groups, another one",
			[]func(*Facts){func(f *Facts) { f.Instance.SecurityGroupIDs = []string{"sg-1", "sg-3"} }},
			SecurityGroup, false,
		},
		{"another subnet", []func(*Facts){subnet}, Subnet, false},
		{"another reservation", []func(*Facts){reservation}, CapacityReservation, false},
		{
			"no reservation, though the class has some",
			[]func(*Facts){func(f *Facts) { f.Instance.Reservation = cloudprovider.Reservation{} }},
			"", false,
		},
		{"another placement group", []func(*Facts){placed}, PlacementGroup, false},
		{"no placement group any more", []func(*Facts){func(f *Facts) { f.GroupID = "" }}, PlacementGroup, false},
		{"in no placement group yet", []func(*Facts){func(f *Facts) { f.Claim.Labels = nil }}, PlacementGroup, false},
		{"in no placement group, and none specified", []func(*Facts){func(f *Facts) { f.Claim.Labels, f.GroupID = nil, "" }}, "", false},
		{"groups before subnet", []func(*Facts){subnet, groups}, SecurityGroup, false},
		{"subnet before reservation", []func(*Facts){reservation, subnet}, Subnet, false},
		{"reservation before placement group", []func(*Facts){placed, reservation}, CapacityReservation, false},
		{"the class has no groups", []func(*Facts){func(f *Facts) { f.Class.Status.SecurityGroups = nil }}, "", true},
		{
			"the class has no subnets, which hides a wrong group",
			[]func(*Facts){groups, func(f *Facts) { f.Class.Status.Subnets = nil }},
			"",
			true,
		},
		{"the instance has no groups in the answer", []func(*Facts){func(f *Facts) { f.Instance.SecurityGroupIDs = nil }}, "", true},
		{"the instance has no subnet in the answer", []func(*Facts){func(f *Facts) { f.Instance.SubnetID = "" }}, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Facts{
				Class: &awsv1.EC2NodeClass{Status: awsv1.EC2NodeClassStatus{
					SecurityGroups:       []awsv1.SecurityGroup{{ID: "sg-1"}, {ID: "sg-2"}},
					Subnets:              []awsv1.Subnet{{ID: "subnet-1"}, {ID: "subnet-2"}},
					CapacityReservations: []awsv1.CapacityReservation{{ID: "cr-1"}},
				}},
				Claim: &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{awsv1.LabelPlacementGroupID: "pg-1"}}},
				Instance: cloudprovider.Instance{
					ID:               "i-1",
					SecurityGroupIDs: []string{"sg-1", "sg-2"},
					SubnetID:         "subnet-2",
					Reservation:      cloudprovider.Reservation{ID: "cr-1"},
				},
				GroupID: "pg-1",
			}
			before := slices.Clone(f.Instance.SecurityGroupIDs)
			for _, change := range tc.wrong {
				change(&f)
			}
			got, err := Dynamic(f)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("drift %q, %v", got, err)
			}
			if len(tc.wrong) == 0 && !slices.Equal(f.Instance.SecurityGroupIDs, before) {
				t.Error("the facts were changed")
			}
		})
	}
}
