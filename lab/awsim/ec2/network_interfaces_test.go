package ec2_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
)

// in launches an instance into a subnet with one network interface.
func (a *account) in(t *testing.T, subnet string, edit func(*types.InstanceNetworkInterfaceSpecification)) (string, error) {
	t.Helper()
	spec := types.InstanceNetworkInterfaceSpecification{DeviceIndex: aws.Int32(0), SubnetId: &subnet, Groups: []string{a.group}}
	edit(&spec)
	out, err := a.RunInstances(t.Context(), &awsec2.RunInstancesInput{
		ImageId: aws.String(a.x86), InstanceType: "m5.large", MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{spec},
	})
	if err != nil {
		return "", err
	}
	a.Clock.Advance(1e9)
	return *out.Instances[0].InstanceId, nil
}

// TestPrefixes: prefixes are blocks of the subnet of their own, and come back when their instance terminates.
func TestPrefixes(t *testing.T) {
	a := open(t)
	two := func(n *types.InstanceNetworkInterfaceSpecification) { n.Ipv4PrefixCount = aws.Int32(2) }
	seen := map[netip.Addr]bool{}
	var ids []string
	for range 2 {
		ids = append(ids, must(a.in(t, a.subnets[0], two))(t))
	}
	for _, i := range a.describe(t, filter("instance-id", ids...)) {
		nic := i.NetworkInterfaces[0]
		if len(nic.Ipv4Prefixes) != 2 {
			t.Fatalf("prefixes %v", nic.Ipv4Prefixes)
		}
		seen[netip.MustParseAddr(*nic.PrivateIpAddress)] = true
		for _, p := range nic.Ipv4Prefixes {
			block := netip.MustParsePrefix(*p.Ipv4Prefix)
			if block.Bits() != 28 || block != block.Masked() || !netip.MustParsePrefix("10.0.0.0/24").Overlaps(block) {
				t.Errorf("prefix %s", block)
			}
			for ip := block.Addr(); block.Contains(ip); ip = ip.Next() {
				if seen[ip] {
					t.Errorf("%s was given out twice", ip)
				}
				seen[ip] = true
			}
		}
	}
	if taken := 251 - int(a.free(t)[0]); taken != len(seen) || taken != 2*(1+2*16) {
		t.Errorf("%d addresses are taken, %d were given out", taken, len(seen))
	}
	must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: ids}))(t)
	a.Clock.Advance(1e10)
	if free := a.free(t)[0]; free != 251 {
		t.Errorf("%d addresses are free after the end", free)
	}

	// An address in each block, and there is no room for a prefix among 237 free addresses.
	for block := 1; block < 15; block++ {
		must(a.in(t, a.subnets[0], func(n *types.InstanceNetworkInterfaceSpecification) {
			n.PrivateIpAddress = aws.String(fmt.Sprint("10.0.0.", 16*block+1))
		}))(t)
	}
	if _, err := a.in(t, a.subnets[0], two); awsimtest.Code(err) != "InsufficientCidrBlocks" {
		t.Errorf("in a subnet in pieces: %v", err)
	}
	if free := a.free(t)[0]; free != 237 {
		t.Errorf("%d addresses are free after a launch that failed", free)
	}
	// A fleet finds out when it tries, and takes nothing either.
	a.template(t, "prefixes", func(d *types.RequestLaunchTemplateData) { d.NetworkInterfaces[0].Ipv4PrefixCount = aws.Int32(2) })
	in := a.fleetOf("prefixes", 1, "m5.large")
	in.LaunchTemplateConfigs[0].Overrides = in.LaunchTemplateConfigs[0].Overrides[:1]
	if got := errorCodes(must(a.CreateFleet(t.Context(), in))(t)); len(got) != 1 ||
		got[0] != "InsufficientCidrBlocks m5.large us-east-1a" {
		t.Errorf("a fleet in a subnet in pieces: %v", got)
	}
	if free := a.free(t)[0]; free != 237 {
		t.Errorf("%d addresses are free after a fleet that failed", free)
	}
}

// TestIPv6: a launch as a cluster of the IPv6 family makes it.
func TestIPv6(t *testing.T) {
	a := open(t)
	block := netip.MustParsePrefix("2001:db8:0:1::/64")
	subnet := must(
		a.Sim.EC2().AddSubnet(ec2.Subnet{VPCID: a.vpc, Zone: "us-east-1a", CIDR: netip.MustParsePrefix("10.0.9.0/24"), IPv6CIDR: block}),
	)(
		t,
	)
	found := must(a.DescribeSubnets(t.Context(), &awsec2.DescribeSubnetsInput{
		Filters: []types.Filter{filter("ipv6-cidr-block-association.ipv6-cidr-block", block.String())},
	}))(t).Subnets
	if len(found) != 1 || *found[0].SubnetId != subnet || *found[0].Ipv6CidrBlockAssociationSet[0].Ipv6CidrBlock != block.String() {
		t.Errorf("subnets by IPv6 block: %+v", found)
	}
	edit := func(n *types.InstanceNetworkInterfaceSpecification) {
		n.PrimaryIpv6, n.Ipv6AddressCount, n.Ipv6PrefixCount = aws.Bool(true), aws.Int32(1), aws.Int32(1)
		n.ConnectionTrackingSpecification = &types.ConnectionTrackingSpecificationRequest{TcpEstablishedTimeout: aws.Int32(3600)}
	}
	seen := map[string]bool{}
	for range 2 {
		id := must(a.in(t, subnet, edit))(t)
		i := a.describe(t, filter("instance-id", id))[0]
		nic := i.NetworkInterfaces[0]
		if len(nic.Ipv6Addresses) != 1 || len(nic.Ipv6Prefixes) != 1 || !*nic.Ipv6Addresses[0].IsPrimaryIpv6 ||
			*i.Ipv6Address != *nic.Ipv6Addresses[0].Ipv6Address {
			t.Fatalf("instance %+v, interface %+v", i.Ipv6Address, nic)
		}
		ip, prefix := netip.MustParseAddr(*i.Ipv6Address), netip.MustParsePrefix(*nic.Ipv6Prefixes[0].Ipv6Prefix)
		if !block.Contains(ip) || !block.Overlaps(prefix) || prefix.Bits() != 80 || prefix.Contains(ip) || seen[ip.String()] ||
			seen[prefix.String()] {
			t.Errorf("address %s, prefix %s", ip, prefix)
		}
		seen[ip.String()], seen[prefix.String()] = true, true
		if c := nic.ConnectionTrackingConfiguration; c == nil || *c.TcpEstablishedTimeout != 3600 {
			t.Errorf("connection tracking %+v", c)
		}
		if same := a.describe(t, filter("ipv6-address", ip.String())); len(same) != 1 || *same[0].InstanceId != id {
			t.Errorf("%d instances with the address %s", len(same), ip)
		}
	}

	auto := must(a.Sim.EC2().AddSubnet(ec2.Subnet{
		VPCID: a.vpc, Zone: "us-east-1b", CIDR: netip.MustParsePrefix("10.0.10.0/24"), IPv6CIDR: netip.MustParsePrefix("2001:db8:0:2::/64"),
		AssignIPv6: true,
	}))(t)
	id := must(a.in(t, auto, func(*types.InstanceNetworkInterfaceSpecification) {}))(t)
	if i := a.describe(t, filter("instance-id", id))[0]; len(i.NetworkInterfaces[0].Ipv6Addresses) != 1 {
		t.Error("a subnet that assigns addresses of IPv6 did not")
	}
	if _, err := a.Sim.EC2().AddSubnet(ec2.Subnet{VPCID: a.vpc, Zone: "us-east-1a", CIDR: netip.MustParsePrefix("10.0.11.0/24"), IPv6CIDR: netip.MustParsePrefix("2001:db8::/56")}); err == nil {
		t.Error("a subnet with a /56 was added")
	}
}
