package ec2

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func instanceIDs() idRules {
	return idRules{
		prefix:    "i",
		malformed: "InvalidInstanceID.Malformed",
		notFound:  "InvalidInstanceID.NotFound",
		missing:   does("instance"),
	}
}

type describeInstancesInput struct {
	listInput
	IDs            []string `query:"InstanceId"`
	IncludeManaged bool     `query:"IncludeManagedResources"`
}

type describeInstancesOutput struct {
	Reservations []*reservationInfo `xml:"reservationSet>item"`
	Next         *string            `xml:"nextToken"`
}

func (e *EC2) describeInstances(_ *protocol.Request, in *describeInstancesInput) (*describeInstancesOutput, error) {
	p, err := e.cfg.instanceNoun().list(in.listInput, in.IDs, e.visible())
	if err != nil {
		return nil, err
	}
	reservations, err := e.cfg.showReservations(p.items)
	return &describeInstancesOutput{Reservations: reservations, Next: p.next}, err
}

// visible returns the instances that the Describe calls know by now, in the order of their launch.
func (e *EC2) visible() []*instanceRecord {
	now := e.applyDueTransitions()
	all := locked(e, func() []*instanceRecord { return e.fleet.list() })
	return slices.DeleteFunc(all, func(r *instanceRecord) bool { return now.Before(r.visible) })
}

// showReservations groups instances by the call that launched them.
func (c *Config) showReservations(records []*instanceRecord) ([]*reservationInfo, error) {
	var list []*reservationInfo
	byID := map[string]*reservationInfo{}
	for _, r := range records {
		group := byID[r.reservation]
		if group == nil {
			group = &reservationInfo{ID: r.reservation, Owner: c.AccountID}
			byID[r.reservation] = group
			list = append(list, group)
		}
		text, err := c.xml(r)
		if err != nil {
			return nil, err
		}
		group.Instances = append(group.Instances, text)
	}
	return list, nil
}

// instanceNoun knows the filters of DescribeInstances.
func (c *Config) instanceNoun() resourceKind[*instanceRecord] {
	all := c.ownProperties()
	maps.Copy(all, c.networkProperties())
	maps.Copy(all, c.shownProperties())
	return resourceKind[*instanceRecord]{
		id: func(r *instanceRecord) string { return r.ID }, order: func(r *instanceRecord) string { return r.place },
		tags: func(r *instanceRecord) map[string]string { return r.Tags },
		ids:  instanceIDs(), minResults: 5, maxResults: 1000, idsExcludePages: true,
		properties: all,
	}
}

// ownProperties are those that an instance has from its launch, or its state.
func (c *Config) ownProperties() properties[*instanceRecord] {
	return properties[*instanceRecord]{
		"architecture":                   one(func(r *instanceRecord) string { return r.Architecture }),
		"availability-zone":              one(func(r *instanceRecord) string { return r.Zone }),
		"availability-zone-id":           one(func(r *instanceRecord) string { return r.ZoneID }),
		"block-device-mapping.volume-id": func(r *instanceRecord) []string { return r.volumes },
		"client-token":                   one(func(r *instanceRecord) string { return r.token }),
		"capacity-reservation-id":        one(func(r *instanceRecord) string { return r.CapacityReservationID }),
		"hypervisor":                     func(*instanceRecord) []string { return []string{"xen"} }, // so EC2 states of Nitro too
		"virtualization-type":            func(*instanceRecord) []string { return []string{"hvm"} },
		"metadata-options.http-tokens":   one(func(r *instanceRecord) string { return showMetadata(r.order.data.Metadata, r.State).Tokens }),
		"iam-instance-profile.arn":       one(func(r *instanceRecord) string { return r.InstanceProfileARN }),
		"iam-instance-profile.name":      one(func(r *instanceRecord) string { return lastSegment(r.InstanceProfileARN) }),
		"image-id":                       one(func(r *instanceRecord) string { return r.ImageID }),
		"instance-id":                    one(func(r *instanceRecord) string { return r.ID }),
		"instance-lifecycle":             one(func(r *instanceRecord) string { return r.Lifecycle }),
		"instance-state-code":            func(r *instanceRecord) []string { return []string{strconv.Itoa(stateOf(r.State).Code)} },
		"instance-state-name":            one(func(r *instanceRecord) string { return r.State }),
		"instance-type":                  one(func(r *instanceRecord) string { return r.Type }),
		"key-name":                       one(func(r *instanceRecord) string { return r.order.data.KeyName }),
		"launch-index":                   func(r *instanceRecord) []string { return []string{strconv.Itoa(r.index)} },
		"launch-time":                    one(launchTime),
		"owner-id":                       func(*instanceRecord) []string { return []string{c.AccountID} },
		"platform":                       one(func(r *instanceRecord) string { return r.order.image.Platform }),
		"reservation-id":                 one(func(r *instanceRecord) string { return r.reservation }),
		"root-device-name":               one(func(r *instanceRecord) string { return r.order.image.RootDevice }),
		"root-device-type":               func(*instanceRecord) []string { return []string{"ebs"} },
		"spot-instance-request-id":       one(func(r *instanceRecord) string { return r.spotRequest }),
		"state-reason-code":              one(func(r *instanceRecord) string { return r.endedBy }),
	}
}

// networkProperties are those of its interfaces, most of which an instance that has terminated has no more.
func (c *Config) networkProperties() properties[*instanceRecord] {
	live := func(get func(*instanceRecord) string) func(*instanceRecord) []string {
		return one(func(r *instanceRecord) string {
			if r.State == Terminated {
				return ""
			}
			return get(r)
		})
	}
	groups := func(get func(*SecurityGroup) string) func(*instanceRecord) []string {
		return func(r *instanceRecord) (values []string) {
			for _, g := range r.order.groups {
				values = append(values, get(g))
			}
			return values
		}
	}
	nics := func(get func(nic) string) func(*instanceRecord) []string {
		return func(r *instanceRecord) (values []string) {
			for _, n := range r.nics {
				values = append(values, get(n))
			}
			return values
		}
	}
	return properties[*instanceRecord]{
		"dns-name":                   live(func(r *instanceRecord) string { return publicDNSName(c.Region, r.publicIP) }),
		"network-interface.group-id": groups(func(g *SecurityGroup) string { return g.ID }),
		"instance.group-id":          groups(func(g *SecurityGroup) string { return g.ID }),
		"instance.group-name":        groups(func(g *SecurityGroup) string { return g.Name }),
		"ipv6-address":               addresses6Of,
		"network-interface.ipv6-addresses.ipv6-address": addresses6Of,
		"ip-address":                                     live(func(r *instanceRecord) string { return r.publicIP }),
		"network-interface.network-interface-id":         nics(func(n nic) string { return n.id }),
		"network-interface.addresses.private-ip-address": nics(func(n nic) string { return ipText(n.ip) }),
		"network-interface.private-dns-name":             live(func(r *instanceRecord) string { return r.PrivateDNSName }),
		"network-interface.subnet-id":                    live(func(r *instanceRecord) string { return r.SubnetID }),
		"network-interface.vpc-id":                       live(func(r *instanceRecord) string { return r.VPCID }),
		"private-dns-name":                               live(func(r *instanceRecord) string { return r.PrivateDNSName }),
		"private-ip-address":                             live(func(r *instanceRecord) string { return r.PrivateIP }),
		"subnet-id":                                      live(func(r *instanceRecord) string { return r.SubnetID }),
		"vpc-id":                                         live(func(r *instanceRecord) string { return r.VPCID }),
	}
}

// shownProperties are those that take what is shown of the instance.
func (c *Config) shownProperties() properties[*instanceRecord] {
	shown := func(get func(instanceInfo) string) func(*instanceRecord) []string {
		return one(func(r *instanceRecord) string { return get(c.show(r)) })
	}
	placement := func(get func(placementInfo) string) func(*instanceRecord) []string {
		return shown(func(i instanceInfo) string { return get(i.Placement) })
	}
	return properties[*instanceRecord]{
		"capacity-reservation-specification.capacity-reservation-preference": shown(
			func(i instanceInfo) string { return i.Reservation.Preference },
		),
		"ebs-optimized":                                shown(func(i instanceInfo) string { return strconv.FormatBool(i.EBSOptimized) }),
		"enclave-options.enabled":                      shown(func(i instanceInfo) string { return strconv.FormatBool(i.Enclave.Enabled) }),
		"iam-instance-profile.id":                      shown(func(i instanceInfo) string { return profileID(i.Profile) }),
		"monitoring-state":                             shown(func(i instanceInfo) string { return i.Monitoring }),
		"platform-details":                             shown(func(i instanceInfo) string { return i.PlatformDetails }),
		"placement-partition-number":                   shown(func(i instanceInfo) string { return numberText(i.Placement.Partition) }),
		"reason":                                       shown(func(i instanceInfo) string { return i.Reason }),
		"usage-operation":                              shown(func(i instanceInfo) string { return i.UsageOperation }),
		"metadata-options.http-endpoint":               shown(func(i instanceInfo) string { return i.Metadata.Endpoint }),
		"metadata-options.http-put-response-hop-limit": shown(func(i instanceInfo) string { return strconv.Itoa(i.Metadata.HopLimit) }),
		"placement-group-name":                         placement(func(p placementInfo) string { return p.Group }),
		"tenancy":                                      placement(func(p placementInfo) string { return p.Tenancy }),
	}
}

func lastSegment(arn string) string { return arn[strings.LastIndexByte(arn, '/')+1:] }

func ipText(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return ip.String()
}

func addresses6Of(r *instanceRecord) (values []string) {
	for _, n := range r.nics {
		for _, ip := range n.six {
			values = append(values, ip.String())
		}
	}
	return values
}

func profileID(p *profileInfo) string {
	if p == nil {
		return ""
	}
	return p.ID
}

// numberText is empty for no number.
func numberText(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
