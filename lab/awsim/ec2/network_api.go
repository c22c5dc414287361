package ec2

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func vpcIDs() idRules {
	return idRules{prefix: "vpc", malformed: "InvalidVpcId.Malformed", notFound: "InvalidVpcID.NotFound", missing: does("vpc")}
}

func subnetIDs() idRules {
	return idRules{prefix: "subnet", malformed: "InvalidSubnetID.Malformed", notFound: "InvalidSubnetID.NotFound", missing: does("subnet")}
}

func groupIDs() idRules {
	return idRules{
		prefix:    "sg",
		malformed: "InvalidGroupId.Malformed",
		notFound:  "InvalidGroup.NotFound",
		missing: func(ids []string) string {
			return "The security group '" + strings.Join(ids, "', '") + "' does not exist"
		},
	}
}

func tableIDs() idRules {
	return idRules{
		prefix:    "rtb",
		malformed: "InvalidRouteTableId.Malformed",
		notFound:  "InvalidRouteTableID.NotFound",
		missing:   does("routeTable"),
	}
}

type describeVpcsInput struct {
	listInput
	IDs []string `query:"VpcId"`
}

type describeVpcsOutput struct {
	VPCs []vpcInfo `xml:"vpcSet>item"`
	Next *string   `xml:"nextToken"`
}

type vpcInfo struct {
	ID      string `xml:"vpcId"`
	Owner   string `xml:"ownerId"`
	State   string `xml:"state"`
	CIDR    string `xml:"cidrBlock"`
	Tenancy string `xml:"instanceTenancy"`
	Default bool   `xml:"isDefault"`
	Tags    []tag  `xml:"tagSet>item"`
}

func (e *EC2) describeVpcs(_ *protocol.Request, in *describeVpcsInput) (*describeVpcsOutput, error) {
	n := resourceKind[*VPC]{
		id: func(v *VPC) string { return v.ID }, tags: func(v *VPC) map[string]string { return v.Tags },
		ids: vpcIDs(), minResults: 5, maxResults: 1000,
		properties: properties[*VPC]{
			"cidr":       one(func(v *VPC) string { return v.CIDR.String() }),
			"is-default": flag(func(v *VPC) bool { return v.Default }),
			"owner-id":   func(*VPC) []string { return []string{e.cfg.AccountID} },
			"state":      func(*VPC) []string { return []string{"available"} },
			"vpc-id":     one(func(v *VPC) string { return v.ID }),
		},
	}
	p, err := n.list(in.listInput, in.IDs, locked(e, func() []*VPC { return slices.Clone(e.network.vpcs) }))
	if err != nil {
		return nil, err
	}
	out := &describeVpcsOutput{Next: p.next}
	for _, v := range p.items {
		out.VPCs = append(out.VPCs, vpcInfo{
			ID: v.ID, Owner: e.cfg.AccountID, State: "available", CIDR: v.CIDR.String(), Tenancy: "default", Default: v.Default,
			Tags: tagList(v.Tags),
		})
	}
	return out, nil
}

type describeSubnetsInput struct {
	listInput
	IDs []string `query:"SubnetId"`
}

type describeSubnetsOutput struct {
	Subnets []subnetInfo `xml:"subnetSet>item"`
	Next    *string      `xml:"nextToken"`
}

type subnetInfo struct {
	ID        string `xml:"subnetId"`
	ARN       string `xml:"subnetArn"`
	State     string `xml:"state"`
	Owner     string `xml:"ownerId"`
	VPCID     string `xml:"vpcId"`
	CIDR      string `xml:"cidrBlock"`
	Available int    `xml:"availableIpAddressCount"`
	Zone      string `xml:"availabilityZone"`
	ZoneID    string `xml:"availabilityZoneId"`
	Default   bool   `xml:"defaultForAz"`
	PublicIP  bool   `xml:"mapPublicIpOnLaunch"`
	AssignV6  bool   `xml:"assignIpv6AddressOnCreation"`
	Tags      []tag  `xml:"tagSet>item"`
	// Hostnames is how instances are named.
	Hostnames dnsSpec `xml:"privateDnsNameOptionsOnLaunch"`

	IPv6 []ipv6Association `xml:"ipv6CidrBlockAssociationSet>item"`

	tags map[string]string
}

type ipv6Association struct {
	ID    string `xml:"associationId"`
	CIDR  string `xml:"ipv6CidrBlock"`
	State string `xml:"ipv6CidrBlockState>state"`
}

func (s subnetInfo) ipv6() []string {
	if len(s.IPv6) == 0 {
		return nil
	}
	return []string{s.IPv6[0].CIDR}
}

func (e *EC2) describeSubnets(_ *protocol.Request, in *describeSubnetsInput) (*describeSubnetsOutput, error) {
	e.applyDueTransitions()
	zoneID := one(func(s subnetInfo) string { return s.ZoneID })
	zone := one(func(s subnetInfo) string { return s.Zone })
	n := resourceKind[subnetInfo]{
		id: func(s subnetInfo) string { return s.ID }, tags: func(s subnetInfo) map[string]string { return s.tags },
		ids: subnetIDs(), minResults: 5, maxResults: 1000,
		properties: properties[subnetInfo]{
			"availability-zone": zone, "availabilityZone": zone, "availability-zone-id": zoneID, "availabilityZoneId": zoneID,
			"available-ip-address-count": func(s subnetInfo) []string { return []string{strconv.Itoa(s.Available)} },
			"cidr":                       one(func(s subnetInfo) string { return s.CIDR }),
			"cidr-block":                 one(func(s subnetInfo) string { return s.CIDR }),
			"ipv6-cidr-block-association.ipv6-cidr-block": subnetInfo.ipv6,
			"default-for-az": flag(func(s subnetInfo) bool { return s.Default }),
			"private-dns-name-options-on-launch.hostname-type": one(func(s subnetInfo) string { return s.Hostnames.HostnameType }),
			"map-public-ip-on-launch":                          flag(func(s subnetInfo) bool { return s.PublicIP }),
			"owner-id":                                         one(func(s subnetInfo) string { return s.Owner }),
			"state":                                            one(func(s subnetInfo) string { return s.State }),
			"subnet-arn":                                       one(func(s subnetInfo) string { return s.ARN }),
			"subnet-id":                                        one(func(s subnetInfo) string { return s.ID }),
			"vpc-id":                                           one(func(s subnetInfo) string { return s.VPCID }),
		},
	}
	p, err := n.list(in.listInput, in.IDs, locked(e, e.subnetInfos))
	if err != nil {
		return nil, err
	}
	for i := range p.items {
		p.items[i].Tags = tagList(p.items[i].tags)
	}
	return &describeSubnetsOutput{Subnets: p.items, Next: p.next}, nil
}

func (e *EC2) subnetInfos() []subnetInfo {
	infos := make([]subnetInfo, len(e.network.subnets))
	for i, s := range e.network.subnets {
		infos[i] = subnetInfo{
			ID: s.ID, ARN: e.cfg.arn("subnet/" + s.ID), State: "available", Owner: e.cfg.AccountID, VPCID: s.VPCID, CIDR: s.CIDR.String(),
			Available: e.network.addrs[s.ID].available(), Zone: s.Zone, ZoneID: e.cfg.zoneID(s.Zone), Default: s.Default,
			PublicIP: s.MapPublicIP, AssignV6: s.AssignIPv6, tags: s.Tags,
			Hostnames: dnsSpec{HostnameType: cmp.Or(s.HostnameType, ipName), A: new(bool), AAAA: new(bool)},
		}
		if s.IPv6CIDR.IsValid() {
			infos[i].IPv6 = []ipv6Association{{ID: derivedID("subnet-cidr-assoc", s.ID), CIDR: s.IPv6CIDR.String(), State: "associated"}}
		}
	}
	return infos
}

type describeGroupsInput struct {
	listInput
	IDs   []string `query:"GroupId"`
	Names []string `query:"GroupName"`
}

type describeGroupsOutput struct {
	Groups []groupInfo `xml:"securityGroupInfo>item"`
	Next   *string     `xml:"nextToken"`
}

type groupInfo struct {
	ID          string       `xml:"groupId"`
	ARN         string       `xml:"securityGroupArn"`
	Name        string       `xml:"groupName"`
	Description string       `xml:"groupDescription"`
	Owner       string       `xml:"ownerId"`
	VPCID       string       `xml:"vpcId"`
	Ingress     []permission `xml:"ipPermissions>item"`
	Egress      []permission `xml:"ipPermissionsEgress>item"`
	Tags        []tag        `xml:"tagSet>item"`
}

type permission struct {
	Protocol string           `xml:"ipProtocol"`
	From     *int             `xml:"fromPort"`
	To       *int             `xml:"toPort"`
	Ranges   []permittedRange `xml:"ipRanges>item"`
	Groups   []permittedGroup `xml:"groups>item"`
}

type permittedRange struct {
	CIDR string `xml:"cidrIp"`
}

type permittedGroup struct {
	ID    string `xml:"groupId"`
	Owner string `xml:"userId"`
}

func (e *EC2) describeSecurityGroups(_ *protocol.Request, in *describeGroupsInput) (*describeGroupsOutput, error) {
	n := resourceKind[*SecurityGroup]{
		id: func(g *SecurityGroup) string { return g.ID }, tags: func(g *SecurityGroup) map[string]string { return g.Tags },
		ids: groupIDs(), minResults: 5, maxResults: 1000,
		properties: properties[*SecurityGroup]{
			"description": one(func(g *SecurityGroup) string { return g.Description }),
			"group-id":    one(func(g *SecurityGroup) string { return g.ID }),
			"group-name":  one(func(g *SecurityGroup) string { return g.Name }),
			"owner-id":    func(*SecurityGroup) []string { return []string{e.cfg.AccountID} },
			"vpc-id":      one(func(g *SecurityGroup) string { return g.VPCID }),
		},
	}
	all := locked(e, func() []*SecurityGroup { return slices.Clone(e.network.groups) })
	if len(in.Names) > 0 {
		// Names work for groups of the default VPC only; those of other VPCs are found by filter.
		for _, name := range in.Names {
			if !slices.ContainsFunc(all, func(g *SecurityGroup) bool { return g.Name == name && e.inDefaultVPC(g) }) {
				return nil, groupIDs().absent(name)
			}
		}
		all = slices.DeleteFunc(all, func(g *SecurityGroup) bool { return !slices.Contains(in.Names, g.Name) || !e.inDefaultVPC(g) })
	}
	p, err := n.list(in.listInput, in.IDs, all)
	if err != nil {
		return nil, err
	}
	out := &describeGroupsOutput{Next: p.next}
	for _, g := range p.items {
		out.Groups = append(out.Groups, groupInfo{
			ID: g.ID, ARN: e.cfg.arn("security-group/" + g.ID), Name: g.Name, Description: g.Description, Owner: e.cfg.AccountID, VPCID: g.VPCID,
			Ingress: e.permissions(g.Ingress), Egress: e.permissions(g.Egress), Tags: tagList(g.Tags),
		})
	}
	return out, nil
}

func (e *EC2) inDefaultVPC(g *SecurityGroup) bool {
	return locked(e, func() bool { v := e.network.vpc(g.VPCID); return v != nil && v.Default })
}

func (e *EC2) permissions(list []Permission) []permission {
	var out []permission
	for _, p := range list {
		shown := permission{Protocol: p.Protocol}
		if p.Protocol != "-1" {
			shown.From, shown.To = &p.FromPort, &p.ToPort
		}
		for _, cidr := range p.CIDRs {
			shown.Ranges = append(shown.Ranges, permittedRange{cidr})
		}
		for _, id := range p.Groups {
			shown.Groups = append(shown.Groups, permittedGroup{ID: id, Owner: e.cfg.AccountID})
		}
		out = append(out, shown)
	}
	return out
}

type describeTablesInput struct {
	listInput
	IDs []string `query:"RouteTableId"`
}

type describeTablesOutput struct {
	Tables []tableInfo `xml:"routeTableSet>item"`
	Next   *string     `xml:"nextToken"`
}

type tableInfo struct {
	ID           string        `xml:"routeTableId"`
	Owner        string        `xml:"ownerId"`
	VPCID        string        `xml:"vpcId"`
	Routes       []routeInfo   `xml:"routeSet>item"`
	Associations []association `xml:"associationSet>item"`
	Tags         []tag         `xml:"tagSet>item"`
}

type routeInfo struct {
	CIDR    string `xml:"destinationCidrBlock"`
	Gateway string `xml:"gatewayId,omitempty"`
	NAT     string `xml:"natGatewayId,omitempty"`
	Origin  string `xml:"origin"`
	State   string `xml:"state"`
}

type association struct {
	ID       string `xml:"routeTableAssociationId"`
	TableID  string `xml:"routeTableId"`
	SubnetID string `xml:"subnetId,omitempty"`
	Main     bool   `xml:"main"`
	State    string `xml:"associationState>state"`
}

func (e *EC2) describeRouteTables(_ *protocol.Request, in *describeTablesInput) (*describeTablesOutput, error) {
	routes := func(get func(routeInfo) string) func(*RouteTable) []string {
		return func(t *RouteTable) (values []string) {
			for _, r := range routesOf(t) {
				if v := get(r); v != "" {
					values = append(values, v)
				}
			}
			return values
		}
	}
	n := resourceKind[*RouteTable]{
		id: func(t *RouteTable) string { return t.ID }, tags: func(t *RouteTable) map[string]string { return t.Tags },
		ids: tableIDs(), minResults: 5, maxResults: 100,
		properties: properties[*RouteTable]{
			"association.main":             flag(func(t *RouteTable) bool { return t.Main }),
			"association.route-table-id":   one(func(t *RouteTable) string { return t.ID }),
			"association.subnet-id":        func(t *RouteTable) []string { return t.Subnets },
			"owner-id":                     func(*RouteTable) []string { return []string{e.cfg.AccountID} },
			"route-table-id":               one(func(t *RouteTable) string { return t.ID }),
			"route.destination-cidr-block": routes(func(r routeInfo) string { return r.CIDR }),
			"route.gateway-id":             routes(func(r routeInfo) string { return r.Gateway }),
			"route.nat-gateway-id":         routes(func(r routeInfo) string { return r.NAT }),
			"vpc-id":                       one(func(t *RouteTable) string { return t.VPCID }),
		},
	}
	p, err := n.list(in.listInput, in.IDs, locked(e, func() []*RouteTable { return slices.Clone(e.network.tables) }))
	if err != nil {
		return nil, err
	}
	out := &describeTablesOutput{Next: p.next}
	for _, t := range p.items {
		shown := tableInfo{ID: t.ID, Owner: e.cfg.AccountID, VPCID: t.VPCID, Routes: routesOf(t), Tags: tagList(t.Tags)}
		if t.Main {
			shown.Associations = append(shown.Associations, e.association(t, ""))
		}
		for _, id := range t.Subnets {
			shown.Associations = append(shown.Associations, e.association(t, id))
		}
		out.Tables = append(out.Tables, shown)
	}
	return out, nil
}

func routesOf(t *RouteTable) []routeInfo {
	var out []routeInfo
	for _, r := range t.Routes {
		shown := routeInfo{CIDR: r.CIDR, Origin: "CreateRoute", State: "active"}
		switch {
		case r.Target == "local":
			shown.Gateway, shown.Origin = "local", "CreateRouteTable"
		case strings.HasPrefix(r.Target, "nat-"):
			shown.NAT = r.Target
		default:
			shown.Gateway = r.Target
		}
		out = append(out, shown)
	}
	return out
}

// association gives the pair of table and subnet an ID that follows from theirs.
func (e *EC2) association(t *RouteTable, subnet string) association {
	return association{
		ID: derivedID("rtbassoc", t.ID+subnet), TableID: t.ID, SubnetID: subnet, Main: subnet == "", State: "associated",
	}
}

func (c *Config) arn(resource string) string {
	return "arn:aws:ec2:" + c.Region + ":" + c.AccountID + ":" + resource
}

// locked reads state under the lock.
func locked[T any](e *EC2, read func() T) T {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return read()
}
