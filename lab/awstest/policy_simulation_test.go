package awstest

import (
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/internal/aws/rolecheck"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// IAM's simulator finds nothing missing in a role with our policy, and names the statement of each right that a role lacks.
func TestPolicySimulation(t *testing.T) {
	wanted := expectedPermissions(t, blueUID)
	without := func(drop func(s policy.Statement, action string) bool) (out policy.Document) {
		for _, s := range wanted {
			grants := slices.DeleteFunc(slices.Clone(s.Grants), func(g policy.Grant) bool { return drop(s, g.Action) })
			if s.Grants = grants; len(grants) > 0 {
				out = append(out, s)
			}
		}
		return out
	}
	for _, tt := range []struct {
		name string
		has  policy.Document
		want []string
	}{
		{"our policy", wanted, nil},
		{
			"Karpenter's, which may not adopt",
			without(func(s policy.Statement, _ string) bool { return strings.HasPrefix(s.Sid, "AllowAdoption") }),
			[]string{"AllowAdoptionOfInstances: ec2:CreateTags", "AllowAdoptionOfInstanceProfiles: iam:TagInstanceProfile"},
		},
		{
			"one action of a statement",
			without(func(_ policy.Statement, action string) bool { return action == "ec2:DescribeRouteTables" }),
			[]string{"AllowRegionalReadActions: ec2:DescribeRouteTables"},
		},
		{
			"launches",
			without(func(_ policy.Statement, action string) bool { return action == "ec2:CreateFleet" }),
			[]string{
				"AllowScopedEC2InstanceAccessActions: ec2:CreateFleet", "AllowScopedEC2LaunchTemplateAccessActions: ec2:CreateFleet",
				"AllowScopedEC2InstanceActionsWithTags: ec2:CreateFleet",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			text, err := tt.has.JSON()
			if err != nil {
				t.Fatal(err)
			}
			role := awsim.ControllerRole(clusterName)
			if err := w.Sim.IAM().PutRolePolicy(role, "controller", string(text)); err != nil {
				t.Fatal(err)
			}
			found, _ := w.Sim.IAM().Role(role)
			missing, err := rolecheck.Missing(t.Context(), iam.NewFromConfig(w.Config), found.ARN, wanted)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range missing {
				for _, g := range m.Grants {
					got = append(got, m.Sid+": "+g.Action)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("missing %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRoleOfAServiceAccount(t *testing.T) {
	w := newWorld(t)
	api := eks.NewFromConfig(w.Config)
	account := rolecheck.ServiceAccount{Cluster: clusterName, Namespace: "karpenter", Name: "karpenter"}
	role, err := rolecheck.RoleOf(t.Context(), api, account)
	if err != nil || role != "" {
		t.Errorf("without an association: %q, %v", role, err)
	}
	const arn = "arn:aws:iam::111122223333:role/karpenter"
	for _, name := range []string{"other", "karpenter"} {
		_, err := api.CreatePodIdentityAssociation(t.Context(), &eks.CreatePodIdentityAssociationInput{
			ClusterName: awssdk.String(clusterName), Namespace: awssdk.String("karpenter"), ServiceAccount: &name,
			RoleArn: awssdk.String(strings.ReplaceAll(arn, "karpenter", name)),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if role, err = rolecheck.RoleOf(t.Context(), api, account); err != nil || role != arn {
		t.Errorf("with one: %q, %v, want %s", role, err, arn)
	}
	account.Cluster = "none"
	if _, err = rolecheck.RoleOf(t.Context(), api, account); err == nil || !strings.Contains(err.Error(), "cluster none") {
		t.Errorf("of a cluster that does not exist: %v", err)
	}
}
