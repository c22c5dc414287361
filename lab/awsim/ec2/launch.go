package ec2

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// batch is what the instances of one launch share.
type batch struct {
	reservation string
	token       string
	now         time.Time
	count       int // launched so far
}

// launch takes capacity and addresses for one instance and puts it into the pending state. The lock must be held; the
// caller arms the timer.
func (e *EC2) launch(o *launchPlan, b *batch) (*instanceRecord, error) {
	reserved, err := e.capacity(o, 1, b.now)
	if err != nil {
		return nil, err
	}
	nics, err := e.attach(o)
	if err != nil {
		return nil, err
	}
	e.counter++
	r := &instanceRecord{
		order: o, place: fmt.Sprintf("%016x", e.counter), reservation: b.reservation, token: b.token, index: b.count, nics: nics,
		partition: e.fleet.partition(o),
		visible:   b.now.Add(e.visibleAfter()),
		Instance:  e.instance(o, nics[0].ip, b.now),
	}
	b.count++
	if reserved == nil {
		e.pools.take(o.pool())
	} else {
		reserved.used++
		r.CapacityReservationID = reserved.ID
	}
	if market := o.marketType(); market == capacityBlock || market == interruptible {
		r.Lifecycle = market
	}
	if o.lifecycle == spotLifecycle {
		r.Lifecycle = spotLifecycle
		r.spotRequest = "sir-" + strings.TrimPrefix(e.newID("s"), "s-0")[:8]
	}
	for _, nic := range nics {
		if nic.public {
			r.publicIP = e.publicIP()
		}
	}
	e.attachDisks(r, o, b.now)
	e.fleet.add(r)
	return e.enterState(r, Pending, b.now), nil
}

// capacity finds room for n instances: in a reservation, which it returns, or, if that is nil, in the pool of the
// order.
func (e *EC2) capacity(o *launchPlan, n int, now time.Time) (*reservation, error) {
	if err := e.fleet.spreadFull(o, n); err != nil {
		return nil, err
	}
	r, err := e.reserve(o, n, now)
	if err != nil || r != nil {
		return r, err
	}
	return nil, e.shortage(o, n)
}

// hostnameType is how instances of the plan are named: as the launch states, or as the subnet does.
func (o *launchPlan) hostnameType() string {
	if o.data.DNS != nil && o.data.DNS.HostnameType != "" {
		return o.data.DNS.HostnameType
	}
	return cmp.Or(o.subnet.HostnameType, ipName)
}

// instance returns the Instance of a launch plan.
func (e *EC2) instance(o *launchPlan, ip netip.Addr, now time.Time) Instance {
	i := Instance{
		ID: e.newID("i"), Type: o.instanceType.Name, Zone: o.subnet.Zone, ZoneID: e.cfg.zoneID(o.subnet.Zone), VPCID: o.subnet.VPCID,
		SubnetID: o.subnet.ID, PrivateIP: ip.String(), PrivateDNSName: privateDNSName(e.cfg.Region, ip.String()), ImageID: o.image.ID,
		Architecture: o.image.Architecture, UserData: o.userData, Tags: o.tags.instance, LaunchedAt: now,
		VCPUs: o.vcpus(), MemoryMiB: o.instanceType.MemoryMiB, GPUs: o.instanceType.GPUs, Neuron: o.instanceType.Neuron,
		IPv4PerENI: o.instanceType.IPv4PerENI, LocalDiskGB: o.instanceType.Disks.TotalGB,
	}
	if o.hostnameType() == resourceName {
		i.PrivateDNSName = resourceDNSName(e.cfg.Region, i.ID)
	}
	for _, card := range o.instanceType.NetworkCards {
		if card.Index == o.instanceType.DefaultCard {
			i.MaxENIs = card.MaxENIs
		}
	}
	for _, n := range o.nics {
		if strings.HasPrefix(n.kind, "efa") {
			i.EFAs++
		}
	}
	for _, g := range o.groups {
		i.SecurityGroupIDs = append(i.SecurityGroupIDs, g.ID)
	}
	for _, d := range o.disks {
		if d.device == o.image.RootDevice {
			i.RootDiskGiB = d.sizeGiB
		}
	}
	if o.profile != nil {
		i.InstanceProfileARN, i.RoleARN = o.profile.ARN, o.profile.RoleARN
	}
	return i
}

// shortage returns why the capacity pool of a launch plan does not have n more instances.
func (e *EC2) shortage(o *launchPlan, n int) error {
	if err := e.withinQuota(o, n); err != nil {
		return err
	}
	if err := e.pools.failure(o.pool()); err != nil {
		return err
	}
	if left, limited := e.pools.left(o.pool()); limited && left < n {
		return e.market.noCapacity(o)
	}
	return nil
}

// noCapacity words the lack of capacity of a pool.
func (m *market) noCapacity(o *launchPlan) error {
	if o.lifecycle == spotLifecycle {
		return protocol.Errorf(
			"InsufficientInstanceCapacity",
			"There is no Spot capacity available that matches your request.",
		).WithStatus(
			500,
		)
	}
	var elsewhere []string
	for i, z := range m.zones {
		if o.instanceType.zones[i] && z.Name != o.subnet.Zone {
			elsewhere = append(elsewhere, z.Name)
		}
	}
	return protocol.Errorf("InsufficientInstanceCapacity",
		"We currently do not have sufficient %[1]s capacity in the Availability Zone you requested (%[2]s). "+
			"Our system will be working on provisioning additional capacity. You can currently get %[1]s capacity by not specifying an "+
			"Availability Zone in your request or choosing %[3]s.", o.instanceType.Name, o.subnet.Zone,
		strings.Join(elsewhere, ", ")).WithStatus(500)
}

// publicIP hands out an address from Amazon's ranges.
func (e *EC2) publicIP() string {
	e.counter++
	n := e.market.roll("public", fmt.Sprint(e.counter))
	return fmt.Sprintf("54.%d.%d.%d", 160+n%64, n>>8%256, 1+n>>16%254)
}

// volume is an EBS volume; it is never modified once others can see it.
type volume struct {
	plannedDisk
	id       string
	zone     string
	created  time.Time
	instance string // empty = not attached
	attached time.Time
	tags     map[string]string
}

func (e *EC2) attachDisks(r *instanceRecord, o *launchPlan, now time.Time) {
	for _, d := range o.disks {
		v := &volume{
			plannedDisk: d,
			id:          e.newID("vol"),
			zone:        o.subnet.Zone,
			created:     now,
			instance:    r.ID,
			attached:    now,
			tags:        o.tags.volume,
		}
		e.volumes[v.id] = v
		r.volumes = append(r.volumes, v.id)
	}
}

// detachDisks deletes an instance's volumes, or leaves them behind as they were informed. The lock must be held.
func (e *EC2) detachDisks(r *instanceRecord) {
	for _, id := range r.volumes {
		old := e.volumes[id]
		switch {
		case old == nil:
		case old.deletes:
			delete(e.volumes, id)
		default:
			left := *old
			left.instance, left.attached = "", time.Time{}
			e.volumes[id] = &left
		}
	}
	for _, v := range r.joined {
		if e.volumes[v.id] != nil {
			e.release(v.id)
		}
	}
}

// newBatch begins a launch of instances that share a reservation. The lock must be held.
func (e *EC2) newBatch(token string, now time.Time) *batch {
	return &batch{reservation: e.newID("r"), token: token, now: now}
}

// idsOf returns the IDs of records.
func idsOf(records []*instanceRecord) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	return ids
}
