package awstest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// terraformModules is the policy that the submodule karpenter of terraform-aws-modules/eks gives the controller: that of an earlier version
// of Karpenter.
func terraformModules(t *testing.T) (out policy.Document) {
	t.Helper()
	reads := []string{
		"ec2:DescribeImages", "ec2:DescribeInstances", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypes",
		"ec2:DescribeLaunchTemplates", "ec2:DescribeSecurityGroups", "ec2:DescribeSpotPriceHistory", "ec2:DescribeSubnets",
	}
	for _, s := range karpenters(t) {
		switch s.Sid {
		case "AllowZonalShiftStatusReadOnly", "AllowUnscopedInstanceProfileListAction":
			continue
		case "AllowRegionalReadActions":
			s.Grants = slices.DeleteFunc(s.Grants, func(g policy.Grant) bool { return !slices.Contains(reads, g.Action) })
		case "AllowScopedEC2InstanceAccessActions":
			s.Resources = slices.DeleteFunc(s.Resources, func(r string) bool {
				return strings.Contains(r, ":capacity-reservation/") || strings.Contains(r, ":placement-group/")
			})
		case "AllowPassingInstanceRole":
			s.Conditions = policy.Conditions{"StringEquals": {"iam:PassedToService": {"ec2.amazonaws.com"}}}
		}
		out = append(out, s)
	}
	return out
}

// besideModule is the policy that the example attaches to the role of the module.
func besideModule(t *testing.T) policy.Document {
	t.Helper()
	text, err := os.ReadFile("../../examples/terraform-module/policy.json.tftpl")
	if err != nil {
		t.Fatal(err)
	}
	filled := string(text)
	for name, value := range map[string]string{
		"identity": blueUID, "account": "111122223333", "region": "us-east-1", "cluster_name": clusterName,
		"node_role": "KarpenterNodeRole-" + clusterName, "partition": "aws",
	} {
		filled = strings.ReplaceAll(filled, "${"+name+"}", value)
	}
	return parsed(t, []byte(strings.ReplaceAll(filled, "$${", "${")))
}

// together are two policies of one role, as one document. In that the IDs of statements are unique.
func together(module, beside policy.Document) policy.Document {
	out := slices.Clone(module)
	for _, s := range beside {
		s.Sid = "Beside" + s.Sid
		out = append(out, s)
	}
	return out
}

// The policy of the module alone lacks these. With that of the example beside it, none is missing.
func TestPolicyOfTheTerraformModuleLacks(t *testing.T) {
	want := []string{
		"AllowScopedEC2InstanceAccessActions: ec2:RunInstances capacity-reservation,placement-group",
		"AllowScopedEC2InstanceAccessActions: ec2:CreateFleet capacity-reservation,placement-group",
		"AllowAdoptionOfInstances: ec2:CreateTags",
		"AllowScopedConsoleOutput: ec2:GetConsoleOutput",
		"AllowAdoptionOfInstanceProfiles: iam:TagInstanceProfile",
		"AllowUnscopedInstanceProfileListAction: iam:ListInstanceProfiles",
		"AllowNodeRoleRead: iam:GetRole",
		"AllowAccessEntryRead: eks:ListAccessEntries",
		"AllowAccessEntryRead: eks:DescribeAccessEntry",
		"AllowZonalShiftStatusReadOnly: arc-zonal-shift:GetManagedResource",
		"AllowRegionalReadActions: ec2:DescribeCapacityReservations",
		"AllowRegionalReadActions: ec2:DescribeInstanceStatus",
		"AllowRegionalReadActions: ec2:DescribePlacementGroups",
		"AllowRegionalReadActions: ec2:DescribeRouteTables",
	}
	var statements []string // the policy of the example has these, and no others
	for _, line := range want {
		sid, _, _ := strings.Cut(line, ":")
		statements = append(statements, sid)
	}
	for _, s := range besideModule(t) {
		if !slices.Contains(statements, s.Sid) {
			t.Errorf("the example has %s, which the module has, too", s.Sid)
		}
	}
	if diff := cmp.Diff(want, lacking(t, terraformModules(t))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := lacking(t, together(terraformModules(t), besideModule(t))); len(got) > 0 {
		t.Errorf("with the policy of the example: %v", got)
	}
}

// With the policy of the example beside that of the module, the controller does all that it does.
func TestPolicyBesideTheTerraformModule(t *testing.T) {
	if exercise, err := firstRefused(t, together(terraformModules(t), besideModule(t))); exercise != "" {
		t.Errorf("%s: %v", exercise, err)
	}
}
