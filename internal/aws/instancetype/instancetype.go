// Package instancetype turns EC2's description of an instance type into what the engine plans with: the labels of a
// node of that type, its allocatable resources, and its offerings.
//
// The node class decides much of this (AMI family, kubelet settings, disks, subnets), so one EC2 type resolves to a
// different catalog.InstanceType per node class. Everything here is a function of its arguments; the caller calls AWS
// and caches the results.
package instancetype

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/expression"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Settings apply to all node classes of an installation.
type Settings struct {
	Region string
	// ReservedENIs are network interfaces that carry no pods (custom networking of the VPC CNI).
	ReservedENIs int
	// MemoryOverhead is the share (0.075 = 7.5 %) of a type's memory that hypervisor and firmware are assumed to keep,
	// until a node of that type has reported its memory.
	MemoryOverhead float64
	// Expressions enables expressions in the kubelet settings of node classes; else an expression counts as not set.
	Expressions bool
	// DRADrivers are the DRA drivers with devices that types come with, as far as the catalog has them.
	DRADrivers []string
}

// Class is the part of an EC2NodeClass that instance types depend on.
type Class struct {
	Family               Family
	Kubelet              awsv1.KubeletConfiguration
	BlockDevices         []awsv1.BlockDeviceMapping // as in the spec: without the family's own
	InstanceStorePolicy  awsv1.InstanceStorePolicy
	NetworkInterfaces    []awsv1.NetworkInterface
	ConnectionTracking   bool
	NestedVirtualization bool
	Enclaves             bool
	// GPUSharing states how claims share NVIDIA GPUs.
	GPUSharing string
	Subnets    []awsv1.Subnet
	// Reservations are the capacity reservations that nodes may use.
	Reservations []awsv1.CapacityReservation
	// Group is the placement group of the instances; zero for none.
	Group placement.Group
	// LaunchBlocked is the reason why nothing can be launched for the class at the moment; empty if it can.
	LaunchBlocked string
}

// partitions returns the partitions of an instance; one empty name if there is no choice.
func (c Class) partitions() []string {
	if c.Group.Strategy != placement.Partition || c.Group.Partitions == 0 {
		return []string{""}
	}
	out := make([]string, c.Group.Partitions)
	for i := range out {
		out[i] = strconv.Itoa(i + 1)
	}
	return out
}

// ClassOf reads a node class with its resolved AMI family. It fails if spec.kubelet cannot be parsed.
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
		Enclaves:             nodeClass.EnclavesEnabled(),
		GPUSharing:           nodeClass.Annotations[awsv1.AnnotationNVIDIAConsumableCapacity],
		Subnets:              nodeClass.Status.Subnets,
		Reservations:         nodeClass.Status.CapacityReservations,
	}, nil
}

// Market is prices and availability for one account at one moment. Zones and the first three functions are required.
type Market struct {
	// Zones that offer any instance type, with or without a subnet.
	Zones []string
	// Offered reports whether EC2 offers the type in the zone.
	Offered func(instanceType, zone string) bool
	// OnDemand and Spot are prices in $/h; false if there is none.
	OnDemand func(instanceType string) (float64, bool)
	Spot     func(instanceType, zone string) (float64, bool)
	// PriceDerived reports whether the price of a capacity type was computed from other prices; nil means never.
	PriceDerived func(instanceType, capacityType string) bool
	// Unavailable reports whether EC2 lacked capacity lately; nil means never.
	Unavailable func(PartitionedOffering) bool
	// ZoneShifted reports whether a zonal shift moves the cluster away from a zone; nil means never.
	ZoneShifted func(zone string) bool
	// Remaining returns how many more instances a capacity reservation accepts; nil means none.
	Remaining func(reservation string) int
	// ReservationHealthy reports whether a reservation would accept an instance if one of its instances terminated; nil means that each
	// would.
	ReservationHealthy func(reservation string) bool
	// DiscoveredMemory returns the memory that a node of the type reported with the class's images; nil means none did.
	DiscoveredMemory func(instanceType string) (resource.Quantity, bool)
}

// PartitionedOffering is an offering in one partition of the node class's placement group.
type PartitionedOffering struct {
	catalog.OfferingKey
	// Partition is empty if EC2 chooses the partition, or if there is none.
	Partition string
}

// Resolver resolves types. It is immutable and safe for concurrent use.
type Resolver struct {
	settings  Settings
	branch    table // branch network interfaces
	bandwidth table // Mbps
	devices   Devices
	compiler  *expression.Compiler
}

// New returns a Resolver. An error is a bug in this program.
func New(settings Settings) (*Resolver, error) {
	branch, err := parseTable(branchText)
	if err != nil {
		return nil, fmt.Errorf("branch interfaces: %w", err)
	}
	bandwidth, err := parseTable(bandwidthText)
	if err != nil {
		return nil, fmt.Errorf("network bandwidth: %w", err)
	}
	devices, err := LoadDevices(settings.DRADrivers)
	if err != nil {
		return nil, err
	}
	compiler, err := expression.NewCompiler()
	if err != nil {
		return nil, err
	}
	return &Resolver{settings: settings, branch: branch, bandwidth: bandwidth, devices: devices, compiler: compiler}, nil
}

// ClassResolver resolves types for one node class at one moment. It is for one goroutine.
type ClassResolver struct {
	resolver *Resolver
	class    Class
	market   Market
	kubelet  *expression.Settings
	labels   offeringLabels
}

// ForClass returns a resolver for a class. It fails if an expression of the class does not compile.
func (r *Resolver) ForClass(class Class, market Market) (*ClassResolver, error) {
	s := &ClassResolver{resolver: r, class: class, market: market, labels: offeringLabels{}}
	if !r.settings.Expressions {
		return s, nil
	}
	var err error
	s.kubelet, err = r.compiler.Compile(class.Kubelet)
	return s, err
}

// ResolveAll resolves every type, and returns them sorted by name. It fails if an expression of the class's kubelet
// settings fails for all types.
func (r *Resolver) ResolveAll(infos []ec2types.InstanceTypeInfo, class Class, market Market) ([]*catalog.InstanceType, error) {
	s, err := r.ForClass(class, market)
	if err != nil {
		return nil, err
	}
	types, broken := make([]*catalog.InstanceType, len(infos)), 0
	for i := range infos {
		var failed error
		if types[i], failed = s.Resolve(infos[i]); failed != nil {
			broken, err = broken+1, failed
		}
	}
	if broken > 0 && broken == len(infos) {
		return nil, err
	}
	slices.SortFunc(types, func(a, b *catalog.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	return types, nil
}

// Resolve returns the type as the node class would launch it now. A type that the class cannot use is returned with all
// offerings unavailable; so is one with a failing expression, together with the error.
func (s *ClassResolver) Resolve(info ec2types.InstanceTypeInfo) (*catalog.InstanceType, error) {
	m, err := s.forClass(info)
	zones := m.zones(s.market)
	capacity, allocatable := s.resolver.resources(m, s.market)
	return &catalog.InstanceType{
		Name:         m.name,
		Requirements: s.resolver.requirements(m, zones),
		Offerings:    m.offerings(s.market, s.labels),
		Capacity:     capacity,
		Allocatable:  allocatable,
		VolumeLimits: m.volumeLimits(),
		DeviceSlices: s.resolver.deviceSlices(m),
		LocalStorage: m.localStorage(),
	}, err
}

// RefreshOfferings returns a type that was resolved for the same class with its offerings resolved again. Everything
// else must be unchanged.
func (s *ClassResolver) RefreshOfferings(info ec2types.InstanceTypeInfo, known *catalog.InstanceType) *catalog.InstanceType {
	m, _ := s.forClass(info) // the offerings show a failing expression
	renewed := *known
	renewed.Offerings = m.offerings(s.market, s.labels)
	return &renewed
}

// forClass returns the type with the class's expressions evaluated for it.
func (s *ClassResolver) forClass(info ec2types.InstanceTypeInfo) (typeForClass, error) {
	m := typeForClass{InstanceTypeInfo: info, name: string(info.InstanceType), settings: s.resolver.settings, class: s.class}
	if s.kubelet == nil || !s.kubelet.HasExpressions() {
		return m, nil
	}
	kubelet, err := s.kubelet.Kubelet(m.variables(), func(k awsv1.KubeletConfiguration) int64 {
		settled := m
		settled.class.Kubelet = k
		return int64(settled.pods())
	})
	if err != nil {
		m.expressionError = err.Error()
	}
	m.class.Kubelet = kubelet
	return m, err
}

// Kubelet returns the kubelet settings of the class for a type, with the results of its expressions.
func (s *ClassResolver) Kubelet(info ec2types.InstanceTypeInfo) (awsv1.KubeletConfiguration, error) {
	m, err := s.forClass(info)
	return m.class.Kubelet, err
}

// Supported reports whether the provider can use a type at all: it runs HVM images on x86-64 or Arm. Calls of
// DescribeInstanceTypes filter by the same two properties.
func Supported(info ec2types.InstanceTypeInfo) bool {
	return slices.Contains(info.SupportedVirtualizationTypes, ec2types.VirtualizationTypeHvm) && architecture(info) != ""
}

// typeForClass is one instance type for one node class.
type typeForClass struct {
	ec2types.InstanceTypeInfo
	name     string
	settings Settings
	class    Class
	// expressionError is the error of an expression that fails for the type; empty if none does.
	expressionError string
}

// variables returns the inputs of expressions.
func (m typeForClass) variables() expression.Variables {
	f := expression.Variables{InstanceType: m.name, VCPUs: m.vcpus(), MemoryMiB: m.memoryMiB()}
	if m.NetworkInfo != nil {
		card, _ := m.networkCard(aws.ToInt32(m.NetworkInfo.DefaultNetworkCardIndex))
		f.ENIs, f.IPsPerENI = int64(aws.ToInt32(card.MaximumNetworkInterfaces)), int64(aws.ToInt32(m.NetworkInfo.Ipv4AddressesPerInterface))
	}
	return f
}

// zones returns the zones in which the type is offered and the class has a subnet, in the order of the market.
func (m typeForClass) zones(market Market) []string {
	var zones []string
	for _, zone := range market.Zones {
		if market.Offered(m.name, zone) && m.subnetIn(zone) {
			zones = append(zones, zone)
		}
	}
	return zones
}

func (m typeForClass) subnetIn(zone string) bool {
	return slices.ContainsFunc(m.class.Subnets, func(s awsv1.Subnet) bool { return s.Zone == zone })
}

// zoneID returns the ID of a zone from the subnets of the class, "" if none has it.
func (m typeForClass) zoneID(zone string) string {
	for _, s := range m.class.Subnets {
		if s.Zone == zone && s.ZoneID != "" {
			return s.ZoneID
		}
	}
	return ""
}

func (m typeForClass) vcpus() int64 {
	if m.VCpuInfo == nil {
		return 0
	}
	return int64(aws.ToInt32(m.VCpuInfo.DefaultVCpus))
}

// countEFAOnly counts the class's interfaces that carry EFA traffic and no pods, on one card or (-1) on all.
func (m typeForClass) countEFAOnly(card int32) int {
	n := 0
	for _, i := range m.class.NetworkInterfaces {
		if i.InterfaceType == awsv1.InterfaceTypeEFAOnly && (card < 0 || i.NetworkCardIndex == card) {
			n++
		}
	}
	return n
}

// networkCard returns the network card with the index.
func (m typeForClass) networkCard(index int32) (ec2types.NetworkCardInfo, bool) {
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
