package iam_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	sim "github.com/dovetail-k8s/dovetail/lab/awsim/iam"
)

// TestWhoRefuses: an error of rights names the kind of policy that rejects.
func TestWhoRefuses(t *testing.T) {
	const (
		all    = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`
		other  = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`
		denied = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"ec2:DescribeVpcs","Resource":"*"}]}`
	)
	for _, row := range []struct{ name, identity, boundary, organization, because string }{
		{"nobody", all, "", "", ""},
		{"nobody, within limits", all, all, all, ""},
		{"identity, implicitly", other, "", "", "because no identity-based policy allows the ec2:DescribeVpcs action"},
		{"identity", denied, all, all, "with an explicit deny in an identity-based policy"},
		{"boundary, implicitly", all, other, "", "because no permissions boundary allows the ec2:DescribeVpcs action"},
		{"boundary", all, denied, "", "with an explicit deny in a permissions boundary"},
		{"organization, implicitly", all, "", other, "because no service control policy allows the ec2:DescribeVpcs action"},
		{"organization", all, "", denied, "with an explicit deny in a service control policy"},
		{"a limit grants nothing", other, all, all, "because no identity-based policy allows"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := awsimtest.Start(t)
			account := w.Sim.IAM()
			awsimtest.OK(account.CreateRole(sim.Role{Name: "team", TrustPolicy: `{"Statement":[]}`}))(t)
			for _, err := range []error{
				account.PutRolePolicy("team", "inline", row.identity), account.SetPermissionsBoundary("team", row.boundary),
				account.SetServiceControlPolicy(row.organization),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			team := ec2.NewFromConfig(w.As(awsimtest.OK(w.Sim.RoleCredentials("team"))(t)))
			_, err := team.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
			if row.because == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if awsimtest.Code(err) != "UnauthorizedOperation" || !strings.Contains(err.Error(), row.because) {
				t.Errorf("%v; want that %s", err, row.because)
			}
			// The account itself is held to none of it.
			awsimtest.OK(ec2.NewFromConfig(w.Config).DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{DryRun: aws.Bool(false)}))(t)
		})
	}
	w := awsimtest.Start(t)
	if err := w.Sim.IAM().SetPermissionsBoundary("nobody", all); err == nil {
		t.Error("a role that does not exist got a boundary")
	}
	if err := w.Sim.IAM().SetServiceControlPolicy("{"); err == nil {
		t.Error("a service control policy that is no JSON was taken")
	}
}
