package ec2

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"sync"
	"time"
)

// document is a record in XML, encoded when it is first shown and kept as long as the record.
type document struct {
	once sync.Once
	text []byte
	err  error
}

// encoded is an element with content that is already encoded.
type encoded struct {
	Inner []byte `xml:",innerxml"`
}

// stateInfo is an instance's state with its number.
type stateInfo struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

func stateOf(name string) stateInfo {
	codes := map[string]int{Pending: 0, Running: 16, ShuttingDown: 32, Terminated: 48, Stopping: 64, Stopped: 80}
	return stateInfo{Code: codes[name], Name: name}
}

type groupRef struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

// instanceInfo is an instance as DescribeInstances shows it.
type instanceInfo struct {
	ID              string              `xml:"instanceId"`
	ImageID         string              `xml:"imageId"`
	State           stateInfo           `xml:"instanceState"`
	PrivateDNSName  string              `xml:"privateDnsName"`
	PublicDNSName   string              `xml:"dnsName"`
	Reason          string              `xml:"reason"`
	KeyName         string              `xml:"keyName,omitempty"`
	LaunchIndex     int                 `xml:"amiLaunchIndex"`
	Type            string              `xml:"instanceType"`
	LaunchTime      string              `xml:"launchTime"`
	Placement       placementInfo       `xml:"placement"`
	Platform        string              `xml:"platform,omitempty"`
	PlatformDetails string              `xml:"platformDetails"`
	UsageOperation  string              `xml:"usageOperation"`
	UsageSince      string              `xml:"usageOperationUpdateTime"`
	Monitoring      string              `xml:"monitoring>state"`
	SubnetID        string              `xml:"subnetId,omitempty"`
	VPCID           string              `xml:"vpcId,omitempty"`
	PrivateIP       string              `xml:"privateIpAddress,omitempty"`
	PublicIP        string              `xml:"ipAddress,omitempty"`
	SourceDestCheck *bool               `xml:"sourceDestCheck"`
	Groups          []groupRef          `xml:"groupSet>item"`
	StateReason     *stateReason        `xml:"stateReason"`
	Architecture    string              `xml:"architecture"`
	RootDeviceType  string              `xml:"rootDeviceType"`
	RootDevice      string              `xml:"rootDeviceName"`
	Disks           []attachedDisk      `xml:"blockDeviceMapping>item"`
	Virtualization  string              `xml:"virtualizationType"`
	Lifecycle       string              `xml:"instanceLifecycle,omitempty"`
	SpotRequest     string              `xml:"spotInstanceRequestId,omitempty"`
	ClientToken     string              `xml:"clientToken"`
	Tags            []tag               `xml:"tagSet>item"`
	Hypervisor      string              `xml:"hypervisor"`
	Interfaces      []attachedInterface `xml:"networkInterfaceSet>item"`
	Profile         *profileInfo        `xml:"iamInstanceProfile"`
	EBSOptimized    bool                `xml:"ebsOptimized"`
	ENA             bool                `xml:"enaSupport"`
	CPU             cpuInfo             `xml:"cpuOptions"`
	Reserved        string              `xml:"capacityReservationId,omitempty"`
	Reservation     *reservationSpec    `xml:"capacityReservationSpecification"`
	Hibernation     hibernationSpec     `xml:"hibernationOptions"`
	Metadata        metadataInfo        `xml:"metadataOptions"`
	Enclave         enabledSpec         `xml:"enclaveOptions"`
	BootMode        string              `xml:"currentInstanceBootMode"`
	Maintenance     maintenanceSpec     `xml:"maintenanceOptions"`
	DNS             *dnsSpec            `xml:"privateDnsNameOptions"`
	Bandwidth       bandwidthSpec       `xml:"networkPerformanceOptions"`
	IPv6            string              `xml:"ipv6Address,omitempty"`
}

type placementInfo struct {
	Zone    string `xml:"availabilityZone"`
	ZoneID  string `xml:"availabilityZoneId"`
	Group   string `xml:"groupName"`
	GroupID string `xml:"groupId,omitempty"`
	// Partition is known once the instance runs.
	Partition *int   `xml:"partitionNumber"`
	Tenancy   string `xml:"tenancy"`
}

type stateReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type attachedDisk struct {
	Device   string `xml:"deviceName"`
	VolumeID string `xml:"ebs>volumeId"`
	Status   string `xml:"ebs>status"`
	Attached string `xml:"ebs>attachTime"`
	Deletes  bool   `xml:"ebs>deleteOnTermination"`
}

type profileInfo struct {
	ARN string `xml:"arn"`
	ID  string `xml:"id"`
}

type cpuInfo struct {
	Cores   int    `xml:"coreCount"`
	Threads int    `xml:"threadsPerCore"`
	Nested  string `xml:"nestedVirtualization,omitempty"`
	SEVSNP  string `xml:"amdSevSnp,omitempty"`
}

type metadataInfo struct {
	State    string `xml:"state"`
	Tokens   string `xml:"httpTokens"`
	HopLimit int    `xml:"httpPutResponseHopLimit"`
	Endpoint string `xml:"httpEndpoint"`
	IPv6     string `xml:"httpProtocolIpv6"`
	Tags     string `xml:"instanceMetadataTags"`
}

type attachedInterface struct {
	ID              string         `xml:"networkInterfaceId"`
	SubnetID        string         `xml:"subnetId"`
	VPCID           string         `xml:"vpcId"`
	Description     string         `xml:"description"`
	Owner           string         `xml:"ownerId"`
	Status          string         `xml:"status"`
	MAC             string         `xml:"macAddress"`
	PrivateIP       string         `xml:"privateIpAddress,omitempty"`
	PrivateDNSName  string         `xml:"privateDnsName,omitempty"`
	SourceDestCheck bool           `xml:"sourceDestCheck"`
	Groups          []groupRef     `xml:"groupSet>item"`
	Attachment      nicAttachment  `xml:"attachment"`
	Association     *publicAddress `xml:"association"`
	PrivateIPs      []privateIP    `xml:"privateIpAddressesSet>item"`
	Type            string         `xml:"interfaceType"`
	Prefixes        []ipv4Prefix   `xml:"ipv4PrefixSet>item"`
	IPv6            []ipv6Address  `xml:"ipv6AddressesSet>item"`
	IPv6Prefixes    []ipv6Prefix   `xml:"ipv6PrefixSet>item"`
	Tracking        *trackingSpec  `xml:"connectionTrackingConfiguration"`
}

type ipv4Prefix struct {
	Prefix string `xml:"ipv4Prefix"`
}

type ipv6Address struct {
	IP      string `xml:"ipv6Address"`
	Primary bool   `xml:"isPrimaryIpv6"`
}

type ipv6Prefix struct {
	Prefix string `xml:"ipv6Prefix"`
}

type nicAttachment struct {
	ID       string `xml:"attachmentId"`
	Device   int    `xml:"deviceIndex"`
	Card     int    `xml:"networkCardIndex"`
	Status   string `xml:"status"`
	Attached string `xml:"attachTime"`
	Deletes  bool   `xml:"deleteOnTermination"`
}

type publicAddress struct {
	IP    string `xml:"publicIp"`
	DNS   string `xml:"publicDnsName"`
	Owner string `xml:"ipOwnerId"`
}

type privateIP struct {
	IP      string `xml:"privateIpAddress"`
	DNS     string `xml:"privateDnsName"`
	Primary bool   `xml:"primary"`
}

// xml returns the instance as an element's content.
func (c *Config) xml(r *instanceRecord) (encoded, error) {
	d := r.document
	d.once.Do(func() {
		var b bytes.Buffer
		d.err = xml.NewEncoder(&b).EncodeElement(c.show(r), xml.StartElement{Name: xml.Name{Local: "item"}})
		d.text = bytes.TrimSuffix(bytes.TrimPrefix(b.Bytes(), []byte("<item>")), []byte("</item>"))
	})
	return encoded{d.text}, d.err
}

// show describes an instance. What a terminated one no longer has is left out.
func (c *Config) show(r *instanceRecord) instanceInfo {
	o := r.order
	i := instanceInfo{
		ID: r.ID, ImageID: r.ImageID, State: stateOf(r.State), KeyName: o.data.KeyName, LaunchIndex: r.index, Type: r.Type,
		LaunchTime: launchTime(r), Placement: placementInfo{Zone: r.Zone, ZoneID: r.ZoneID, Tenancy: "default"},
		Platform: o.image.Platform, PlatformDetails: "Linux/UNIX", UsageOperation: "RunInstances", UsageSince: launchTime(r),
		Monitoring:   pick(o.data.Monitoring != nil && o.data.Monitoring.Enabled, "enabled", "disabled"),
		Architecture: r.Architecture, RootDeviceType: "ebs", RootDevice: o.image.RootDevice, Virtualization: "hvm",
		Lifecycle: r.Lifecycle, SpotRequest: r.spotRequest, ClientToken: r.token, Tags: tagList(r.Tags), Hypervisor: "xen",
		EBSOptimized: o.data.EBSOptimized != nil && *o.data.EBSOptimized || o.instanceType.EBSOptimized == "default", ENA: true,
		CPU: showCPU(
			o,
		), Reserved: r.CapacityReservationID, Reservation: &reservationSpec{Preference: "open"}, Metadata: showMetadata(o.data.Metadata, r.State),
		BootMode:    pick(o.instanceType.Hypervisor == "nitro", "uefi", "legacy-bios"),
		Maintenance: maintenanceSpec{AutoRecovery: "default"}, Bandwidth: bandwidthSpec{Weighting: "default"},
		DNS: &dnsSpec{HostnameType: o.hostnameType()},
	}
	if o.image.Platform == "windows" {
		i.PlatformDetails, i.UsageOperation = "Windows", "RunInstances:0002"
	}
	showOptions(&i, o)
	if o.placed != nil {
		i.Placement.Group, i.Placement.GroupID = o.placed.Name, o.placed.ID
		if r.partition > 0 && r.State != Pending {
			i.Placement.Partition = &r.partition
		}
	}
	switch r.endedBy {
	case "":
	case spotTermination:
		i.Reason = fmt.Sprintf("%s (%s GMT)", spotTermination, r.endedAt.UTC().Format(time.DateTime))
		i.StateReason = &stateReason{Code: spotTermination, Message: spotTermination + ": Instance terminated by Spot."}
	default:
		i.Reason = fmt.Sprintf("User initiated (%s GMT)", r.endedAt.UTC().Format(time.DateTime))
		i.StateReason = &stateReason{Code: r.endedBy, Message: r.endedBy + ": User initiated shutdown"}
	}
	if r.State != Terminated {
		c.showAttachments(&i, r)
	}
	return i
}

// launchTime is shown in whole seconds.
func launchTime(r *instanceRecord) string { return stamp(r.LaunchedAt.Truncate(time.Second)) }

// showOptions copies the options of the launch over EC2's defaults.
func showOptions(i *instanceInfo, o *launchPlan) {
	if p := o.data.Placement; p != nil && p.Tenancy != "" {
		i.Placement.Tenancy = p.Tenancy
	}
	if o.data.Reservation != nil {
		i.Reservation = o.data.Reservation
	}
	if o.data.Enclave != nil {
		i.Enclave = *o.data.Enclave
	}
	if o.data.Hibernation != nil {
		i.Hibernation = *o.data.Hibernation
	}
	if o.data.Maintenance != nil {
		i.Maintenance = *o.data.Maintenance
	}
	if o.data.DNS != nil {
		i.DNS = o.data.DNS
	}
	if o.data.Bandwidth != nil {
		i.Bandwidth = *o.data.Bandwidth
	}
	if o.profile != nil {
		i.Profile = &profileInfo{ARN: o.profile.ARN, ID: o.profile.ID}
	}
}

// showAttachments adds network and volumes.
func (c *Config) showAttachments(i *instanceInfo, r *instanceRecord) {
	check := true
	i.SubnetID, i.VPCID, i.SourceDestCheck = r.SubnetID, r.VPCID, &check
	i.PrivateIP, i.PrivateDNSName = r.PrivateIP, r.PrivateDNSName
	i.PublicIP, i.PublicDNSName = r.publicIP, publicDNSName(c.Region, r.publicIP)
	i.Groups = groupRefs(r.order.groups)
	for at, d := range r.order.disks {
		i.Disks = append(i.Disks, attachedDisk{
			Device: d.device, VolumeID: r.volumes[at], Status: pick(r.State == Pending, "attaching", "attached"),
			Attached: launchTime(r), Deletes: d.deletes,
		})
	}
	for _, v := range r.joined {
		i.Disks = append(i.Disks, attachedDisk{Device: v.device, VolumeID: v.id, Status: "attached", Attached: stamp(v.attached)})
	}
	for at, n := range r.nics {
		if at == 0 && len(n.six) > 0 {
			i.IPv6 = n.six[0].String()
		}
		i.Interfaces = append(i.Interfaces, c.showNIC(r, n))
	}
}

func (c *Config) showNIC(r *instanceRecord, n nic) attachedInterface {
	a := attachedInterface{
		ID: n.id, SubnetID: r.SubnetID, VPCID: r.VPCID, Description: n.description, Owner: c.AccountID, Status: "in-use",
		MAC: macAddress(n.id), SourceDestCheck: true, Groups: groupRefs(n.groups), Type: n.kind, Tracking: n.tracking,
		Attachment: nicAttachment{
			ID: derivedID("eni-attach", n.id), Device: n.device, Card: n.card, Status: pick(r.State == Pending, "attaching", "attached"),
			Attached: launchTime(r), Deletes: !n.keep,
		},
	}
	if n.ip.IsValid() {
		ip := n.ip.String()
		a.PrivateIP, a.PrivateDNSName = ip, privateDNSName(c.Region, ip)
		a.PrivateIPs = []privateIP{{IP: ip, DNS: a.PrivateDNSName, Primary: true}}
	}
	for _, ip := range n.more {
		a.PrivateIPs = append(a.PrivateIPs, privateIP{IP: ip.String(), DNS: privateDNSName(c.Region, ip.String())})
	}
	for _, block := range n.blocks {
		a.Prefixes = append(a.Prefixes, ipv4Prefix{block.String()})
	}
	for at, ip := range n.six {
		a.IPv6 = append(a.IPv6, ipv6Address{IP: ip.String(), Primary: at == 0 && n.primary6})
	}
	for _, block := range n.blocks6 {
		a.IPv6Prefixes = append(a.IPv6Prefixes, ipv6Prefix{block.String()})
	}
	if n.public {
		a.Association = &publicAddress{IP: r.publicIP, DNS: publicDNSName(c.Region, r.publicIP), Owner: amazonOwners}
	}
	return a
}

// macAddress derives a locally administered address from the ID of the interface.
func macAddress(id string) string {
	sum := derivedID("mac", id)[len("mac-0"):]
	return fmt.Sprintf("02:%s:%s:%s:%s:%s", sum[0:2], sum[2:4], sum[4:6], sum[6:8], sum[8:10])
}

func groupRefs(groups []*SecurityGroup) []groupRef {
	refs := make([]groupRef, len(groups))
	for i, g := range groups {
		refs[i] = groupRef{ID: g.ID, Name: g.Name}
	}
	return refs
}

func showCPU(o *launchPlan) cpuInfo {
	c := cpuInfo{Cores: max(1, o.instanceType.Cores), Threads: threadsPerCore(o.instanceType.Type)}
	if asked := o.data.CPU; asked != nil {
		if asked.Cores != nil {
			c.Cores = *asked.Cores
		}
		if asked.Threads != nil {
			c.Threads = *asked.Threads
		}
		c.Nested, c.SEVSNP = asked.Nested, asked.SEVSNP
	}
	return c
}

func showMetadata(asked *metadataSpec, state string) metadataInfo {
	m := metadataInfo{
		State: pick(
			state == Pending,
			"pending",
			"applied",
		), Tokens: "optional", HopLimit: 1, Endpoint: "enabled", IPv6: "disabled", Tags: "disabled",
	}
	if asked == nil {
		return m
	}
	set(&m.Tokens, asked.Tokens)
	set(&m.Endpoint, asked.Endpoint)
	set(&m.IPv6, asked.IPv6)
	set(&m.Tags, asked.Tags)
	if asked.HopLimit != nil {
		m.HopLimit = *asked.HopLimit
	}
	return m
}
