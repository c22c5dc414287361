package ec2

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Lifecycles of an instance, as pools name them.
const (
	spotLifecycle     = "spot"
	onDemandLifecycle = "on-demand"
)

// launchRequest is one way to launch, put together from a launch template, a fleet's override or the parameters of
// RunInstances, before anything in it is looked up.
type launchRequest struct {
	data       *templateData
	typ        string
	imageID    string
	subnetID   string
	zone       string // name; empty = any
	privateIP  string
	spot       bool
	tags       []tagSpecification // on top of the template's
	systemTags map[string]string  // aws:...
}

// launchPlan is a request with everything looked up and found sound: what remains to be seen is capacity. It is
// immutable.
type launchPlan struct {
	data         *templateData
	userData     []byte
	instanceType *instanceType
	image        *ami
	subnet       *Subnet
	groups       []*SecurityGroup
	profile      *InstanceProfile
	placed       *placementGroup // nil = into none
	lifecycle    string
	privateIP    netip.Addr // zero = any
	disks        []plannedDisk
	nics         []plannedInterface
	tags         launchTags
}

// launchTags are the tags of what a launch creates.
type launchTags struct{ instance, volume, nic, spot map[string]string }

// plannedDisk is a volume to create.
type plannedDisk struct {
	device, snapshot, kind string
	sizeGiB                int
	iops, throughput       int
	encrypted, deletes     bool
}

// plannedInterface is a network interface to create.
type plannedInterface struct {
	device, card int
	kind         string // "interface", "efa", "efa-only"
	groups       []*SecurityGroup
	prefixes     int // /28 blocks
	secondaries  int // addresses besides the first
	ipv6         int // addresses
	prefixes6    int // /80 blocks
	primary6     bool
	tracking     *trackingSpec
	public       bool
	description  string
	keep         bool // survives the instance
}

// pool is where the order takes its capacity.
func (o *launchPlan) pool() Pool {
	return Pool{InstanceType: o.instanceType.Name, Zone: o.subnet.Zone, Lifecycle: o.lifecycle}
}

// resolve looks up what a request refers to, in the order in which EC2 complains. The lock must be held.
func (e *EC2) resolve(q launchRequest) (*launchPlan, error) {
	o := &launchPlan{data: q.data, lifecycle: pick(q.spot, spotLifecycle, onDemandLifecycle)}
	steps := []func(*launchPlan, launchRequest) error{
		e.resolveImage, e.resolveSubnet, e.market.resolveMarket, e.resolveReservation, e.network.resolveGroups, e.cfg.resolveProfile,
		e.resolvePlacement, resolveDisks, e.network.resolveInterfaces, resolveOptions,
	}
	for _, step := range steps {
		if err := step(o, q); err != nil {
			return nil, err
		}
	}
	var err error
	if o.userData, err = decodeUserData(q.data.UserData); err != nil {
		return nil, err
	}
	o.tags = launchTags{
		instance: tagsFor("instance", q.data.Tags, q.tags), volume: tagsFor("volume", q.data.Tags, q.tags),
		nic: tagsFor("network-interface", q.data.Tags, q.tags), spot: tagsFor("spot-instances-request", q.data.Tags, q.tags),
	}
	for key, value := range q.systemTags {
		o.tags.instance[key] = value
	}
	return o, nil
}

func (e *EC2) resolveImage(o *launchPlan, q launchRequest) error {
	if q.imageID == "" {
		return missing("ImageId")
	}
	if err := imageIDs().check(q.imageID); err != nil {
		return err
	}
	if o.image = e.images[q.imageID]; o.image == nil {
		return imageIDs().absent(q.imageID)
	}
	switch {
	case !o.image.usable(e.cfg.AccountID):
		return protocol.Errorf("AuthFailure", "Not authorized for images: [%s]", q.imageID)
	case o.image.state != "" && o.image.state != imageAvailable:
		return protocol.Errorf("InvalidAMIID.Unavailable", "The image ID '%s' is not available", q.imageID)
	}
	if o.instanceType = e.market.byName[q.typ]; o.instanceType == nil {
		return invalidValue("Invalid value '%s' for InstanceType.", q.typ)
	}
	if !slices.Contains(o.instanceType.Architectures, o.image.Architecture) {
		return invalidValue(
			"The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI. "+
				"Specify an instance type and an AMI that have matching architectures, and try again. "+
				"You can use 'describe-instance-types' or 'describe-images' to discover the architecture of the instance type or AMI.",
			strings.Join(o.instanceType.Architectures, ","),
			o.image.Architecture,
		)
	}
	return nil
}

func (e *EC2) resolveSubnet(o *launchPlan, q launchRequest) error {
	id := q.subnetID
	if len(q.data.Interfaces) > 0 && q.data.Interfaces[0].SubnetID != "" && id == "" {
		id = q.data.Interfaces[0].SubnetID
	}
	zone, zoneID := q.zone, ""
	if p := q.data.Placement; zone == "" && p != nil {
		zone, zoneID = p.Zone, p.ZoneID
	}
	zone, err := e.market.zoneNamed(zone, zoneID)
	if err != nil {
		return err
	}
	if id == "" {
		if o.subnet = e.network.defaultSubnet(zone); o.subnet == nil {
			return protocol.Errorf(
				"VPCIdNotSpecified",
				"No default VPC for this user. GroupName is only supported for EC2-Classic and default VPC.",
			)
		}
		return nil
	}
	if err := subnetIDs().check(id); err != nil {
		return err
	}
	if o.subnet = e.network.subnet(id); o.subnet == nil {
		return subnetIDs().absent(id)
	}
	if zone != "" && zone != o.subnet.Zone {
		return invalidValue("The specified subnet '%s' is not in the Availability Zone '%s'", id, zone)
	}
	o.privateIP, err = o.subnet.address(q.privateIP)
	return err
}

// address reads an address of the subnet; the zero address is none.
func (s *Subnet) address(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || !s.CIDR.Contains(ip) {
		return netip.Addr{}, invalidValue("Address %s does not fall within the subnet's address range", text)
	}
	return ip, nil
}

// defaultSubnet returns the default subnet of a zone, or the first of any.
func (n *network) defaultSubnet(zone string) *Subnet {
	return find(n.subnets, func(s *Subnet) bool { return s.Default && (zone == "" || zone == s.Zone) })
}

// resolveMarket rejects purchase options that are never available.
func (m *market) resolveMarket(o *launchPlan, _ launchRequest) error {
	if !m.sold(o.instanceType, o.subnet.Zone) {
		var elsewhere []string
		for i, z := range m.zones {
			if o.instanceType.zones[i] {
				elsewhere = append(elsewhere, z.Name)
			}
		}
		return protocol.Errorf("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s). "+
			"Please retry your request by not specifying an Availability Zone or choosing %s.", o.instanceType.Name, o.subnet.Zone, strings.Join(elsewhere, ", "))
	}
	if m.price(o.pool()) == 0 {
		return protocol.Errorf(
			"Unsupported",
			"The requested configuration is currently not supported. Please check the documentation for supported configurations.",
		)
	}
	return nil
}

func (n *network) resolveGroups(o *launchPlan, q launchRequest) error {
	if len(q.data.SecurityGroups) > 0 {
		return combination("The parameter groupName cannot be used with the parameter subnet")
	}
	var err error
	o.groups, err = n.groupsIn(o.subnet, q.data.SecurityGroupIDs)
	return err
}

// groupsIn looks up security groups for a subnet; none given means the default group of its VPC.
func (n *network) groupsIn(s *Subnet, ids []string) ([]*SecurityGroup, error) {
	if len(ids) == 0 {
		return []*SecurityGroup{
			find(n.groups, func(g *SecurityGroup) bool { return g.VPCID == s.VPCID && g.Name == defaultGroup }),
		}, nil
	}
	var groups []*SecurityGroup
	for _, id := range ids {
		if err := groupIDs().check(id); err != nil {
			return nil, err
		}
		g := n.group(id)
		switch {
		case g == nil:
			return nil, groupIDs().absent(id)
		case g.VPCID != s.VPCID:
			return nil, protocol.Errorf("InvalidParameter", "Security group %s and subnet %s belong to different networks.", id, s.ID)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func (c *Config) resolveProfile(o *launchPlan, q launchRequest) error {
	spec := q.data.Profile
	if spec == nil || spec.Name == "" && spec.ARN == "" {
		return nil
	}
	name, parameter, value := spec.Name, "name", spec.Name
	if spec.ARN != "" {
		name, parameter, value = spec.ARN[strings.LastIndex(spec.ARN, "/")+1:], "arn", spec.ARN
	}
	var profile InstanceProfile
	var found bool
	if c.Profiles != nil {
		profile, found = c.Profiles.InstanceProfile(name)
	}
	heard := c.Clock.Now().Add(-c.Timing.ProfileVisible)
	if !found || profile.Created.After(heard) || spec.ARN != "" && spec.ARN != profile.ARN {
		return invalidValue("Value (%s) for parameter iamInstanceProfile.%s is invalid. Invalid IAM Instance Profile %s",
			value, parameter, pick(parameter == "arn", "ARN", "name"))
	}
	if profile.RoleARN == "" || profile.RoleChanged.After(heard) {
		return invalidValue(`IAM Instance Profile "%s" has no associated IAM Roles`, profile.ARN)
	}
	o.profile = &profile
	return nil
}

func (e *EC2) resolvePlacement(o *launchPlan, q launchRequest) error {
	p := q.data.Placement
	switch {
	case p == nil:
		return nil
	case p.Tenancy == "host":
		return protocol.Errorf("UnsupportedOperation", "The simulator has no dedicated hosts")
	case p.Tenancy == "dedicated" && o.instanceType.Burstable && strings.HasPrefix(o.instanceType.Name, "t2."):
		return protocol.Errorf(
			"Unsupported",
			"The requested configuration is currently not supported. Please check the documentation for supported configurations.",
		)
	}
	return e.resolveGroup(o, p)
}

// resolveDisks lays the requested block devices over those of the image.
func resolveDisks(o *launchPlan, q launchRequest) error {
	for _, d := range o.image.Disks {
		o.disks = append(
			o.disks,
			plannedDisk{device: d.Device, snapshot: d.SnapshotID, kind: "gp3", sizeGiB: d.SizeGiB, deletes: true, encrypted: o.image.encrypted},
		)
	}
	for _, spec := range q.data.Disks {
		at := slices.IndexFunc(o.disks, func(d plannedDisk) bool { return d.device == spec.Device })
		if spec.None != nil {
			if at >= 0 {
				o.disks = slices.Delete(o.disks, at, at+1)
			}
			continue
		}
		if spec.EBS == nil {
			continue // an instance store device: comes with the type anyway
		}
		if at < 0 {
			o.disks = append(o.disks, plannedDisk{device: spec.Device, kind: "gp2", deletes: true})
			at = len(o.disks) - 1
		}
		if err := o.disks[at].apply(*spec.EBS); err != nil {
			return err
		}
	}
	return nil
}

func (d *plannedDisk) apply(s ebsSpec) error {
	if s.Size != nil {
		if d.snapshot != "" && s.Snapshot == "" && *s.Size < d.sizeGiB {
			return protocol.Errorf(
				"InvalidBlockDeviceMapping",
				"Volume of size %dGB is smaller than snapshot '%s', expect size>= %dGB",
				*s.Size,
				d.snapshot,
				d.sizeGiB,
			)
		}
		d.sizeGiB = *s.Size
	}
	if s.Snapshot != "" {
		d.snapshot = s.Snapshot
	}
	if d.sizeGiB == 0 {
		return protocol.Errorf("MissingParameter", "The request must contain the parameter size or snapshotId")
	}
	if s.Type != "" {
		d.kind = s.Type
	}
	if s.IOPS != nil {
		d.iops = *s.IOPS
	}
	if s.Throughput != nil {
		d.throughput = *s.Throughput
	}
	d.encrypted = d.encrypted || s.Encrypted != nil && *s.Encrypted || s.KMSKey != ""
	if s.DeleteOnTermination != nil {
		d.deletes = *s.DeleteOnTermination
	}
	return nil
}
