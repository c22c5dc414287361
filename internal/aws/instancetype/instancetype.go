// Package instancetype turns EC2's description of an instance type into what the engine plans with:
// the labels a node of that type will carry, how much of it is left for pods, and how it can be bought.
//
// Much of this is decided not by EC2 but by the node class (image family, kubelet settings, disks,
// subnets), so one EC2 type resolves to a different catalog.InstanceType per node class. Everything
// here is a function of its arguments; who asks AWS, and how long answers keep, is the caller's affair.
package instancetype

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Settings hold for all node classes of an installation.
type Settings struct {
	Region string
	// ReservedENIs are network interfaces that carry no pods (custom networking of the VPC CNI).
	ReservedENIs int
	// MemoryOverhead is the share (0.075 = 7.5 %) of a type's memory that hypervisor and firmware are
	// taken to keep, until a node of that type has told how much it sees.
	MemoryOverhead float64
}

// Class is what of an EC2NodeClass bears on instance types.
type Class struct {
	Family               Family
	Kubelet              awsv1.KubeletConfiguration
	BlockDevices         []awsv1.BlockDeviceMapping // as in the spec: without the family's own
	InstanceStorePolicy  awsv1.InstanceStorePolicy
	NetworkInterfaces    []awsv1.NetworkInterface
	ConnectionTracking   bool
	NestedVirtualization bool
	Subnets              []awsv1.Subnet
	// Reservations are the capacity reservations that nodes may use.
	Reservations []awsv1.CapacityReservation
}

// ClassOf reads a node class, whose AMI family the caller has resolved. It fails when spec.kubelet cannot be read.
func ClassOf(nodeClass *awsv1.EC2NodeClass, amiFamily string) (Class, error) {
	kubelet, err := nodeClass.KubeletConfiguration()
	if err != nil {
		return Class{}, err
	}
	spec := &nodeClass.Spec
	return Class{
		Family:               FamilyOf(amiFamily),
		Kubelet:              kubelet,
		BlockDevices:         spec.BlockDeviceMappings,
		InstanceStorePolicy:  spec.InstanceStorePolicy,
		NetworkInterfaces:    spec.NetworkInterfaces,
		ConnectionTracking:   spec.ConnectionTracking != nil,
		NestedVirtualization: spec.CPUOptions != nil && spec.CPUOptions.NestedVirtualization == "enabled",
		Subnets:              nodeClass.Status.Subnets,
		Reservations:         nodeClass.Status.CapacityReservations,
	}, nil
}

// Market is what only the account and the moment can tell. Zones and the first three functions must
// be given.
type Market struct {
	// Zones that offer any instance type, with or without a subnet there.
	Zones []string
	// Offered tells whether EC2 has the type in the zone.
	Offered func(instanceType, zone string) bool
	// OnDemand and Spot are prices in $/h; false if there is none.
	OnDemand func(instanceType string) (float64, bool)
	Spot     func(instanceType, zone string) (float64, bool)
	// Unavailable tells whether EC2 lately had no capacity; nil = never.
	Unavailable func(instanceType, zone, capacityType string) bool
	// Remaining is how many more instances a capacity reservation takes; nil = none takes any.
	Remaining func(reservation string) int
	// Memory is what a node of the type with the class's images was seen to have; nil = nothing was seen.
	Memory func(instanceType string) (resource.Quantity, bool)
}

// Resolver resolves types. It is immutable and safe for concurrent use.
type Resolver struct {
	settings  Settings
	branch    table // branch network interfaces
	bandwidth table // Mbps
}

// New returns a Resolver. An error means that the build is broken.
func New(settings Settings) (*Resolver, error) {
	branch, err := parseTable(branchText)
	if err != nil {
		return nil, fmt.Errorf("branch interfaces: %w", err)
	}
	bandwidth, err := parseTable(bandwidthText)
	if err != nil {
		return nil, fmt.Errorf("network bandwidth: %w", err)
	}
	return &Resolver{settings: settings, branch: branch, bandwidth: bandwidth}, nil
}

// All resolves every type, and returns them sorted by name.
func (r *Resolver) All(infos []ec2types.InstanceTypeInfo, class Class, market Market) []*catalog.InstanceType {
	types := make([]*catalog.InstanceType, len(infos))
	labels := offeringLabels{}
	for i := range infos {
		types[i] = r.resolve(infos[i], class, market, labels)
	}
	slices.SortFunc(types, func(a, b *catalog.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	return types
}

// Resolve says what info is to a node class at this moment. A type that the class cannot use is
// returned too, with all its offerings unavailable.
func (r *Resolver) Resolve(info ec2types.InstanceTypeInfo, class Class, market Market) *catalog.InstanceType {
	return r.resolve(info, class, market, offeringLabels{})
}

func (r *Resolver) resolve(info ec2types.InstanceTypeInfo, class Class, market Market, labels offeringLabels) *catalog.InstanceType {
	m := machine{InstanceTypeInfo: info, name: string(info.InstanceType), settings: r.settings, class: class}
	zones := m.zones(market)
	capacity, allocatable := r.resources(m, market)
	return &catalog.InstanceType{
		Name:         m.name,
		Requirements: r.requirements(m, zones),
		Offerings:    m.offerings(zones, market, labels),
		Capacity:     capacity,
		Allocatable:  allocatable,
	}
}

// Supported tells whether the provider can use a type at all: it runs HVM images on x86-64 or Arm.
// DescribeInstanceTypes filters by the same two properties where EC2 is asked.
func Supported(info ec2types.InstanceTypeInfo) bool {
	return slices.Contains(info.SupportedVirtualizationTypes, ec2types.VirtualizationTypeHvm) && architecture(info) != ""
}

// machine is one type in the hands of one node class.
type machine struct {
	ec2types.InstanceTypeInfo
	name     string
	settings Settings
	class    Class
}

// zones are those in which the type is offered and the class has a subnet, in the order of the market.
func (m machine) zones(market Market) []string {
	var zones []string
	for _, zone := range market.Zones {
		if market.Offered(m.name, zone) && m.subnetIn(zone) {
			zones = append(zones, zone)
		}
	}
	return zones
}

func (m machine) subnetIn(zone string) bool {
	return slices.ContainsFunc(m.class.Subnets, func(s awsv1.Subnet) bool { return s.Zone == zone })
}

// zoneID returns the ID of a zone that the class has a subnet in, "" if no subnet tells.
func (m machine) zoneID(zone string) string {
	for _, s := range m.class.Subnets {
		if s.Zone == zone && s.ZoneID != "" {
			return s.ZoneID
		}
	}
	return ""
}

func (m machine) vcpus() int64 {
	if m.VCpuInfo == nil {
		return 0
	}
	return int64(aws.ToInt32(m.VCpuInfo.DefaultVCpus))
}

// efaOnly counts the class's interfaces that carry EFA traffic and no pods, on one card or (-1) on all.
func (m machine) efaOnly(card int32) int {
	n := 0
	for _, i := range m.class.NetworkInterfaces {
		if i.InterfaceType == awsv1.InterfaceTypeEFAOnly && (card < 0 || i.NetworkCardIndex == card) {
			n++
		}
	}
	return n
}

// card returns the network card of that index.
func (m machine) card(index int32) (ec2types.NetworkCardInfo, bool) {
	if m.NetworkInfo == nil {
		return ec2types.NetworkCardInfo{}, false
	}
	for _, c := range m.NetworkInfo.NetworkCards {
		if aws.ToInt32(c.NetworkCardIndex) == index {
			return c, true
		}
	}
	return ec2types.NetworkCardInfo{}, false
}
