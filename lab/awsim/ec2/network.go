package ec2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// VPC is a virtual network.
type VPC struct {
	ID      string // assigned by AddVPC
	CIDR    netip.Prefix
	Default bool
	Tags    map[string]string
}

// Subnet is a part of a VPC in one zone.
type Subnet struct {
	ID          string // assigned by AddSubnet
	VPCID       string
	Zone        string // name
	CIDR        netip.Prefix
	MapPublicIP bool
	Default     bool
	// IPv6CIDR is its block of that family, a /64; zero = none. AssignIPv6 gives each network interface an address of it.
	IPv6CIDR   netip.Prefix
	AssignIPv6 bool
	// HostnameType is how instances are named by default: by their address (ip-name, which empty means), or by their ID (resource-name).
	HostnameType string
	Tags         map[string]string
}

// SecurityGroup is a firewall of a VPC.
type SecurityGroup struct {
	ID          string // assigned by AddSecurityGroup
	VPCID       string
	Name        string
	Description string
	Tags        map[string]string
	Ingress     []Permission
	Egress      []Permission
}

// Permission is one rule of a security group.
type Permission struct {
	Protocol         string // "tcp", "udp", "-1" = all
	FromPort, ToPort int    // -1 = all
	CIDRs            []string
	Groups           []string // IDs of security groups
}

// RouteTable routes the subnets that are associated with it.
type RouteTable struct {
	ID      string // assigned by AddRouteTable
	VPCID   string
	Main    bool
	Subnets []string
	Routes  []Route
	Tags    map[string]string
}

// Route is one entry of a route table.
type Route struct {
	CIDR   string
	Target string // "local", igw-..., nat-...
}

// defaultGroup is the name of the security group that every VPC has, and that a launch without groups gets.
const defaultGroup = "default"

// network is what instances are attached to.
type network struct {
	vpcs    []*VPC
	subnets []*Subnet
	groups  []*SecurityGroup
	tables  []*RouteTable
	addrs   map[string]*addresses // by subnet
	addrs6  map[string]*addresses6
}

func newNetwork() network {
	return network{addrs: map[string]*addresses{}, addrs6: map[string]*addresses6{}}
}

// AddVPC creates a VPC with its default security group and returns its ID.
func (e *EC2) AddVPC(v VPC) (string, error) {
	if !v.CIDR.IsValid() || v.CIDR.Bits() < 16 || v.CIDR.Bits() > 28 {
		return "", fmt.Errorf("add VPC: CIDR %s: not between /16 and /28", v.CIDR)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v.ID, v.CIDR, v.Tags = e.newID("vpc"), v.CIDR.Masked(), maps.Clone(v.Tags)
	e.network.vpcs = append(e.network.vpcs, &v)
	group := &SecurityGroup{
		ID: e.newID("sg"), VPCID: v.ID, Name: defaultGroup, Description: "default VPC security group",
		Egress: []Permission{{Protocol: "-1", FromPort: -1, ToPort: -1, CIDRs: []string{"0.0.0.0/0"}}},
	}
	group.Ingress = []Permission{{Protocol: "-1", FromPort: -1, ToPort: -1, Groups: []string{group.ID}}}
	e.network.groups = append(e.network.groups, group)
	return v.ID, nil
}

// AddSubnet creates a subnet and returns its ID.
func (e *EC2) AddSubnet(s Subnet) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	vpc := e.network.vpc(s.VPCID)
	switch {
	case vpc == nil:
		return "", fmt.Errorf("add subnet: no VPC %q", s.VPCID)
	case !s.CIDR.IsValid() || !s.CIDR.Addr().Is4() || s.CIDR.Bits() < vpc.CIDR.Bits() || s.CIDR.Bits() > 28 ||
		!vpc.CIDR.Contains(s.CIDR.Addr()):
		return "", fmt.Errorf("add subnet: CIDR %s: not within %s", s.CIDR, vpc.CIDR)
	case s.IPv6CIDR.IsValid() && (!s.IPv6CIDR.Addr().Is6() || s.IPv6CIDR.Bits() != 64), s.AssignIPv6 && !s.IPv6CIDR.IsValid():
		return "", fmt.Errorf("add subnet: IPv6 CIDR %s: no /64", s.IPv6CIDR)
	case e.cfg.zoneID(s.Zone) == "":
		return "", fmt.Errorf("add subnet: no zone %q", s.Zone)
	}
	for _, other := range e.network.subnets {
		if other.VPCID == s.VPCID && other.CIDR.Overlaps(s.CIDR) {
			return "", fmt.Errorf("add subnet: CIDR %s overlaps %s of %s", s.CIDR, other.CIDR, other.ID)
		}
	}
	s.ID, s.CIDR, s.Tags = e.newID("subnet"), s.CIDR.Masked(), maps.Clone(s.Tags)
	e.network.subnets = append(e.network.subnets, &s)
	e.network.addrs[s.ID] = newAddresses(s.CIDR)
	if s.IPv6CIDR.IsValid() {
		s.IPv6CIDR = s.IPv6CIDR.Masked()
		e.network.addrs6[s.ID] = &addresses6{block: s.IPv6CIDR}
	}
	return s.ID, nil
}

// AddSecurityGroup creates a security group and returns its ID.
func (e *EC2) AddSecurityGroup(g SecurityGroup) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.network.vpc(g.VPCID) == nil {
		return "", fmt.Errorf("add security group %q: no VPC %q", g.Name, g.VPCID)
	}
	for _, other := range e.network.groups {
		if other.VPCID == g.VPCID && other.Name == g.Name {
			return "", fmt.Errorf("add security group %q: exists in %s", g.Name, g.VPCID)
		}
	}
	g.ID, g.Tags = e.newID("sg"), maps.Clone(g.Tags)
	e.network.groups = append(e.network.groups, &g)
	return g.ID, nil
}

// AddRouteTable creates a route table and returns its ID.
func (e *EC2) AddRouteTable(t RouteTable) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.network.vpc(t.VPCID) == nil {
		return "", fmt.Errorf("add route table: no VPC %q", t.VPCID)
	}
	for _, id := range t.Subnets {
		if e.network.subnet(id) == nil {
			return "", fmt.Errorf("add route table: no subnet %q", id)
		}
	}
	t.ID, t.Tags = e.newID("rtb"), maps.Clone(t.Tags)
	t.Subnets, t.Routes = slices.Clone(t.Subnets), slices.Clone(t.Routes)
	e.network.tables = append(e.network.tables, &t)
	return t.ID, nil
}

// Zones returns the availability zones of the region in order.
func (e *EC2) Zones() []Zone { return regionZones(e.cfg.Region) }

func (c *Config) zoneID(name string) string {
	for _, z := range regionZones(c.Region) {
		if z.Name == name {
			return z.ID
		}
	}
	return ""
}

func (n *network) vpc(id string) *VPC {
	return find(n.vpcs, func(v *VPC) bool { return v.ID == id })
}

func (n *network) subnet(id string) *Subnet {
	return find(n.subnets, func(s *Subnet) bool { return s.ID == id })
}

func (n *network) group(id string) *SecurityGroup {
	return find(n.groups, func(g *SecurityGroup) bool { return g.ID == id })
}

// find returns the first element that ok accepts, or the zero value.
func find[T any](list []T, ok func(T) bool) (found T) {
	if i := slices.IndexFunc(list, ok); i >= 0 {
		return list[i]
	}
	return found
}
