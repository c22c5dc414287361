package awstest

import (
	"errors"
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
		{
			"one kind of resource",
			onResources(wanted, func(s policy.Statement, r string) bool { return !strings.Contains(r, ":subnet/") }),
			[]string{
				"AllowScopedEC2InstanceAccessActions: ec2:RunInstances subnet", "AllowScopedEC2InstanceAccessActions: ec2:CreateFleet subnet",
			},
		},
		{
			"launch templates, which may be deleted and not made",
			onResources(wanted, func(s policy.Statement, r string) bool {
				return s.Sid != "AllowScopedResourceCreationTagging" || !strings.Contains(r, ":launch-template/")
			}),
			[]string{"AllowScopedResourceCreationTagging: ec2:CreateTags launch-template"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := lacking(t, tt.has); !slices.Equal(got, tt.want) {
				t.Errorf("missing %q, want %q", got, tt.want)
			}
		})
	}
}

// lacking is what IAM's simulator finds missing in a role with this policy.
func lacking(t *testing.T, has policy.Document) (out []string) {
	t.Helper()
	w := newWorld(t)
	text, err := has.JSON()
	if err != nil {
		t.Fatal(err)
	}
	role := awsim.ControllerRole(clusterName)
	if err := w.Sim.IAM().PutRolePolicy(role, "controller", string(text)); err != nil {
		t.Fatal(err)
	}
	found, _ := w.Sim.IAM().Role(role)
	missing, err := rolecheck.Missing(t.Context(), iam.NewFromConfig(w.Config), found.ARN, expectedPermissions(t, blueUID))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range missing {
		for _, g := range m.Grants {
			out = append(out, strings.TrimSpace(m.Sid+": "+g.Action+" "+strings.Join(m.Kinds[g.Action], ",")))
		}
	}
	return out
}

// onResources is a policy with some of the resources of its statements.
func onResources(p policy.Document, keep func(s policy.Statement, resource string) bool) (out policy.Document) {
	for _, s := range p {
		s.Resources = slices.DeleteFunc(slices.Clone(s.Resources), func(r string) bool { return !keep(s, r) })
		if len(s.Resources) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// A role is judged by what it may do, however its policies are written and limited.
func TestPolicySimulationOfOtherPolicies(t *testing.T) {
	wanted := expectedPermissions(t, blueUID)
	const all = `{"Effect":"Allow","Action":"*","Resource":"*"}`
	document := func(statements ...string) string {
		return `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
	}
	for _, tt := range []struct{ name, policy, boundary, want string }{
		{"everything", document(all), "", ""},
		{"everything but IAM, by NotAction", document(`{"Effect":"Allow","NotAction":"iam:*","Resource":"*"}`), "", "iam:PassRole"},
		{
			"an action by a pattern",
			document(all, `{"Effect":"Deny","Action":"ec2:Terminate*","Resource":"*"}`), "", "ec2:TerminateInstances",
		},
		{
			"a denial of all other regions",
			document(all, `{"Effect":"Deny","NotAction":["iam:*","pricing:*"],"Resource":"*",`+
				`"Condition":{"StringNotEquals":{"aws:RequestedRegion":"us-east-1"}}}`), "", "",
		},
		{
			"a denial of this region",
			document(all, `{"Effect":"Deny","Action":"ec2:CreateFleet","Resource":"*",`+
				`"Condition":{"StringEquals":{"aws:RequestedRegion":"us-east-1"}}}`), "", "ec2:CreateFleet",
		},
		{
			"a denial without encryption",
			document(all, `{"Effect":"Deny","Action":"*","Resource":"*","Condition":{"BoolIfExists":{"aws:SecureTransport":"false"}}}`), "", "",
		},
		{"a boundary", document(all), document(`{"Effect":"Allow","NotAction":"ec2:CreateFleet","Resource":"*"}`), "ec2:CreateFleet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			role := awsim.ControllerRole(clusterName)
			if err := errors.Join(w.Sim.IAM().PutRolePolicy(role, "controller", tt.policy),
				w.Sim.IAM().SetPermissionsBoundary(role, tt.boundary)); err != nil {
				t.Fatal(err)
			}
			found, _ := w.Sim.IAM().Role(role)
			missing, err := rolecheck.Missing(t.Context(), iam.NewFromConfig(w.Config), found.ARN, wanted)
			if err != nil {
				t.Fatal(err)
			}
			has := func(m rolecheck.Denied) bool {
				return slices.ContainsFunc(m.Grants, func(g policy.Grant) bool { return g.Action == tt.want })
			}
			if (tt.want == "") != (len(missing) == 0) || tt.want != "" && !slices.ContainsFunc(missing, has) {
				t.Errorf("missing %+v, want %q", missing, tt.want)
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
