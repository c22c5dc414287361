package eks_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	sim "github.com/dovetail-k8s/dovetail/lab/awsim/eks"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
)

const account = "111122223333"

func start(t *testing.T) (*awsimtest.World, *eks.Client) {
	t.Helper()
	w := awsimtest.Start(t)
	return w, eks.NewFromConfig(w.Config)
}

func createCluster(t *testing.T, w *awsimtest.World, c sim.Cluster) {
	t.Helper()
	if err := w.Sim.EKS().CreateCluster(c); err != nil {
		t.Fatal(err)
	}
}

func createRole(t *testing.T, w *awsimtest.World, name, path string) *string {
	t.Helper()
	role := awsimtest.OK(w.Sim.IAM().CreateRole(iam.Role{Name: name, Path: path, TrustPolicy: `{"Statement":[]}`}))(t)
	return &role.ARN
}

func TestDescribeCluster(t *testing.T) {
	w, c := start(t)
	createCluster(t, w, sim.Cluster{
		Name: "c1", Version: "1.36", Endpoint: "https://127.0.0.1:6443", CA: []byte("PEM"), ServiceCIDR: "10.100.0.0/16",
		VPC: sim.VPC{ID: "vpc-1", SubnetIDs: []string{"subnet-1"}, ClusterSecurityGroup: "sg-1", PublicAccess: true},
	})
	got := awsimtest.OK(c.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("c1")}))(t).Cluster
	want := map[string]string{
		"arn": "arn:aws:eks:us-east-1:" + account + ":cluster/c1", "version": "1.36", "endpoint": "https://127.0.0.1:6443", "ca": "PEM",
		"cidr": "10.100.0.0/16", "vpc": "vpc-1", "subnets": "[subnet-1]", "group": "sg-1", "public": "true", "private": "false",
		"mode": "API_AND_CONFIG_MAP", "status": "ACTIVE", "platform": "eks.1", "created": w.Clock.Now().String(),
	}
	ca := awsimtest.OK(base64.StdEncoding.DecodeString(*got.CertificateAuthority.Data))(t)
	vpc := got.ResourcesVpcConfig
	have := map[string]string{
		"arn": *got.Arn, "version": *got.Version, "endpoint": *got.Endpoint, "ca": string(ca),
		"cidr": *got.KubernetesNetworkConfig.ServiceIpv4Cidr, "vpc": *vpc.VpcId, "subnets": fmt.Sprint(vpc.SubnetIds),
		"group": *vpc.ClusterSecurityGroupId, "public": fmt.Sprint(vpc.EndpointPublicAccess), "private": fmt.Sprint(vpc.EndpointPrivateAccess),
		"mode": string(got.AccessConfig.AuthenticationMode), "status": string(got.Status), "platform": *got.PlatformVersion,
		"created": got.CreatedAt.UTC().String(),
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("cluster (-want +got):\n%s", diff)
	}

	if err := w.Sim.EKS().SetEndpoint("c1", "https://127.0.0.1:7443", []byte("other")); err != nil {
		t.Fatal(err)
	}
	moved := awsimtest.OK(c.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("c1")}))(t).Cluster
	if *moved.Endpoint != "https://127.0.0.1:7443" {
		t.Errorf("endpoint %s after it moved", *moved.Endpoint)
	}

	createCluster(t, w, sim.Cluster{Name: "c2", Version: "1.36", Endpoint: "https://127.0.0.1:1", CA: []byte("PEM"), Status: "CREATING"})
	young := awsimtest.OK(c.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("c2")}))(t).Cluster
	if young.Endpoint != nil || young.CertificateAuthority.Data != nil || young.Status != types.ClusterStatusCreating {
		t.Errorf("while it is created: endpoint %v, CA %v, status %s", young.Endpoint, young.CertificateAuthority.Data, young.Status)
	}
}

// TestIPFamily: a cluster has service addresses of one family only.
func TestIPFamily(t *testing.T) {
	w, c := start(t)
	for name, row := range map[string]struct{ cidr, family, v4, v6 string }{
		"four": {"10.100.0.0/16", "ipv4", "10.100.0.0/16", ""},
		"six":  {"fd12:3456:789a::/108", "ipv6", "", "fd12:3456:789a::/108"},
	} {
		createCluster(t, w, sim.Cluster{Name: name, Version: "1.36", ServiceCIDR: row.cidr})
		got := awsimtest.OK(c.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: &name}))(t).Cluster.KubernetesNetworkConfig
		if string(got.IpFamily) != row.family || aws.ToString(got.ServiceIpv4Cidr) != row.v4 || aws.ToString(got.ServiceIpv6Cidr) != row.v6 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestListClusters(t *testing.T) {
	w, c := start(t)
	var want, got []string
	for i := range 5 {
		want = append(want, fmt.Sprintf("c%d", i))
		createCluster(t, w, sim.Cluster{Name: want[i], Version: "1.36"})
	}
	for pages := eks.NewListClustersPaginator(c, &eks.ListClustersInput{MaxResults: aws.Int32(2)}); pages.HasMorePages(); {
		page := awsimtest.OK(pages.NextPage(t.Context()))(t)
		got = append(got, page.Clusters...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}

// What EKS makes of an access entry when only its type is given.
func TestAccessEntryDefaults(t *testing.T) {
	w, c := start(t)
	createCluster(t, w, sim.Cluster{Name: "c1", Version: "1.36"})
	byInstance, bySession := "system:node:{{EC2PrivateDNSName}}", "system:node:{{SessionName}}"
	for _, row := range []struct {
		kind, username string
		groups         []string
	}{
		{"", "arn:aws:sts::" + account + ":assumed-role/node-/{{SessionName}}", []string{}},
		{"STANDARD", "arn:aws:sts::" + account + ":assumed-role/node-STANDARD/{{SessionName}}", []string{}},
		{"EC2_LINUX", byInstance, []string{"system:nodes"}},
		{"EC2", byInstance, []string{"system:nodes"}},
		{"EC2_WINDOWS", byInstance, []string{"eks:kube-proxy-windows", "system:nodes"}},
		{"FARGATE_LINUX", bySession, []string{"system:bootstrappers", "system:node-proxier", "system:nodes"}},
		{"HYBRID_LINUX", bySession, []string{"system:bootstrappers", "system:nodes"}},
	} {
		principal := createRole(t, w, "node-"+row.kind, "/eks/")
		in := &eks.CreateAccessEntryInput{ClusterName: aws.String("c1"), PrincipalArn: principal}
		if row.kind != "" {
			in.Type = &row.kind
		}
		awsimtest.OK(c.CreateAccessEntry(t.Context(), in))(t)
		got := awsimtest.OK(
			c.DescribeAccessEntry(t.Context(), &eks.DescribeAccessEntryInput{ClusterName: aws.String("c1"), PrincipalArn: principal}),
		)(
			t,
		).AccessEntry
		if *got.Username != row.username || !cmp.Equal(got.KubernetesGroups, row.groups) || *got.Type == "" {
			t.Errorf(
				"type %q: user %s, groups %v, type %s; want user %s, groups %v",
				row.kind,
				*got.Username,
				got.KubernetesGroups,
				*got.Type,
				row.username,
				row.groups,
			)
		}
		if prefix := "arn:aws:eks:us-east-1:" + account + ":access-entry/c1/role/" + account + "/eks/node-" + row.kind + "/"; !strings.HasPrefix(
			*got.AccessEntryArn,
			prefix,
		) {
			t.Errorf("ARN %s, want prefix %s", *got.AccessEntryArn, prefix)
		}
	}
}

func TestAccessEntryLifecycle(t *testing.T) {
	w, c := start(t)
	ctx, name := t.Context(), aws.String("c1")
	createCluster(t, w, sim.Cluster{Name: "c1", Version: "1.36"})
	admin, other := createRole(t, w, "admin", "/"), createRole(t, w, "other", "/")
	awsimtest.OK(c.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
		ClusterName: name, PrincipalArn: admin, KubernetesGroups: []string{"viewers"}, Username: aws.String("me"),
		Tags: map[string]string{"a": "b"},
	}))(t)
	awsimtest.OK(c.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{ClusterName: name, PrincipalArn: other}))(t)
	w.Clock.Advance(time.Minute)
	changed := awsimtest.OK(
		c.UpdateAccessEntry(ctx, &eks.UpdateAccessEntryInput{ClusterName: name, PrincipalArn: admin, KubernetesGroups: []string{"editors"}}),
	)(
		t,
	).AccessEntry
	if *changed.Username != "me" || !cmp.Equal(changed.KubernetesGroups, []string{"editors"}) ||
		changed.ModifiedAt.Sub(*changed.CreatedAt) != time.Minute {
		t.Errorf(
			"after the update: %s %v, modified %s after its creation",
			*changed.Username,
			changed.KubernetesGroups,
			changed.ModifiedAt.Sub(*changed.CreatedAt),
		)
	}

	policy := aws.String("arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy")
	awsimtest.OK(c.AssociateAccessPolicy(ctx, &eks.AssociateAccessPolicyInput{
		ClusterName: name, PrincipalArn: admin, PolicyArn: policy, AccessScope: &types.AccessScope{Type: types.AccessScopeTypeCluster},
	}))(t)
	policies := awsimtest.OK(
		c.ListAssociatedAccessPolicies(ctx, &eks.ListAssociatedAccessPoliciesInput{ClusterName: name, PrincipalArn: admin}),
	)(
		t,
	)
	if len(policies.AssociatedAccessPolicies) != 1 || *policies.AssociatedAccessPolicies[0].PolicyArn != *policy {
		t.Errorf("associated policies: %v", policies.AssociatedAccessPolicies)
	}
	list := func(policy *string) []string {
		var out []string
		in := &eks.ListAccessEntriesInput{ClusterName: name, MaxResults: aws.Int32(1), AssociatedPolicyArn: policy}
		for pages := eks.NewListAccessEntriesPaginator(c, in); pages.HasMorePages(); {
			out = append(out, awsimtest.OK(pages.NextPage(ctx))(t).AccessEntries...)
		}
		return out
	}
	if all, with := list(nil), list(policy); !slices.Equal(all, []string{*admin, *other}) || !slices.Equal(with, []string{*admin}) {
		t.Errorf("entries %v, with the policy %v", all, with)
	}
	awsimtest.OK(
		c.DisassociateAccessPolicy(ctx, &eks.DisassociateAccessPolicyInput{ClusterName: name, PrincipalArn: admin, PolicyArn: policy}),
	)(
		t,
	)
	if with := list(policy); len(with) != 0 {
		t.Errorf("entries with the policy after it was taken away: %v", with)
	}
	awsimtest.OK(c.DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: name, PrincipalArn: admin}))(t)
	if all := list(nil); !slices.Equal(all, []string{*other}) {
		t.Errorf("entries after a deletion: %v", all)
	}
}

func TestErrors(t *testing.T) {
	w, c := start(t)
	ctx := t.Context()
	createCluster(t, w, sim.Cluster{Name: "c1", Version: "1.36"})
	createCluster(t, w, sim.Cluster{Name: "old", Version: "1.36", AuthenticationMode: sim.ModeConfigMap})
	node, taken := createRole(t, w, "node", "/"), createRole(t, w, "taken", "/")
	none := aws.String("arn:aws:iam::" + account + ":role/none")
	create := func(in eks.CreateAccessEntryInput) error {
		if in.ClusterName == nil {
			in.ClusterName = aws.String("c1")
		}
		if in.PrincipalArn == nil {
			in.PrincipalArn = node
		}
		_, err := c.CreateAccessEntry(ctx, &in)
		return err
	}
	if err := create(eks.CreateAccessEntryInput{PrincipalArn: taken, Type: aws.String("EC2_LINUX"), ClientRequestToken: aws.String("t")}); err != nil {
		t.Fatal(err)
	}
	_, noCluster := c.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("c3")})
	_, noEntry := c.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: aws.String("c1"), PrincipalArn: none})
	_, noDelete := c.DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: aws.String("c1"), PrincipalArn: none})
	_, badPage := c.ListClusters(ctx, &eks.ListClustersInput{MaxResults: aws.Int32(101)})
	_, badToken := c.ListClusters(ctx, &eks.ListClustersInput{NextToken: aws.String("x")})
	_, nodeGroups := c.UpdateAccessEntry(
		ctx,
		&eks.UpdateAccessEntryInput{ClusterName: aws.String("c1"), PrincipalArn: taken, KubernetesGroups: []string{"x"}},
	)
	_, nodePolicy := c.AssociateAccessPolicy(ctx, &eks.AssociateAccessPolicyInput{
		ClusterName: aws.String(
			"c1",
		), PrincipalArn: taken, PolicyArn: aws.String("arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"),
		AccessScope: &types.AccessScope{Type: types.AccessScopeTypeCluster},
	})
	_, otherAction := c.DescribeNodegroup(ctx, &eks.DescribeNodegroupInput{ClusterName: aws.String("c1"), NodegroupName: aws.String("n")})
	for _, row := range []struct {
		what, code, message string
		err                 error
	}{
		{"cluster missing", "ResourceNotFoundException", "No cluster found for name: c3.", noCluster},
		{"entry missing", "ResourceNotFoundException", "principalArn", noEntry},
		{"entry to delete missing", "ResourceNotFoundException", "principalArn", noDelete},
		{"page too large", "InvalidParameterException", "maxResults", badPage},
		{"token of nobody", "InvalidParameterException", "nextToken", badToken},
		{
			"cluster with aws-auth only", "InvalidRequestException", "API_AND_CONFIG_MAP",
			create(eks.CreateAccessEntryInput{ClusterName: aws.String("old")}),
		},
		{
			"principal no ARN", "InvalidParameterException", "invalid principal",
			create(eks.CreateAccessEntryInput{PrincipalArn: aws.String("node")}),
		},
		{"principal missing in IAM", "InvalidParameterException", "invalid principal", create(eks.CreateAccessEntryInput{PrincipalArn: none})},
		{
			"principal a session", "InvalidParameterException", "invalid principal",
			create(eks.CreateAccessEntryInput{PrincipalArn: aws.String("arn:aws:sts::" + account + ":assumed-role/node/i-1")}),
		},
		{
			"nodes as a user", "InvalidParameterException", "IAM role",
			create(eks.CreateAccessEntryInput{PrincipalArn: aws.String("arn:aws:iam::" + account + ":user/me"), Type: aws.String("EC2_LINUX")}),
		},
		{"entry taken", "ResourceInUseException", "already in use", create(eks.CreateAccessEntryInput{
			PrincipalArn: taken,
			Type:         aws.String("EC2_LINUX"),
		})},
		{"the same request again", "", "", create(eks.CreateAccessEntryInput{
			PrincipalArn: taken, Type: aws.String("EC2_LINUX"),
			ClientRequestToken: aws.String("t"),
		})},
		{"type unknown", "InvalidParameterException", "type", create(eks.CreateAccessEntryInput{Type: aws.String("LINUX")})},
		{"groups for nodes", "InvalidParameterException", "kubernetesGroups", create(eks.CreateAccessEntryInput{
			Type:             aws.String("EC2_LINUX"),
			KubernetesGroups: []string{"x"},
		})},
		{
			"group of the system", "InvalidParameterException", "The kubernetes group name system:nodes is invalid, it cannot start with system:",
			create(eks.CreateAccessEntryInput{KubernetesGroups: []string{"system:nodes"}}),
		},
		{
			"username of the system", "InvalidParameterException", "must not begin with system:",
			create(eks.CreateAccessEntryInput{Username: aws.String("system:node:x")}),
		},
		{"update of an entry for nodes", "InvalidParameterException", "must not begin with system:", nodeGroups},
		{"access policy for nodes", "InvalidParameterException", "EC2_LINUX", nodePolicy},
		{"another action", "UnknownOperationException", "node-groups", otherAction},
	} {
		if code := awsimtest.Code(row.err); code != row.code || !strings.Contains(fmt.Sprint(row.err), row.message) {
			t.Errorf("%s: %v; want %s with %q", row.what, row.err, row.code, row.message)
		}
	}
}

// What no SDK would send.
func TestUnknownMembers(t *testing.T) {
	w, _ := start(t)
	createCluster(t, w, sim.Cluster{Name: "c1", Version: "1.36"})
	for _, row := range []struct{ what, method, path, body, answer string }{
		{"member of the body", http.MethodPost, "/clusters/c1/access-entries", `{"principal":"x"}`, "SerializationException"},
		{"parameter of the query where there are none", http.MethodGet, "/clusters/c1?maxResults=3", "", "InvalidParameterException"},
		{"parameter of the query", http.MethodGet, "/clusters?limit=3", "", "InvalidParameterException"},
	} {
		req := awsimtest.OK(http.NewRequestWithContext(t.Context(), row.method, w.URL+row.path, strings.NewReader(row.body)))(t)
		req.Header.Set(
			"Authorization",
			"AWS4-HMAC-SHA256 Credential=test/20260821/us-east-1/eks/aws4_request, SignedHeaders=host, Signature=0",
		)
		resp := awsimtest.OK(http.DefaultClient.Do(req))(t)
		answer := string(awsimtest.OK(io.ReadAll(resp.Body))(t))
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(answer, row.answer) {
			t.Errorf("%s: %d %s, want 400 with %s", row.what, resp.StatusCode, answer, row.answer)
		}
	}
}
