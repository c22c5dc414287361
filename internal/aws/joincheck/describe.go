package joincheck

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
)

// caller is the identity of the controller.
type caller struct{ account, partition, role string }

// callerIdentity returns the account, the partition and the role of the controller, the last as a role's ARN without
// its path.
func (c *Checker) callerIdentity(ctx context.Context) (caller, error) {
	if known, ok := c.callers.Get(""); ok {
		return known, nil
	}
	out, err := c.cfg.STS.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return caller{}, fmt.Errorf("get the controller's identity from STS:  %w", err)
	}
	who := caller{account: deref(out.Account)}
	if session, err := arn.Parse(deref(out.Arn)); err == nil {
		who.partition = session.Partition
		if role, ok := assumedRole(session); ok {
			who.role = role.String()
		}
	}
	c.callers.Set("", who)
	return who, nil
}

// assumedRole turns arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION into arn:PARTITION:iam::ACCOUNT:role/ROLE.
func assumedRole(session arn.ARN) (arn.ARN, bool) {
	rest, ok := strings.CutPrefix(session.Resource, "assumed-role/")
	name, _, _ := strings.Cut(rest, "/")
	return arn.ARN{
		Partition: session.Partition,
		Service:   "iam",
		Region:    session.Region,
		AccountID: session.AccountID,
		Resource:  "role/" + name,
	}, ok
}

func (c *Checker) describeCluster(ctx context.Context) (*ekstypes.Cluster, error) {
	if known, ok := c.clusters.Get(""); ok {
		return known, nil
	}
	out, err := c.cfg.EKS.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &c.cfg.Cluster.Name})
	if err != nil {
		return nil, err
	}
	if out.Cluster == nil {
		return nil, errors.New("EKS returned an empty response")
	}
	c.clusters.Set("", out.Cluster)
	return out.Cluster, nil
}

func (c *Checker) cluster() join.Cluster {
	out := c.cfg.Cluster
	out.Version = c.cfg.Version()
	return out
}

// access reads what decides whether a class's nodes can authenticate.
func (c *Checker) access(ctx context.Context, class Class) join.Access {
	a := join.Access{
		Cluster: c.cluster(), Role: class.Spec.Role, Windows: strings.HasPrefix(class.Family, "Windows"),
		Profile: join.Profile{Name: class.Status.InstanceProfile},
	}
	who, err := c.callerIdentity(ctx)
	if err == nil {
		a.Account, a.Partition = who.account, who.partition
		if who.role != "" {
			a.ControllerRoles = []string{who.role}
		}
	}
	c.readProfile(ctx, &a)
	c.readMode(ctx, &a)
	if a.LinuxEntryForWindows() && c.cfg.APIServer != nil {
		a.Running, err = c.cfg.APIServer.NodesOfRole(ctx, join.RoleName(a.Role), a.Profile.Name)
		a.RunningErr = errorText(err)
	}
	return a
}

// readProfile reads the instance profile. The controller repairs a profile that it has created; until that shows, IAM
// is only eventually consistent.
func (c *Checker) readProfile(ctx context.Context, a *join.Access) {
	if c.cfg.NoIAM {
		a.ProfileErr = "IAM cannot be reached from an isolated VPC"
		return
	}
	if a.Profile.Name != "" {
		out, err := c.cfg.IAM.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &a.Profile.Name})
		switch {
		case awserrors.Is(err, awserrors.NotFound) && a.Role != "":
			a.ProfileErr = "IAM does not show it yet"
		case awserrors.Is(err, awserrors.NotFound):
		case err != nil:
			a.ProfileErr = errorText(err)
		case out.InstanceProfile != nil:
			a.Profile.Found = true
			for _, r := range out.InstanceProfile.Roles {
				a.Profile.Roles = append(a.Profile.Roles, deref(r.Arn))
				c.roles.Set(a.Profile.Name, deref(r.RoleName))
			}
			if len(a.Profile.Roles) == 0 && a.Role != "" {
				a.ProfileErr = "IAM does not show the role in it yet"
			}
		}
	}
	if len(a.Profile.Roles) == 1 || a.Role == "" {
		return
	}
	name := join.RoleName(a.Role)
	if out, err := c.cfg.IAM.GetRole(ctx, &iam.GetRoleInput{RoleName: &name}); err == nil && out.Role != nil {
		a.RoleARN = deref(out.Role.Arn)
	}
}

// readMode reads the authentication mode of the cluster, and the mappings that it uses.
func (c *Checker) readMode(ctx context.Context, a *join.Access) {
	described, err := c.describeCluster(ctx)
	if err != nil {
		a.ModeErr = errorText(err)
		return
	}
	a.Mode = join.ModeConfigMap
	if access := described.AccessConfig; access != nil && access.AuthenticationMode != "" {
		a.Mode = join.Mode(access.AuthenticationMode)
	}
	if a.Mode != join.ModeConfigMap {
		if a.Entries, err = c.entries(ctx, a); err != nil {
			a.EntriesErr = errorText(err)
		}
	}
	switch {
	case c.cfg.APIServer == nil:
		a.AWSAuthErr = "access to the API server is not configured"
	default:
		data, found, err := c.cfg.APIServer.AuthMap(ctx)
		a.AWSAuth, a.AWSAuthErr = join.AWSAuth{Found: found, Data: data}, errorText(err)
	}
}

// entries reads the relevant access entries: of the node role, of the controller's, and of roles with the same name.
func (c *Checker) entries(ctx context.Context, a *join.Access) ([]join.Entry, error) {
	wanted := map[string]bool{}
	for _, role := range slices.Concat(a.Profile.Roles, []string{a.RoleARN, a.Role}, a.ControllerRoles) {
		if name := join.RoleName(role); name != "" {
			wanted[strings.ToLower(name)] = true
		}
	}
	var out []join.Entry
	pages := eks.NewListAccessEntriesPaginator(c.cfg.EKS, &eks.ListAccessEntriesInput{ClusterName: &c.cfg.Cluster.Name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, principal := range page.AccessEntries {
			if !wanted[strings.ToLower(join.RoleName(principal))] {
				continue
			}
			described, err := c.cfg.EKS.DescribeAccessEntry(
				ctx,
				&eks.DescribeAccessEntryInput{ClusterName: &c.cfg.Cluster.Name, PrincipalArn: &principal},
			)
			if err != nil {
				return nil, err
			}
			if e := described.AccessEntry; e != nil {
				out = append(out, join.Entry{PrincipalARN: principal, Type: deref(e.Type), Username: deref(e.Username), Groups: e.KubernetesGroups})
			}
		}
	}
	return out, nil
}

// network reads the network between a class's instances and the API server.
func (c *Checker) network(ctx context.Context, class Class) join.Network {
	n := join.Network{Cluster: c.cluster()}
	var clusterGroups []string
	described, err := c.describeCluster(ctx)
	if vpc := vpcOf(described); err != nil || vpc == nil {
		n.ClusterErr = errorText(err)
		if err == nil {
			n.ClusterErr = "EKS does not report its VPC"
		}
	} else {
		n.VPC, n.PrivateAccess, n.Public = deref(vpc.VpcId), vpc.EndpointPrivateAccess, vpc.EndpointPublicAccess
		n.PublicCIDRs = vpc.PublicAccessCidrs
		clusterGroups = vpc.SecurityGroupIds
		if own := deref(vpc.ClusterSecurityGroupId); own != "" {
			clusterGroups = append([]string{own}, clusterGroups...)
		}
	}
	if n.Subnets, err = c.subnets(ctx, class); err != nil {
		n.SubnetsErr = errorText(err)
	}
	var own []string
	for _, g := range class.Status.SecurityGroups {
		own = append(own, g.ID)
	}
	if n.Groups, err = c.groups(ctx, own); err == nil {
		n.ClusterGroups, err = c.groups(ctx, clusterGroups)
	}
	n.GroupsErr = errorText(err)
	return n
}

func vpcOf(described *ekstypes.Cluster) *ekstypes.VpcConfigResponse {
	if described == nil {
		return nil
	}
	return described.ResourcesVpcConfig
}

func (c *Checker) subnets(ctx context.Context, class Class) ([]join.Subnet, error) {
	if len(class.Status.Subnets) == 0 {
		return nil, nil
	}
	var ids, vpcs []string
	for _, s := range class.Status.Subnets {
		ids = append(ids, s.ID)
	}
	var out []join.Subnet
	pages := ec2.NewDescribeSubnetsPaginator(
		c.cfg.EC2,
		&ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{network.Filter("subnet-id", ids...)}},
	)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Subnets {
			public := aws.ToBool(s.MapPublicIpOnLaunch)
			if class.Spec.AssociatePublicIPAddress != nil {
				public = *class.Spec.AssociatePublicIPAddress
			}
			out = append(out, join.Subnet{ID: deref(s.SubnetId), VPC: deref(s.VpcId), CIDR: deref(s.CidrBlock), PublicIP: public})
			if !slices.Contains(vpcs, deref(s.VpcId)) {
				vpcs = append(vpcs, deref(s.VpcId))
			}
		}
	}
	return out, c.addRoutes(ctx, out, vpcs)
}

// addRoutes adds to each subnet the routes of its table, or of its VPC's main table.
func (c *Checker) addRoutes(ctx context.Context, subnets []join.Subnet, vpcs []string) error {
	own, main := map[string][]join.Route{}, map[string][]join.Route{}
	if len(vpcs) > 0 {
		pages := ec2.NewDescribeRouteTablesPaginator(
			c.cfg.EC2,
			&ec2.DescribeRouteTablesInput{Filters: []ec2types.Filter{network.Filter("vpc-id", vpcs...)}},
		)
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return err
			}
			for _, table := range page.RouteTables {
				routes := routesOf(table)
				for _, a := range table.Associations {
					if aws.ToBool(a.Main) {
						main[deref(table.VpcId)] = routes
					}
					if id := deref(a.SubnetId); id != "" {
						own[id] = routes
					}
				}
			}
		}
	}
	for i := range subnets {
		routes, explicit := own[subnets[i].ID]
		if !explicit {
			routes = main[subnets[i].VPC]
		}
		subnets[i].Routes = routes
	}
	return nil
}

func routesOf(table ec2types.RouteTable) []join.Route {
	var out []join.Route
	for _, r := range table.Routes {
		route := join.Route{Destination: deref(r.DestinationCidrBlock), Blackhole: r.State == ec2types.RouteStateBlackhole}
		if route.Destination == "" {
			route.Destination = deref(r.DestinationIpv6CidrBlock)
		}
		for _, target := range []*string{
			r.NatGatewayId, r.GatewayId, r.TransitGatewayId, r.VpcPeeringConnectionId, r.NetworkInterfaceId, r.InstanceId,
			r.EgressOnlyInternetGatewayId, r.LocalGatewayId, r.CarrierGatewayId, r.CoreNetworkArn,
		} {
			if route.Target == "" {
				route.Target = deref(target)
			}
		}
		out = append(out, route)
	}
	return out
}

func (c *Checker) groups(ctx context.Context, ids []string) ([]join.SecurityGroup, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var out []join.SecurityGroup
	pages := ec2.NewDescribeSecurityGroupsPaginator(
		c.cfg.EC2,
		&ec2.DescribeSecurityGroupsInput{Filters: []ec2types.Filter{network.Filter("group-id", ids...)}},
	)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, g := range page.SecurityGroups {
			out = append(out, join.SecurityGroup{
				ID: deref(g.GroupId), VPC: deref(g.VpcId), Ingress: permissions(g.IpPermissions), Egress: permissions(g.IpPermissionsEgress),
			})
		}
	}
	return out, nil
}

func permissions(list []ec2types.IpPermission) []join.Permission {
	var out []join.Permission
	for _, p := range list {
		q := join.Permission{Protocol: deref(p.IpProtocol), FromPort: -1, ToPort: -1}
		if p.FromPort != nil && p.ToPort != nil {
			q.FromPort, q.ToPort = int(*p.FromPort), int(*p.ToPort)
		}
		for _, r := range p.IpRanges {
			q.CIDRs = append(q.CIDRs, deref(r.CidrIp))
		}
		for _, r := range p.Ipv6Ranges {
			q.CIDRs = append(q.CIDRs, deref(r.CidrIpv6))
		}
		for _, g := range p.UserIdGroupPairs {
			q.Groups = append(q.Groups, deref(g.GroupId))
		}
		for _, l := range p.PrefixListIds {
			q.PrefixLists = append(q.PrefixLists, deref(l.PrefixListId))
		}
		out = append(out, q)
	}
	return out
}

func (c *Checker) bootConfig(class Class) join.BootConfig {
	m := join.BootConfig{Cluster: c.cluster(), Family: class.Family, UserData: class.Spec.UserData, Class: ClassScope(class.EC2NodeClass)}
	for _, i := range class.Status.AMIs {
		m.Images = append(m.Images, join.Image{ID: i.ID, Name: i.Name})
	}
	return m
}

// instance reads the state of an instance.
func (c *Checker) instance(ctx context.Context, id string, class Class) (join.Instance, error) {
	out, err := c.cfg.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return join.Instance{}, err
	}
	for _, r := range out.Reservations {
		if len(r.Instances) > 0 {
			return c.readInstance(&r.Instances[0], class), nil
		}
	}
	return join.Instance{}, fmt.Errorf("EC2 does not know instance %s", id)
}

func (c *Checker) readInstance(i *ec2types.Instance, class Class) join.Instance {
	found := join.Instance{
		ID: deref(i.InstanceId), Class: ClassScope(class.EC2NodeClass), Subnet: "subnet/" + deref(i.SubnetId),
		NoUserData: strings.TrimSpace(class.Spec.UserData) == "",
	}
	if i.State != nil {
		found.State = string(i.State.Name)
	}
	if i.StateReason != nil {
		found.Reason, found.Message = deref(i.StateReason.Code), deref(i.StateReason.Message)
	}
	role, known := c.roles.Get(class.Status.InstanceProfile)
	switch {
	case known:
		found.Role = join.RoleScope(role)
	case class.Spec.Role != "":
		found.Role = join.RoleScope(class.Spec.Role)
	default:
		found.Role = found.Class
	}
	return found
}

// console reads the serial console of an instance: its newest output if the instance type supports that, else what EC2
// has kept.
func (c *Checker) console(ctx context.Context, id string) (string, error) {
	out, err := c.cfg.EC2.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id, Latest: aws.Bool(true)})
	if awserrors.Code(err) == "UnsupportedOperation" {
		out, err = c.cfg.EC2.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id})
	}
	if err != nil {
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(deref(out.Output))
	if err != nil {
		return "", fmt.Errorf("decode it: %w", err)
	}
	return string(text), nil
}
