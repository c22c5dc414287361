package ec2

import (
	"encoding/base64"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// maxUserData is how much user data an instance may have, in bytes after decoding.
const maxUserData = 16384

// unsupported is a parameter that EC2 knows and the simulator rejects, see protocol.Query.
type unsupported = struct{}

// templateData is the data of a launch template, in requests and in responses. RunInstances takes
// the same parameters.
type templateData struct {
	ImageID             string             `query:"ImageId" xml:"imageId,omitempty"`
	InstanceType        string             `query:"InstanceType" xml:"instanceType,omitempty"`
	UserData            string             `query:"UserData" xml:"userData,omitempty"` // base64
	KeyName             string             `query:"KeyName" xml:"keyName,omitempty"`
	Profile             *profileSpec       `query:"IamInstanceProfile" xml:"iamInstanceProfile"`
	Disks               []diskSpec         `query:"BlockDeviceMapping" xml:"blockDeviceMappingSet>item"`
	Interfaces          []interfaceSpec    `query:"NetworkInterface" xml:"networkInterfaceSet>item"`
	SecurityGroupIDs    []string           `query:"SecurityGroupId" xml:"securityGroupIdSet>item"`
	SecurityGroups      []string           `query:"SecurityGroup" xml:"securityGroupSet>item"`
	Placement           *placementSpec     `query:"Placement" xml:"placement"`
	Monitoring          *enabledSpec       `query:"Monitoring" xml:"monitoring"`
	EBSOptimized        *bool              `query:"EbsOptimized" xml:"ebsOptimized"`
	Tags                []tagSpecification `query:"TagSpecification" xml:"tagSpecificationSet>item"`
	Market              *marketSpec        `query:"InstanceMarketOptions" xml:"instanceMarketOptions"`
	Metadata            *metadataSpec      `query:"MetadataOptions" xml:"metadataOptions"`
	CPU                 *cpuSpec           `query:"CpuOptions" xml:"cpuOptions"`
	Credit              *creditSpec        `query:"CreditSpecification" xml:"creditSpecification"`
	Reservation         *reservationSpec   `query:"CapacityReservationSpecification" xml:"capacityReservationSpecification"`
	Enclave             *enabledSpec       `query:"EnclaveOptions" xml:"enclaveOptions"`
	Hibernation         *hibernationSpec   `query:"HibernationOptions" xml:"hibernationOptions"`
	Maintenance         *maintenanceSpec   `query:"MaintenanceOptions" xml:"maintenanceOptions"`
	DNS                 *dnsSpec           `query:"PrivateDnsNameOptions" xml:"privateDnsNameOptions"`
	NoTermination       *bool              `query:"DisableApiTermination" xml:"disableApiTermination"`
	NoStop              *bool              `query:"DisableApiStop" xml:"disableApiStop"`
	ShutdownBehavior    string             `query:"InstanceInitiatedShutdownBehavior" xml:"instanceInitiatedShutdownBehavior,omitempty"`
	Bandwidth           *bandwidthSpec     `query:"NetworkPerformanceOptions" xml:"networkPerformanceOptions"`
	Requirements        *unsupported       `query:"InstanceRequirements,unsupported" xml:"-"`
	KernelID            *unsupported       `query:"KernelId,unsupported" xml:"-"`
	RAMDiskID           *unsupported       `query:"RamDiskId,unsupported" xml:"-"`
	ElasticGPUs         *unsupported       `query:"ElasticGpuSpecification,unsupported" xml:"-"`
	ElasticInference    *unsupported       `query:"ElasticInferenceAccelerator,unsupported" xml:"-"`
	Licenses            *unsupported       `query:"LicenseSpecification,unsupported" xml:"-"`
	Operator            *unsupported       `query:"Operator,unsupported" xml:"-"`
	SecondaryInterfaces *unsupported       `query:"SecondaryInterface,unsupported" xml:"-"`
}

type profileSpec struct {
	ARN  string `query:"Arn" xml:"arn,omitempty"`
	Name string `query:"Name" xml:"name,omitempty"`
}

type diskSpec struct {
	Device  string   `query:"DeviceName" xml:"deviceName"`
	EBS     *ebsSpec `query:"Ebs" xml:"ebs"`
	Virtual string   `query:"VirtualName" xml:"virtualName,omitempty"`
	None    *string  `query:"NoDevice" xml:"noDevice"`
}

type ebsSpec struct {
	DeleteOnTermination *bool  `query:"DeleteOnTermination" xml:"deleteOnTermination"`
	Encrypted           *bool  `query:"Encrypted" xml:"encrypted"`
	IOPS                *int   `query:"Iops" xml:"iops"`
	KMSKey              string `query:"KmsKeyId" xml:"kmsKeyId,omitempty"`
	Snapshot            string `query:"SnapshotId" xml:"snapshotId,omitempty"`
	Throughput          *int   `query:"Throughput" xml:"throughput"`
	InitRate            *int   `query:"VolumeInitializationRate" xml:"volumeInitializationRate"`
	Size                *int   `query:"VolumeSize" xml:"volumeSize"` // GiB
	Type                string `query:"VolumeType" xml:"volumeType,omitempty"`
	Card                *int   `query:"EbsCardIndex" xml:"ebsCardIndex"` // 0 only
}

type interfaceSpec struct {
	DeviceIndex         *int          `query:"DeviceIndex" xml:"deviceIndex"`
	CardIndex           *int          `query:"NetworkCardIndex" xml:"networkCardIndex"`
	Type                string        `query:"InterfaceType" xml:"interfaceType,omitempty"`
	Description         string        `query:"Description" xml:"description,omitempty"`
	SubnetID            string        `query:"SubnetId" xml:"subnetId,omitempty"`
	Groups              []string      `query:"SecurityGroupId" xml:"groupSet>groupId"`
	PublicIP            *bool         `query:"AssociatePublicIpAddress" xml:"associatePublicIpAddress"`
	DeleteOnTermination *bool         `query:"DeleteOnTermination" xml:"deleteOnTermination"`
	PrivateIP           string        `query:"PrivateIpAddress" xml:"privateIpAddress,omitempty"`
	IPv4Prefixes        *int          `query:"Ipv4PrefixCount" xml:"ipv4PrefixCount"`
	SecondaryIPs        *int          `query:"SecondaryPrivateIpAddressCount" xml:"secondaryPrivateIpAddressCount"`
	IPv6Addresses       *int          `query:"Ipv6AddressCount" xml:"ipv6AddressCount"`
	IPv6Prefixes        *int          `query:"Ipv6PrefixCount" xml:"ipv6PrefixCount"`
	PrimaryIPv6         *bool         `query:"PrimaryIpv6" xml:"primaryIpv6"`
	Tracking            *trackingSpec `query:"ConnectionTrackingSpecification" xml:"connectionTrackingSpecification"`
	ENAQueues           *unsupported  `query:"EnaQueueCount,unsupported" xml:"-"`
	CarrierIP           *unsupported  `query:"AssociateCarrierIpAddress,unsupported" xml:"-"`
	SRD                 *unsupported  `query:"EnaSrdSpecification,unsupported" xml:"-"`
	ID                  *unsupported  `query:"NetworkInterfaceId,unsupported" xml:"-"`
	IPv4PrefixList      *unsupported  `query:"Ipv4Prefix,unsupported" xml:"-"`
	IPv6AddressList     *unsupported  `query:"Ipv6Addresses,unsupported" xml:"-"`
	IPv6PrefixList      *unsupported  `query:"Ipv6Prefix,unsupported" xml:"-"`
	PrivateIPList       *unsupported  `query:"PrivateIpAddresses,unsupported" xml:"-"`
}

type trackingSpec struct {
	Established *int `query:"TcpEstablishedTimeout" xml:"tcpEstablishedTimeout"`
	UDPStream   *int `query:"UdpStreamTimeout" xml:"udpStreamTimeout"`
	UDP         *int `query:"UdpTimeout" xml:"udpTimeout"`
}

// check rejects timeouts, in seconds, that EC2 does not track connections for.
func (t *trackingSpec) check() error {
	if t == nil {
		return nil
	}
	return firstError(between("TcpEstablishedTimeout", t.Established, 60, 432000), between("UdpStreamTimeout", t.UDPStream, 60, 180),
		between("UdpTimeout", t.UDP, 30, 60))
}

type placementSpec struct {
	Zone         string       `query:"AvailabilityZone" xml:"availabilityZone,omitempty"`
	ZoneID       string       `query:"AvailabilityZoneId" xml:"availabilityZoneId,omitempty"`
	Tenancy      string       `query:"Tenancy" xml:"tenancy,omitempty"`
	GroupID      string       `query:"GroupId" xml:"groupId,omitempty"`
	GroupName    string       `query:"GroupName" xml:"groupName,omitempty"`
	Partition    *int         `query:"PartitionNumber" xml:"partitionNumber"`
	Affinity     *unsupported `query:"Affinity,unsupported" xml:"-"`
	HostID       *unsupported `query:"HostId,unsupported" xml:"-"`
	HostGroup    *unsupported `query:"HostResourceGroupArn,unsupported" xml:"-"`
	SpreadDomain *unsupported `query:"SpreadDomain,unsupported" xml:"-"`
}

type enabledSpec struct {
	Enabled bool `query:"Enabled" xml:"enabled"`
}

type hibernationSpec struct {
	Configured bool `query:"Configured" xml:"configured"`
}

type maintenanceSpec struct {
	AutoRecovery string `query:"AutoRecovery" xml:"autoRecovery"`
}

type bandwidthSpec struct {
	Weighting string `query:"BandwidthWeighting" xml:"bandwidthWeighting"`
}

type dnsSpec struct {
	HostnameType string `query:"HostnameType" xml:"hostnameType,omitempty"`
	A            *bool  `query:"EnableResourceNameDnsARecord" xml:"enableResourceNameDnsARecord"`
	AAAA         *bool  `query:"EnableResourceNameDnsAAAARecord" xml:"enableResourceNameDnsAAAARecord"`
}

type marketSpec struct {
	Type string          `query:"MarketType" xml:"marketType"`
	Spot *spotMarketSpec `query:"SpotOptions" xml:"spotOptions"`
}

type spotMarketSpec struct {
	MaxPrice     string       `query:"MaxPrice" xml:"maxPrice,omitempty"`
	Type         string       `query:"SpotInstanceType" xml:"spotInstanceType,omitempty"`
	Interruption string       `query:"InstanceInterruptionBehavior" xml:"instanceInterruptionBehavior,omitempty"`
	Block        *unsupported `query:"BlockDurationMinutes,unsupported" xml:"-"`
	ValidUntil   *unsupported `query:"ValidUntil,unsupported" xml:"-"`
}

type metadataSpec struct {
	Endpoint string `query:"HttpEndpoint" xml:"httpEndpoint,omitempty"`
	IPv6     string `query:"HttpProtocolIpv6" xml:"httpProtocolIpv6,omitempty"`
	HopLimit *int   `query:"HttpPutResponseHopLimit" xml:"httpPutResponseHopLimit"`
	Tokens   string `query:"HttpTokens" xml:"httpTokens,omitempty"`
	Tags     string `query:"InstanceMetadataTags" xml:"instanceMetadataTags,omitempty"`
}

type cpuSpec struct {
	Cores   *int   `query:"CoreCount" xml:"coreCount"`
	Threads *int   `query:"ThreadsPerCore" xml:"threadsPerCore"`
	SEVSNP  string `query:"AmdSevSnp" xml:"amdSevSnp,omitempty"`
	Nested  string `query:"NestedVirtualization" xml:"nestedVirtualization,omitempty"`
}

type creditSpec struct {
	Credits string `query:"CpuCredits" xml:"cpuCredits"`
}

type reservationSpec struct {
	Preference string             `query:"CapacityReservationPreference" xml:"capacityReservationPreference,omitempty"`
	Target     *reservationTarget `query:"CapacityReservationTarget" xml:"capacityReservationTarget"`
}

type reservationTarget struct {
	ID    string `query:"CapacityReservationId" xml:"capacityReservationId,omitempty"`
	Group string `query:"CapacityReservationResourceGroupArn" xml:"capacityReservationResourceGroupArn,omitempty"`
}

// decodeUserData returns the bytes of base64 user data.
func decodeUserData(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, protocol.Errorf("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	case len(raw) > maxUserData:
		return nil, protocol.Errorf("InvalidUserData.Malformed", "User data is limited to %d bytes", maxUserData)
	}
	return raw, nil
}

// launchedKinds are the kinds of resources that a launch creates and can tag.
func launchedKinds() []string {
	return []string{"instance", "volume", "network-interface", "spot-instances-request"}
}

// check rejects what no launch could use, whatever else comes to it. References to things are judged at the launch.
func (d *templateData) check() error {
	if _, err := decodeUserData(d.UserData); err != nil {
		return err
	}
	if d.Profile != nil && d.Profile.ARN != "" && d.Profile.Name != "" {
		return combination("The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'")
	}
	if len(d.Interfaces) > 0 && len(d.SecurityGroupIDs)+len(d.SecurityGroups) > 0 {
		return combination("Network interfaces and an instance-level security groups may not be specified on the same request")
	}
	if err := checkSpecifications(d.Tags, launchedKinds()...); err != nil {
		return err
	}
	for _, disk := range d.Disks {
		if err := disk.check(); err != nil {
			return err
		}
	}
	return firstError(d.checkInterfaces(), d.checkOptions())
}

func (d *templateData) checkInterfaces() error {
	type slot struct{ card, device int }
	used := map[slot]bool{}
	for _, i := range d.Interfaces {
		if i.DeviceIndex == nil {
			return invalidValue("Each network interface requires a device index.")
		}
		at := slot{device: *i.DeviceIndex}
		if i.CardIndex != nil {
			at.card = *i.CardIndex
		}
		if used[at] {
			return combination("Network interfaces must have unique pairs of device index and network card index")
		}
		used[at] = true
		if err := firstError(oneOf("InterfaceType", i.Type, "interface", "efa", "efa-only"), i.Tracking.check()); err != nil {
			return err
		}
	}
	if len(used) > 0 && !used[slot{}] {
		return invalidValue("A network interface with device index 0 on network card 0 is required")
	}
	return nil
}

func (d *templateData) checkOptions() error {
	var errs []error
	if m := d.Metadata; m != nil {
		errs = append(errs,
			oneOf("HttpEndpoint", m.Endpoint, "enabled", "disabled"), oneOf("HttpTokens", m.Tokens, "required", "optional"),
			oneOf("HttpProtocolIpv6", m.IPv6, "enabled", "disabled"), oneOf("InstanceMetadataTags", m.Tags, "enabled", "disabled"),
			between("HttpPutResponseHopLimit", m.HopLimit, 1, 64),
		)
	}
	if p := d.Placement; p != nil {
		errs = append(errs, oneOf("Tenancy", p.Tenancy, "default", "dedicated", "host"))
	}
	if m := d.Market; m != nil {
		errs = append(errs, oneOf("MarketType", m.Type, "spot", "capacity-block", "interruptible-capacity-reservation"))
	}
	if r := d.Reservation; r != nil {
		errs = append(errs, oneOf("CapacityReservationPreference", r.Preference, "open", "none", "capacity-reservations-only"))
		if (r.Preference == "none" || r.Preference == "open") && r.Target != nil {
			errs = append(errs, combination("CapacityReservationTarget cannot be used with the preference %s", r.Preference))
		}
	}
	if c := d.CPU; c != nil {
		errs = append(errs, oneOf("NestedVirtualization", c.Nested, "enabled", "disabled"), oneOf("AmdSevSnp", c.SEVSNP, "enabled", "disabled"))
	}
	if n := d.DNS; n != nil {
		errs = append(errs, oneOf("HostnameType", n.HostnameType, ipName, resourceName))
	}
	if c := d.Credit; c != nil {
		errs = append(errs, oneOf("CpuCredits", c.Credits, "standard", "unlimited"))
	}
	errs = append(errs, oneOf("InstanceInitiatedShutdownBehavior", d.ShutdownBehavior, "stop", "terminate"))
	return firstError(errs...)
}

// volumeTypes with the bounds of their size in GiB, and whether IOPS and throughput can be set.
type volumeType struct {
	low, high        int
	iops, throughput bool
}

func volumeTypes() map[string]volumeType {
	return map[string]volumeType{
		"gp2": {low: 1, high: 16384}, "gp3": {low: 1, high: 65536, iops: true, throughput: true},
		"io1": {low: 4, high: 16384, iops: true}, "io2": {low: 4, high: 65536, iops: true},
		"st1": {low: 125, high: 16384}, "sc1": {low: 125, high: 16384}, "standard": {low: 1, high: 1024},
	}
}

func (d diskSpec) check() error {
	if d.Device == "" {
		return missing("BlockDeviceMapping.DeviceName")
	}
	if d.EBS == nil {
		return nil
	}
	name := d.EBS.Type
	if name == "" {
		name = "gp2"
	}
	t, known := volumeTypes()[name]
	switch {
	case !known:
		return invalidValue("Unknown volume type '%s'", name)
	case d.EBS.IOPS != nil && !t.iops:
		return combination("The parameter iops is not supported for %s volumes.", name)
	case d.EBS.Throughput != nil && !t.throughput:
		return combination("The parameter throughput is not supported for %s volumes.", name)
	case name[:2] == "io" && d.EBS.IOPS == nil:
		return protocol.Errorf("MissingParameter", "The parameter iops must be specified for %s volumes.", name)
	}
	if d.EBS.Card != nil && *d.EBS.Card != 0 {
		return protocol.Errorf("UnsupportedOperation", "The simulator has instance types with one EBS card only")
	}
	return firstError(
		between("volumeSize", d.EBS.Size, t.low, t.high), between("iops", d.EBS.IOPS, 100, 256000),
		between("throughput", d.EBS.Throughput, 125, 2000), between("volumeInitializationRate", d.EBS.InitRate, 100, 300),
	)
}
