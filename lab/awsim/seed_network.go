package awsim

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
)

// Addresses: VPC n is 10.n.0.0/16. Its first six /19 are the private subnets of two clusters in three zones (8187
// addresses each), the first six /24 of the seventh their public subnets.
const (
	seededZones    = 3
	clustersPerVPC = 2
	maxVPCs        = 100 // below the service CIDR of EKS, 10.100.0.0/16
	discoveryTag   = "karpenter.sh/discovery"
)

// seededVPC is a VPC that clusters share.
type seededVPC struct {
	id       string
	number   byte
	clusters int // how many have their subnets in it
}

// seededNetwork is what a cluster is attached to.
type seededNetwork struct {
	vpc          string
	subnets      []string // private, then public
	clusterGroup string
}

// seedNetwork creates the subnets and security groups of a cluster.
func (s *Sim) seedNetwork(cluster string) (seededNetwork, error) {
	vpc, err := s.vpcWithRoom()
	if err != nil {
		return seededNetwork{}, err
	}
	out := seededNetwork{vpc: vpc.id}
	private, err := s.seedSubnets(vpc, cluster, false /* public */)
	if err != nil {
		return out, err
	}
	public, err := s.seedSubnets(vpc, cluster, true /* public */)
	if err != nil {
		return out, err
	}
	vpc.clusters++
	out.subnets = append(private, public...)
	out.clusterGroup, err = s.seedGroups(vpc.id, cluster)
	return out, err
}

// vpcWithRoom returns the VPC in which the next cluster goes; the first comes with the account's first cluster.
func (s *Sim) vpcWithRoom() (*seededVPC, error) {
	n := len(s.seeds.vpcs)
	if n > 0 && s.seeds.vpcs[n-1].clusters < clustersPerVPC {
		return &s.seeds.vpcs[n-1], nil
	}
	if n == maxVPCs {
		return nil, errors.New("no addresses left for another VPC")
	}
	number := byte(n)
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, number, 0, 0}), 16)
	id, err := s.ec2.AddVPC(ec2.VPC{CIDR: cidr, Tags: map[string]string{"Name": fmt.Sprintf("lab-%d", n)}})
	if err != nil {
		return nil, err
	}
	local := ec2.Route{CIDR: cidr.String(), Target: "local"}
	if _, err := s.ec2.AddRouteTable(ec2.RouteTable{VPCID: id, Main: true, Routes: []ec2.Route{local}}); err != nil {
		return nil, err
	}
	s.seeds.vpcs = append(s.seeds.vpcs, seededVPC{id: id, number: number})
	return &s.seeds.vpcs[n], nil
}

// seedSubnets creates a subnet per zone and a route table for them. Only the private ones are tagged for discovery.
func (s *Sim) seedSubnets(vpc *seededVPC, cluster string, public bool) ([]string, error) {
	zones := s.ec2.Zones()
	if len(zones) < seededZones {
		return nil, fmt.Errorf("region %s has %d zones, %d are needed", s.options.Region, len(zones), seededZones)
	}
	kind, bits, role, gateway := "private", 19, "kubernetes.io/role/internal-elb", "nat-"
	if public {
		kind, bits, role, gateway = "public", 24, "kubernetes.io/role/elb", "igw-"
	}
	var ids []string
	for i, zone := range zones[:seededZones] {
		slot := byte(vpc.clusters*seededZones + i)
		third := slot << 5
		if public {
			third = clustersPerVPC*seededZones<<5 + slot
		}
		tags := map[string]string{
			"Name": fmt.Sprintf("%s-%s-%s", cluster, kind, zone.Name), "kubernetes.io/cluster/" + cluster: "shared", role: "1",
		}
		if !public {
			tags[discoveryTag] = cluster
		}
		id, err := s.ec2.AddSubnet(ec2.Subnet{
			VPCID: vpc.id, Zone: zone.Name, CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, vpc.number, third, 0}), bits),
			MapPublicIP: public, Tags: tags,
		})
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	_, err := s.ec2.AddRouteTable(ec2.RouteTable{
		VPCID: vpc.id, Subnets: ids, Tags: map[string]string{"Name": cluster + "-" + kind},
		Routes: []ec2.Route{
			{CIDR: fmt.Sprintf("10.%d.0.0/16", vpc.number), Target: "local"},
			// One gateway per VPC; IDs of EC2 are a kind and 17 hex digits.
			{CIDR: "0.0.0.0/0", Target: fmt.Sprintf("%s0%016x", gateway, vpc.number)},
		},
	})
	return ids, err
}

// seedGroups creates the security group that EKS makes for a cluster, and the operator's for nodes. They admit one
// another and let everything out. It returns the cluster's.
func (s *Sim) seedGroups(vpc, cluster string) (string, error) {
	everything := []ec2.Permission{{Protocol: "-1", FromPort: -1, ToPort: -1, CIDRs: []string{"0.0.0.0/0"}}}
	control, err := s.ec2.AddSecurityGroup(ec2.SecurityGroup{
		VPCID: vpc, Name: "eks-cluster-sg-" + cluster, Egress: everything,
		Description: "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, as well as any managed workloads.",
		Tags: map[string]string{
			"Name": "eks-cluster-sg-" + cluster, "aws:eks:cluster-name": cluster, "kubernetes.io/cluster/" + cluster: "owned", discoveryTag: cluster,
		},
	})
	if err != nil {
		return "", err
	}
	nodes, err := s.ec2.AddSecurityGroup(ec2.SecurityGroup{
		VPCID: vpc, Name: cluster + "-node", Description: "Nodes of " + cluster, Egress: everything,
		Tags: map[string]string{"Name": cluster + "-node", discoveryTag: cluster},
	})
	if err != nil {
		return "", err
	}
	for _, group := range []string{control, nodes} {
		err := s.ec2.AllowIngress(group, ec2.Permission{Protocol: "-1", FromPort: -1, ToPort: -1, Groups: []string{control, nodes}})
		if err != nil {
			return "", err
		}
	}
	return control, nil
}
