package awsim_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

func seed(t *testing.T, w *awsimtest.World, spec awsim.ClusterSpec) {
	t.Helper()
	spec.Version, spec.Endpoint = "1.36", "https://127.0.0.1:6443"
	if err := w.Sim.SeedCluster(spec); err != nil {
		t.Fatal(err)
	}
}

func tagged(key, value string) []ec2types.Filter {
	return []ec2types.Filter{{Name: aws.String("tag:" + key), Values: []string{value}}}
}

func subnets(t *testing.T, c *ec2.Client, key, value string) []ec2types.Subnet {
	t.Helper()
	return awsimtest.OK(c.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: tagged(key, value)}))(t).Subnets
}

func groups(t *testing.T, c *ec2.Client, cluster string) []ec2types.SecurityGroup {
	t.Helper()
	return awsimtest.OK(
		c.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{Filters: tagged("karpenter.sh/discovery", cluster)}),
	)(
		t,
	).SecurityGroups
}

func TestSeedNetwork(t *testing.T) {
	w := awsimtest.Start(t)
	c := ec2.NewFromConfig(w.Config)
	for _, name := range []string{"c1", "c2", "c3"} {
		seed(t, w, awsim.ClusterSpec{Name: name})
	}
	var taken []netip.Prefix
	vpcs := map[string]string{}
	for _, name := range []string{"c1", "c2", "c3"} {
		private := subnets(t, c, "karpenter.sh/discovery", name)
		all := subnets(t, c, "kubernetes.io/cluster/"+name, "shared")
		zones := map[string]bool{}
		for _, s := range private {
			zones[*s.AvailabilityZone] = true
			if free := *s.AvailableIpAddressCount; free != 8187 {
				t.Errorf("%s: %d free addresses in %s, want those of a /19 less five", name, free, *s.CidrBlock)
			}
		}
		if len(private) != 3 || len(zones) != 3 || len(all) != 6 {
			t.Errorf("%s: %d subnets to be discovered in %d zones, %d in all; want 3 in 3, 6 in all", name, len(private), len(zones), len(all))
		}
		for _, s := range all {
			vpcs[name] = *s.VpcId
			cidr := awsimtest.OK(netip.ParsePrefix(*s.CidrBlock))(t)
			if slices.ContainsFunc(taken, func(other netip.Prefix) bool { return *s.VpcId == vpcs[name] && other.Overlaps(cidr) }) {
				t.Errorf("%s: %s overlaps a subnet of another cluster", name, cidr)
			}
			taken = append(taken, cidr)
		}
		two := groups(t, c, name)
		if len(two) != 2 {
			t.Fatalf("%s: %d security groups to be discovered, want 2", name, len(two))
		}
		for _, g := range two {
			if n := len(g.IpPermissions[0].UserIdGroupPairs); *g.VpcId != vpcs[name] || n != 2 || len(g.IpPermissionsEgress) != 1 {
				t.Errorf("%s: group %s in %s admits %d groups, lets out by %d rules", name, *g.GroupName, *g.VpcId, n, len(g.IpPermissionsEgress))
			}
		}
	}
	if vpcs["c1"] != vpcs["c2"] || vpcs["c1"] == vpcs["c3"] {
		t.Errorf("VPCs %v; want one for two clusters, then another", vpcs)
	}
	public := subnets(t, c, "kubernetes.io/role/elb", "1")
	if len(public) != 9 || !*public[0].MapPublicIpOnLaunch {
		t.Errorf("%d public subnets, want three for each cluster that give public addresses", len(public))
	}
}

func TestSeedCluster(t *testing.T) {
	w := awsimtest.Start(t)
	ctx := t.Context()
	seed(t, w, awsim.ClusterSpec{Name: "c1", CA: []byte("PEM"), OIDCIssuer: "https://127.0.0.1:6443"})
	cluster := awsimtest.OK(eks.NewFromConfig(w.Config).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("c1")}))(t).Cluster
	if *cluster.Endpoint != "https://127.0.0.1:6443" || *cluster.Version != "1.36" ||
		*cluster.KubernetesNetworkConfig.ServiceIpv4Cidr != "10.100.0.0/16" ||
		len(cluster.ResourcesVpcConfig.SubnetIds) != 6 {
		t.Errorf(
			"cluster at %s, version %s, services %s, subnets %v",
			*cluster.Endpoint,
			*cluster.Version,
			*cluster.KubernetesNetworkConfig.ServiceIpv4Cidr,
			cluster.ResourcesVpcConfig.SubnetIds,
		)
	}
	iamClient := iam.NewFromConfig(w.Config)
	attached := awsimtest.OK(
		iamClient.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{RoleName: aws.String("KarpenterNodeRole-c1")}),
	)(
		t,
	)
	var policies []string
	for _, p := range attached.AttachedPolicies {
		policies = append(policies, *p.PolicyName)
	}
	want := []string{
		"AmazonEC2ContainerRegistryPullOnly",
		"AmazonEKSWorkerNodePolicy",
		"AmazonEKS_CNI_Policy",
		"AmazonSSMManagedInstanceCore",
	}
	if diff := cmp.Diff(want, policies); diff != "" {
		t.Errorf("policies of the node role (-want +got):\n%s", diff)
	}
	for _, name := range []string{"KarpenterControllerRole-c1", "EKSClusterRole-c1"} {
		awsimtest.OK(iamClient.GetRole(ctx, &iam.GetRoleInput{RoleName: &name}))(t)
	}
	queues := sqs.NewFromConfig(w.Config)
	queue := awsimtest.OK(queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("c1")}))(t)
	kept := awsimtest.OK(
		queues.GetQueueAttributes(
			ctx,
			&sqs.GetQueueAttributesInput{QueueUrl: queue.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{"MessageRetentionPeriod"}},
		),
	)(
		t,
	)
	if kept.Attributes["MessageRetentionPeriod"] != "300" {
		t.Errorf("the queue keeps messages for %s s, want 300", kept.Attributes["MessageRetentionPeriod"])
	}
	creds := awsimtest.OK(w.Sim.RoleCredentials(awsim.ControllerRole("c1")))(t)
	me := awsimtest.OK(sts.NewFromConfig(w.As(creds)).GetCallerIdentity(ctx, nil))(t)
	if !strings.Contains(*me.Arn, ":assumed-role/KarpenterControllerRole-c1/") {
		t.Errorf("the controller's credentials are those of %s", *me.Arn)
	}
}

func TestSeedNodeRoleMapping(t *testing.T) {
	w := awsimtest.Start(t)
	c := eks.NewFromConfig(w.Config)
	for _, row := range []struct {
		name, mode, mapping string
		entries             string // by type; or the error
	}{
		{"default", "", "", "EC2_LINUX"},
		{"api", "API", "", "EC2_LINUX"},
		{"by-map", "", awsim.MapByConfigMap, ""},
		{"unmapped", "", awsim.MapNone, ""},
		{"old", "CONFIG_MAP", "", "InvalidRequestException"},
	} {
		seed(t, w, awsim.ClusterSpec{Name: row.name, AuthenticationMode: row.mode, NodeRoleMapping: row.mapping})
		list, err := c.ListAccessEntries(t.Context(), &eks.ListAccessEntriesInput{ClusterName: &row.name})
		if err != nil {
			if awsimtest.Code(err) != row.entries {
				t.Errorf("%s: %v", row.name, err)
			}
			continue
		}
		var types []string
		for _, principal := range list.AccessEntries {
			entry := awsimtest.OK(
				c.DescribeAccessEntry(t.Context(), &eks.DescribeAccessEntryInput{ClusterName: &row.name, PrincipalArn: &principal}),
			)(
				t,
			)
			types = append(types, *entry.AccessEntry.Type)
			if !strings.HasSuffix(principal, ":role/KarpenterNodeRole-"+row.name) {
				t.Errorf("%s: entry for %s", row.name, principal)
			}
		}
		if got := strings.Join(types, " "); got != row.entries {
			t.Errorf("%s: entries %q, want %q", row.name, got, row.entries)
		}
	}
}

// A name exists once in AWS, however many clusters go by it.
func TestSeedSameName(t *testing.T) {
	w := awsimtest.Start(t)
	endpoint := func() string {
		c, _ := w.Sim.EKS().Cluster("c1")
		return c.Endpoint
	}
	seed(t, w, awsim.ClusterSpec{Name: "c1"})
	spec := awsim.ClusterSpec{Name: "c1", Version: "1.36", Endpoint: "https://127.0.0.1:7443"}
	if err := w.Sim.SeedCluster(spec); err != nil || endpoint() != "https://127.0.0.1:6443" {
		t.Errorf("seeded again: endpoint %s (%v), want the first", endpoint(), err)
	}
	spec.TakeOver = true
	if err := w.Sim.SeedCluster(spec); err != nil || endpoint() != "https://127.0.0.1:7443" {
		t.Errorf("taken over: endpoint %s (%v), want the second", endpoint(), err)
	}
	if all := groups(t, ec2.NewFromConfig(w.Config), "c1"); len(all) != 2 {
		t.Errorf("%d security groups after seeding thrice, want 2", len(all))
	}
}

func TestSeedRefused(t *testing.T) {
	w := awsimtest.Start(t)
	good := awsim.ClusterSpec{Name: "c1", Version: "1.36", Endpoint: "https://127.0.0.1:6443"}
	for _, row := range []struct {
		what   string
		change func(*awsim.ClusterSpec)
	}{
		{"no name", func(c *awsim.ClusterSpec) { c.Name = "" }},
		{"name with a slash", func(c *awsim.ClusterSpec) { c.Name = "a/b" }},
		{"name too long for a role", func(c *awsim.ClusterSpec) { c.Name = strings.Repeat("x", 41) }},
		{"no endpoint", func(c *awsim.ClusterSpec) { c.Endpoint = "" }},
		{"mapping unknown", func(c *awsim.ClusterSpec) { c.NodeRoleMapping = "rbac" }},
	} {
		spec := good
		row.change(&spec)
		if err := w.Sim.SeedCluster(spec); err == nil {
			t.Errorf("%s: accepted", row.what)
		}
	}
	if n := len(subnets(t, ec2.NewFromConfig(w.Config), "kubernetes.io/role/elb", "1")); n != 0 {
		t.Errorf("%d subnets left by refused seeds", n)
	}
}

// An instance acts as the role in its instance profile, in a session of its own name.
func TestInstanceCredentials(t *testing.T) {
	w := awsimtest.Start(t)
	ctx := t.Context()
	seed(t, w, awsim.ClusterSpec{Name: "c1"})
	profiles, c := iam.NewFromConfig(w.Config), ec2.NewFromConfig(w.Config)
	name := aws.String("nodes")
	awsimtest.OK(profiles.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: name}))(t)
	awsimtest.OK(
		profiles.AddRoleToInstanceProfile(
			ctx,
			&iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("KarpenterNodeRole-c1")},
		),
	)(
		t,
	)
	ami := awsimtest.OK(ssm.NewFromConfig(w.Config).GetParameter(ctx, &ssm.GetParameterInput{
		Name: aws.String("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"),
	}))(t)
	private := subnets(t, c, "karpenter.sh/discovery", "c1")
	run := awsimtest.OK(c.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: ami.Parameter.Value, InstanceType: "m5.large", MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: private[0].SubnetId,
		IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: name},
	}))(t)
	id := *run.Instances[0].InstanceId
	creds := awsimtest.OK(w.Sim.InstanceCredentials(id))(t)
	me := awsimtest.OK(sts.NewFromConfig(w.As(creds)).GetCallerIdentity(ctx, nil))(t)
	if want := fmt.Sprintf("arn:aws:sts::111122223333:assumed-role/KarpenterNodeRole-c1/%s", id); *me.Arn != want {
		t.Errorf("the instance is %s, want %s", *me.Arn, want)
	}
}

// The Fault Injection Service finds the role in which it interrupts Spot instances.
func TestSeedFISRole(t *testing.T) {
	w := awsimtest.Start(t)
	for _, name := range []string{"c1", "c2"} {
		seed(t, w, awsim.ClusterSpec{Name: name})
	}
	c := iam.NewFromConfig(w.Config)
	role := awsimtest.OK(c.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("FISInterruptionRole")}))(t).Role
	if !strings.Contains(aws.ToString(role.AssumeRolePolicyDocument), "fis.amazonaws.com") {
		t.Errorf("the role trusts %s", aws.ToString(role.AssumeRolePolicyDocument))
	}
}
