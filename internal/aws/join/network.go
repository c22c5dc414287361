package join

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// httpsPort is the port of an EKS API server.
const httpsPort = 443

// Route is a route of a route table.
type Route struct {
	// Destination is a CIDR; empty for a prefix list.
	Destination string
	// Target is the ID of the route's target, such as nat-1, igw-1 or local.
	Target string
	// Blackhole is true if the target no longer exists.
	Blackhole bool
}

// Subnet is a subnet with the routes that apply in it.
type Subnet struct {
	ID, VPC, CIDR string
	Routes        []Route
	// PublicIP is true if instances get a public address.
	PublicIP bool
}

// Permission is a rule of a security group.
type Permission struct {
	// Protocol is -1 for all, tcp, udp, or a number.
	Protocol string
	// FromPort and ToPort bound the ports; both are -1 for all.
	FromPort, ToPort int
	CIDRs            []string
	Groups           []string
	// PrefixLists refer to CIDRs that are unknown here.
	PrefixLists []string
}

// SecurityGroup is a security group with its rules.
type SecurityGroup struct {
	ID, VPC         string
	Ingress, Egress []Permission
}

// Network is the network between the instances of a class and the API server.
type Network struct {
	Cluster Cluster
	// VPC is the VPC of the cluster.
	VPC                   string
	PrivateAccess, Public bool
	// PublicCIDRs are the addresses that can reach the public endpoint.
	PublicCIDRs []string
	// Subnets and Groups are those of the node class, ClusterGroups those of the API server's network interfaces.
	Subnets               []Subnet
	Groups, ClusterGroups []SecurityGroup
	// ClusterErr, SubnetsErr and GroupsErr are the reasons why those could not be read.
	ClusterErr, SubnetsErr, GroupsErr string
}

// CheckNetwork checks whether instances can reach the API server. A fault of one subnet is certain for the class only
// if all subnets have it; otherwise it is likely, because instances may launch into other subnets.
func CheckNetwork(n Network) []cloudprovider.Finding {
	var out []cloudprovider.Finding
	for _, missed := range []struct{ what, why string }{
		{"how the API server of cluster " + n.Cluster.Name + " can be reached", n.ClusterErr},
		{"the routes of the subnets", n.SubnetsErr},
		{"the rules of the security groups", n.GroupsErr},
	} {
		if missed.why != "" {
			out = append(out, unchecked(NetworkUnchecked, missed.what, missed.why))
		}
	}
	if n.GroupsErr == "" {
		out = append(out, n.egress()...)
	}
	if n.ClusterErr != "" || n.SubnetsErr != "" {
		return out
	}
	if n.GroupsErr == "" {
		out = append(out, n.groupsOfOtherVPC()...)
		out = append(out, n.ingress()...)
	}
	return append(out, n.routes()...)
}

func (n Network) groupIDs() string {
	var ids []string
	for _, g := range n.Groups {
		ids = append(ids, g.ID)
	}
	return strings.Join(ids, ", ")
}

func (n Network) groupScope() string { return "securitygroup/" + n.groupIDs() }

// egress finds that no security group allows egress to the API server's port.
func (n Network) egress() []cloudprovider.Finding {
	if len(n.Groups) == 0 {
		return nil
	}
	for _, g := range n.Groups {
		if slices.ContainsFunc(g.Egress, Permission.https) {
			return nil
		}
	}
	return []cloudprovider.Finding{misconfiguration(
		NoEgress,
		n.groupScope(),
		fmt.Sprintf(
			"no security group of the node class (%s) allows egress on TCP port 443, so instances cannot reach the API server",
			n.groupIDs(),
		),
		fmt.Sprintf(
			"aws ec2 authorize-security-group-egress --region %s --group-id %s --ip-permissions IpProtocol=tcp,FromPort=443,ToPort=443,IpRanges=[{CidrIp=0.0.0.0/0}]",
			n.Cluster.Region,
			n.Groups[0].ID,
		),
	)}
}

// https reports whether the rule covers TCP port 443, for any peer.
func (p Permission) https() bool {
	if p.Protocol == "-1" {
		return p.peers() > 0
	}
	return (p.Protocol == "tcp" || p.Protocol == "6") && p.FromPort <= httpsPort && p.ToPort >= httpsPort && p.peers() > 0
}

func (p Permission) peers() int { return len(p.CIDRs) + len(p.Groups) + len(p.PrefixLists) }

// groupsOfOtherVPC finds security groups that no instance in the subnets can have.
func (n Network) groupsOfOtherVPC() []cloudprovider.Finding {
	for _, g := range n.Groups {
		for _, s := range n.Subnets {
			if g.VPC != s.VPC {
				return []cloudprovider.Finding{misconfiguration(GroupsOfOtherVPC, n.groupScope(),
					fmt.Sprintf("security group %s is in %s, but subnet %s is in %s: no instance can have both", g.ID, g.VPC, s.ID, s.VPC),
					"narrow securityGroupSelectorTerms or subnetSelectorTerms of the EC2NodeClass to one VPC")}
			}
		}
	}
	return nil
}

// usesPrivateEndpoint reports whether instances in the subnet reach the API server within the cluster's own VPC.
func (n Network) usesPrivateEndpoint(s Subnet) bool { return n.PrivateAccess && s.VPC == n.VPC }

// ingress finds that the API server's security groups admit no instance of the class.
func (n Network) ingress() []cloudprovider.Finding {
	if len(n.ClusterGroups) == 0 || len(n.Groups) == 0 || len(n.Subnets) == 0 {
		return nil
	}
	for _, s := range n.Subnets {
		if !n.usesPrivateEndpoint(s) {
			return nil
		}
		for _, g := range n.ClusterGroups {
			for _, p := range g.Ingress {
				if p.https() && n.admits(p, s) {
					return nil
				}
			}
		}
	}
	group := n.ClusterGroups[0].ID
	return []cloudprovider.Finding{misconfiguration(
		ClusterRejectsNodes,
		n.groupScope(),
		fmt.Sprintf(
			"security group %s of the API server admits TCP port 443 neither from the groups of the node class (%s) nor from its subnets",
			group,
			n.groupIDs(),
		),
		fmt.Sprintf(
			"aws ec2 authorize-security-group-ingress --region %s --group-id %s --protocol tcp --port 443 --source-group %s",
			n.Cluster.Region,
			group,
			n.Groups[0].ID,
		),
	)}
}

// admits reports whether a rule may cover an instance of the class in the subnet.
func (n Network) admits(p Permission, s Subnet) bool {
	if len(p.PrefixLists) > 0 {
		return true // their CIDRs are unknown here
	}
	for _, id := range p.Groups {
		if slices.ContainsFunc(n.Groups, func(g SecurityGroup) bool { return g.ID == id }) {
			return true
		}
	}
	subnet, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(p.CIDRs, func(cidr string) bool {
		admitted, err := netip.ParsePrefix(cidr)
		return err != nil || admitted.Overlaps(subnet)
	})
}

// routes finds subnets without a route to the API server.
func (n Network) routes() []cloudprovider.Finding {
	var out []cloudprovider.Finding
	for _, s := range n.Subnets {
		if f, broken := n.route(s); broken {
			out = append(out, f)
		}
	}
	if len(out) < len(n.Subnets) {
		for i := range out {
			out[i].Certainty = cloudprovider.Likely
		}
	}
	return out
}

func (n Network) route(s Subnet) (cloudprovider.Finding, bool) {
	if n.usesPrivateEndpoint(s) {
		return cloudprovider.Finding{}, false // within a VPC every subnet reaches every other
	}
	scope := "subnet/" + s.ID
	if !n.Public {
		return n.routeToVPC(s, scope)
	}
	way, known := defaultRoute(s.Routes)
	switch {
	case !known:
		return misconfiguration(
			SubnetWithoutRoute,
			scope,
			fmt.Sprintf(
				"subnet %s has no route to the public endpoint of cluster %s (no default route), and the private endpoint cannot be used from there",
				s.ID,
				n.Cluster.Name,
			),
			n.routeRemedy(s),
		), true
	case way.Blackhole:
		return misconfiguration(SubnetWithoutRoute, scope,
			fmt.Sprintf("the default route of subnet %s leads to %s, which no longer exists", s.ID, way.Target),
			fmt.Sprintf("replace the route's target in the route table of subnet %s, for example by a NAT gateway that exists", s.ID)), true
	case strings.HasPrefix(way.Target, "igw-") && !s.PublicIP:
		return misconfiguration(
			SubnetWithoutPublicIP,
			scope,
			fmt.Sprintf(
				"the default route of subnet %s is the internet gateway %s, and instances get no public address: they cannot reach the public endpoint of cluster %s",
				s.ID,
				way.Target,
				n.Cluster.Name,
			),
			"set spec.associatePublicIPAddress: true in the EC2NodeClass, or use subnets behind a NAT gateway",
		), true
	case len(n.PublicCIDRs) > 0 && !slices.Contains(n.PublicCIDRs, "0.0.0.0/0"):
		return cloudprovider.Finding{
			Cause: PublicAccessRestricted, Certainty: cloudprovider.Likely, Scope: scope, FromConfiguration: true,
			Message: fmt.Sprintf(
				"the public endpoint of cluster %s can be reached from %s only; the address of %s must be among them",
				n.Cluster.Name,
				strings.Join(n.PublicCIDRs, ", "),
				way.Target,
			),
			Remedy: n.routeRemedy(s),
		}, true
	}
	return cloudprovider.Finding{}, false
}

// routeToVPC checks a subnet in another VPC, if only a private endpoint exists.
func (n Network) routeToVPC(s Subnet, scope string) (cloudprovider.Finding, bool) {
	if slices.ContainsFunc(s.Routes, func(r Route) bool { return r.Target != "local" && !r.Blackhole }) {
		return cloudprovider.Finding{}, false // peering or a transit gateway may lead there
	}
	return misconfiguration(
		SubnetWithoutRoute,
		scope,
		fmt.Sprintf(
			"subnet %s is in %s and has no route out of it; the API server of cluster %s has a private endpoint in %s only",
			s.ID,
			s.VPC,
			n.Cluster.Name,
			n.VPC,
		),
		fmt.Sprintf("let subnetSelectorTerms of the EC2NodeClass select subnets of %s, or connect the two VPCs", n.VPC),
	), true
}

func (n Network) routeRemedy(s Subnet) string {
	if s.VPC != n.VPC {
		return fmt.Sprintf("add a default route to the route table of subnet %s, for example to a NAT gateway", s.ID)
	}
	return fmt.Sprintf(
		"aws eks update-cluster-config --region %s --name %s --resources-vpc-config endpointPrivateAccess=true",
		n.Cluster.Region,
		n.Cluster.Name,
	)
}

// defaultRoute returns the default route.
func defaultRoute(routes []Route) (Route, bool) {
	for _, r := range routes {
		if r.Destination == "0.0.0.0/0" || r.Destination == "::/0" {
			return r, true
		}
	}
	return Route{}, false
}
