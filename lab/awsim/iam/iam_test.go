package iam_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

const trustEC2 = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

func start(t *testing.T) *iam.Client {
	t.Helper()
	return iam.NewFromConfig(awsimtest.Start(t).Config)
}

func createRole(t *testing.T, c *iam.Client, name string) *types.Role {
	t.Helper()
	out, err := c.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(trustEC2)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Role
}

func createProfile(t *testing.T, c *iam.Client, name, path string) *types.InstanceProfile {
	t.Helper()
	out, err := c.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{
		InstanceProfileName: &name, Path: &path, Tags: []types.Tag{{Key: aws.String("owner"), Value: aws.String("me")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.InstanceProfile
}

func TestInstanceProfileLifecycle(t *testing.T) {
	c, ctx := start(t), t.Context()
	role := createRole(t, c, "node")
	created := createProfile(t, c, "nodes", "/karpenter/us-east-1/c1/uid/")
	if got, want := *created.Arn, "arn:aws:iam::111122223333:instance-profile/karpenter/us-east-1/c1/uid/nodes"; got != want {
		t.Errorf("ARN %s, want %s", got, want)
	}
	if id := *created.InstanceProfileId; !strings.HasPrefix(id, "AIPA") || len(id) != 21 {
		t.Errorf("profile ID %q", id)
	}
	add := &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String("nodes"), RoleName: aws.String("node")}
	awsimtest.OK(c.AddRoleToInstanceProfile(ctx, add))(t)
	if _, err := c.AddRoleToInstanceProfile(ctx, add); awsimtest.Code(err) != "LimitExceeded" {
		t.Errorf("second role: %v, want LimitExceeded", err)
	}
	awsimtest.OK(c.TagInstanceProfile(ctx, &iam.TagInstanceProfileInput{InstanceProfileName: aws.String("nodes"), Tags: []types.Tag{
		{Key: aws.String("Owner"), Value: aws.String("you")}, {Key: aws.String("team"), Value: aws.String("")},
	}}))(t)

	got := awsimtest.OK(
		c.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("nodes")}),
	)(
		t,
	).InstanceProfile
	if len(got.Roles) != 1 || *got.Roles[0].Arn != *role.Arn || *got.Roles[0].RoleName != "node" {
		t.Errorf("roles %v, want node", got.Roles)
	}
	if diff := cmp.Diff(map[string]string{"owner": "you", "team": ""}, tags(got.Tags)); diff != "" {
		t.Errorf("tags after a change in another case (-want +got):\n%s", diff)
	}
	awsimtest.OK(
		c.UntagInstanceProfile(ctx, &iam.UntagInstanceProfileInput{InstanceProfileName: aws.String("nodes"), TagKeys: []string{"TEAM"}}),
	)(
		t,
	)
	left := awsimtest.OK(c.ListInstanceProfileTags(ctx, &iam.ListInstanceProfileTagsInput{InstanceProfileName: aws.String("nodes")}))(t)
	if diff := cmp.Diff(map[string]string{"owner": "you"}, tags(left.Tags)); diff != "" {
		t.Errorf("tags after untagging (-want +got):\n%s", diff)
	}

	if _, err := c.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String("nodes")}); awsimtest.Code(
		err,
	) != "DeleteConflict" {
		t.Errorf("delete with a role in it: %v, want DeleteConflict", err)
	}
	if _, err := c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: aws.String("node")}); awsimtest.Code(err) != "DeleteConflict" {
		t.Errorf("delete a role in a profile: %v, want DeleteConflict", err)
	}
	awsimtest.OK(
		c.RemoveRoleFromInstanceProfile(
			ctx,
			&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: aws.String("nodes"), RoleName: aws.String("node")},
		),
	)(
		t,
	)
	awsimtest.OK(c.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String("nodes")}))(t)
	awsimtest.OK(c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: aws.String("node")}))(t)
}

func TestListInstanceProfiles(t *testing.T) {
	c, ctx := start(t), t.Context()
	createRole(t, c, "node")
	var ours []string
	for i := range 7 {
		name := fmt.Sprintf("p%d", i)
		createProfile(t, c, name, "/karpenter/us-east-1/c1/")
		ours = append(ours, name)
	}
	createProfile(t, c, "other", "/karpenter/us-east-1/c10/")
	awsimtest.OK(
		c.AddRoleToInstanceProfile(
			ctx,
			&iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String("p3"), RoleName: aws.String("node")},
		),
	)(
		t,
	)

	var got []string
	pages := iam.NewListInstanceProfilesPaginator(
		c,
		&iam.ListInstanceProfilesInput{PathPrefix: aws.String("/karpenter/us-east-1/c1/"), MaxItems: aws.Int32(3)},
	)
	for pages.HasMorePages() {
		page := awsimtest.OK(pages.NextPage(ctx))(t)
		if len(page.InstanceProfiles) > 3 {
			t.Errorf("page of %d, asked for 3", len(page.InstanceProfiles))
		}
		for _, p := range page.InstanceProfiles {
			got = append(got, *p.InstanceProfileName)
			if len(p.Tags) > 0 {
				t.Errorf("%s is listed with tags", *p.InstanceProfileName)
			}
		}
	}
	if diff := cmp.Diff(ours, got); diff != "" {
		t.Errorf("profiles below the prefix (-want +got):\n%s", diff)
	}
	out := awsimtest.OK(c.ListInstanceProfilesForRole(ctx, &iam.ListInstanceProfilesForRoleInput{RoleName: aws.String("node")}))(t)
	if len(out.InstanceProfiles) != 1 || *out.InstanceProfiles[0].InstanceProfileName != "p3" {
		t.Errorf("profiles of the role: %v, want p3", out.InstanceProfiles)
	}
}

func TestRolePolicies(t *testing.T) {
	c, ctx := start(t), t.Context()
	role := createRole(t, c, "node")
	if document, err := url.QueryUnescape(*role.AssumeRolePolicyDocument); err != nil || document != trustEC2 {
		t.Errorf("trust policy comes back as %s (%v)", document, err)
	}
	name, managed := aws.String("node"), aws.String("arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy")
	for range 2 {
		awsimtest.OK(c.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: name, PolicyArn: managed}))(t)
	}
	attached := awsimtest.OK(
		c.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{RoleName: name, PathPrefix: aws.String("/service-role/")}),
	)(
		t,
	)
	if len(attached.AttachedPolicies) != 1 || *attached.AttachedPolicies[0].PolicyName != "AmazonEBSCSIDriverPolicy" {
		t.Errorf("attached policies %v", attached.AttachedPolicies)
	}
	document := aws.String(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}`)
	awsimtest.OK(c.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: name, PolicyName: aws.String("all"), PolicyDocument: document}))(t)
	got := awsimtest.OK(c.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: name, PolicyName: aws.String("all")}))(t)
	if text, err := url.QueryUnescape(*got.PolicyDocument); err != nil || text != *document {
		t.Errorf("inline policy comes back as %s (%v)", text, err)
	}
	names := awsimtest.OK(c.ListRolePolicies(ctx, &iam.ListRolePoliciesInput{RoleName: name}))(t)
	if diff := cmp.Diff([]string{"all"}, names.PolicyNames); diff != "" {
		t.Errorf("inline policies (-want +got):\n%s", diff)
	}
	remove := &iam.DeleteRoleInput{RoleName: name}
	if _, err := c.DeleteRole(ctx, remove); awsimtest.Code(err) != "DeleteConflict" {
		t.Errorf("delete with an attached policy: %v, want DeleteConflict", err)
	}
	awsimtest.OK(c.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: name, PolicyArn: managed}))(t)
	if _, err := c.DeleteRole(ctx, remove); awsimtest.Code(err) != "DeleteConflict" {
		t.Errorf("delete with an inline policy: %v, want DeleteConflict", err)
	}
	awsimtest.OK(c.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: name, PolicyName: aws.String("all")}))(t)
	awsimtest.OK(c.DeleteRole(ctx, remove))(t)
	if roles := awsimtest.OK(c.ListRoles(ctx, &iam.ListRolesInput{}))(t); len(roles.Roles) != 0 {
		t.Errorf("roles after deletion: %v", roles.Roles)
	}
}

func TestErrors(t *testing.T) {
	c, ctx := start(t), t.Context()
	createRole(t, c, "node")
	createProfile(t, c, "nodes", "/")
	long, doc := strings.Repeat("x", 129), aws.String(trustEC2)
	create := func(name, path string, tags ...types.Tag) error {
		_, err := c.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: &name, Path: &path, Tags: tags})
		return err
	}
	tag := func(k, v string) types.Tag { return types.Tag{Key: &k, Value: &v} }
	get := func(name string) error {
		_, err := c.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
		return err
	}
	add := func(profile, role string) error {
		_, err := c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &profile, RoleName: &role})
		return err
	}
	remove := func(profile, role string) error {
		_, err := c.RemoveRoleFromInstanceProfile(
			ctx,
			&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &profile, RoleName: &role},
		)
		return err
	}
	list := func(in iam.ListInstanceProfilesInput) error {
		_, err := c.ListInstanceProfiles(ctx, &in)
		return err
	}
	role := func(in iam.CreateRoleInput) error {
		_, err := c.CreateRole(ctx, &in)
		return err
	}
	_, noRole := c.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("none")})
	_, noProfile := c.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String("none")})
	_, noTagged := c.TagInstanceProfile(
		ctx,
		&iam.TagInstanceProfileInput{InstanceProfileName: aws.String("none"), Tags: []types.Tag{tag("a", "b")}},
	)
	_, noAttached := c.DetachRolePolicy(
		ctx,
		&iam.DetachRolePolicyInput{
			RoleName:  aws.String("node"),
			PolicyArn: aws.String("arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"),
		},
	)
	_, noInline := c.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: aws.String("node"), PolicyName: aws.String("none")})
	_, badARN := c.AttachRolePolicy(
		ctx,
		&iam.AttachRolePolicyInput{RoleName: aws.String("node"), PolicyArn: aws.String("AmazonSSMManagedInstanceCore-------")},
	)
	_, badPolicy := c.PutRolePolicy(
		ctx,
		&iam.PutRolePolicyInput{RoleName: aws.String("node"), PolicyName: aws.String("p"), PolicyDocument: aws.String("{")},
	)
	for _, row := range []struct {
		what, code, message string
		err                 error
	}{
		{"profile name taken", "EntityAlreadyExists", "nodes already exists", create("nodes", "/")},
		{"profile name taken in another case", "EntityAlreadyExists", "already exists", create("Nodes", "/")},
		{"profile name with a space", "ValidationError", "instanceProfileName is invalid", create("my nodes", "/")},
		{"profile name too long", "ValidationError", "less than or equal to 128", create(long, "/")},
		{"path without slashes", "ValidationError", "path is invalid", create("p", "karpenter")},
		{"tag key twice", "InvalidInput", "Duplicate tag keys", create("p", "/", tag("a", "1"), tag("A", "2"))},
		{"reserved tag key", "InvalidInput", "System tags", create("p", "/", tag("aws:x", "1"))},
		{"tag value too long", "ValidationError", "256", create("p", "/", tag("a", strings.Repeat("x", 257)))},
		{"profile missing", "NoSuchEntity", "Instance Profile none cannot be found", get("none")},
		{"profile to delete missing", "NoSuchEntity", "Instance Profile", noProfile},
		{"profile to tag missing", "NoSuchEntity", "Instance Profile", noTagged},
		{"role to add missing", "NoSuchEntity", "The role with name none cannot be found.", add("nodes", "none")},
		{"profile to add to missing", "NoSuchEntity", "Instance Profile", add("none", "node")},
		{"role to remove not in the profile", "NoSuchEntity", "role", remove("nodes", "node")},
		{"role missing", "NoSuchEntity", "role with name none", noRole},
		{"role taken", "EntityAlreadyExists", "Role with name node already exists", role(iam.CreateRoleInput{
			RoleName:                 aws.String("node"),
			AssumeRolePolicyDocument: doc,
		})},
		{"trust policy not JSON", "MalformedPolicyDocument", "invalid Json", role(iam.CreateRoleInput{
			RoleName:                 aws.String("r"),
			AssumeRolePolicyDocument: aws.String("trust me"),
		})},
		{"session too long", "ValidationError", "maxSessionDuration", role(iam.CreateRoleInput{
			RoleName:                 aws.String("r"),
			AssumeRolePolicyDocument: doc, MaxSessionDuration: aws.Int32(50000),
		})},
		{"role name too long", "ValidationError", "64", role(iam.CreateRoleInput{
			RoleName:                 aws.String(long[:65]),
			AssumeRolePolicyDocument: doc,
		})},
		{"policy not attached", "NoSuchEntity", "was not found", noAttached},
		{"inline policy missing", "NoSuchEntity", "role policy with name none", noInline},
		{"policy by name", "InvalidInput", "is not valid", badARN},
		{"inline policy not JSON", "MalformedPolicyDocument", "Json", badPolicy},
		{"page of none", "ValidationError", "maxItems", list(iam.ListInstanceProfilesInput{MaxItems: aws.Int32(0)})},
		{"page too large", "ValidationError", "1000", list(iam.ListInstanceProfilesInput{MaxItems: aws.Int32(1001)})},
		{"marker of nobody", "ValidationError", "Marker", list(iam.ListInstanceProfilesInput{Marker: aws.String("%%")})},
		{
			"path prefix without a slash", "ValidationError", "pathPrefix",
			list(iam.ListInstanceProfilesInput{PathPrefix: aws.String("karpenter")}),
		},
	} {
		if code := awsimtest.Code(row.err); code != row.code || !strings.Contains(fmt.Sprint(row.err), row.message) {
			t.Errorf("%s: %v; want %s with %q", row.what, row.err, row.code, row.message)
		}
	}
}

func TestQuotas(t *testing.T) {
	c, ctx := start(t), t.Context()
	for i := range 1000 {
		createProfile(t, c, fmt.Sprintf("p%d", i), "/")
	}
	_, err := c.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("p1000")})
	if awsimtest.Code(err) != "LimitExceeded" {
		t.Errorf("profile 1001: %v, want LimitExceeded", err)
	}
}

func tags(in []types.Tag) map[string]string {
	out := map[string]string{}
	for _, t := range in {
		out[*t.Key] = *t.Value
	}
	return out
}
