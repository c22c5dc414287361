package ec2

import (
	"strconv"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type runInstancesInput struct {
	templateData
	DryRun       bool          `query:"DryRun"`
	ClientToken  string        `query:"ClientToken"`
	MinCount     *int          `query:"MinCount,required"`
	MaxCount     *int          `query:"MaxCount,required"`
	Template     *templateSpec `query:"LaunchTemplate"`
	SubnetID     string        `query:"SubnetId"`
	PrivateIP    string        `query:"PrivateIpAddress"`
	IPv6Count    *unsupported  `query:"Ipv6AddressCount,unsupported"`
	IPv6         *unsupported  `query:"Ipv6Address,unsupported"`
	PrimaryIPv6  *unsupported  `query:"EnablePrimaryIpv6,unsupported"`
	RAMDisk      *unsupported  `query:"RamdiskId,unsupported"`
	AddedByAdmin *unsupported  `query:"AdditionalInfo,unsupported"`
}

// templateSpec names a version of a launch template.
type templateSpec struct {
	templateRef
	Version  string `query:"Version"`
	UserData string `query:"LaunchTemplateSpecificationUserData"`
}

type reservationInfo struct {
	ID        string     `xml:"reservationId"`
	Owner     string     `xml:"ownerId"`
	Requester string     `xml:"requesterId,omitempty"`
	Instances []encoded  `xml:"instancesSet>item"`
	Groups    []groupRef `xml:"groupSet>item"`
}

// maxPerCall is how many instances a call may launch.
const maxPerCall = 1000

func (e *EC2) runInstances(r *protocol.Request, in *runInstancesInput) (*reservationInfo, error) {
	switch {
	case *in.MinCount < 1 || *in.MaxCount < *in.MinCount:
		return nil, invalidValue("Invalid value for instance count: minCount %d, maxCount %d", *in.MinCount, *in.MaxCount)
	case *in.MaxCount > maxPerCall:
		return nil, protocol.Errorf(
			"InstanceLimitExceeded",
			"You have requested more instances (%d) than your current limit of %d allows.",
			*in.MaxCount,
			maxPerCall,
		)
	}
	if err := in.templateData.check(); err != nil {
		return nil, err
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	q, err := e.templates.runRequest(in)
	if err != nil {
		return nil, err
	}
	o, err := e.resolve(q)
	if err != nil {
		return nil, err
	}
	if err := e.market.affordable(o); err != nil {
		return nil, err
	}
	if err := r.Authorize(e.launching(o, q)...); err != nil {
		return nil, err
	}
	if err := e.spotRole(r, o, in.DryRun); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return once(e, r, in.ClientToken, func() (*reservationInfo, error) {
		return e.run(r, o, e.newBatch(in.ClientToken, now), instanceCount{least: *in.MinCount, most: *in.MaxCount})
	})
}

// runRequest lays the parameters over the launch template that they name. The lock must be held.
func (lt *templates) runRequest(in *runInstancesInput) (launchRequest, error) {
	data := in.templateData
	q := launchRequest{data: &data, subnetID: in.SubnetID, privateIP: in.PrivateIP}
	if in.Template != nil {
		t, err := lt.find(in.Template.templateRef)
		if err != nil {
			return q, err
		}
		v, err := t.resolve(in.Template.Version)
		if err != nil {
			return q, err
		}
		data = v.data.overlaid(in.templateData)
		q.systemTags = templateTags(t, v)
	}
	if len(data.Interfaces) > 0 && in.SubnetID != "" {
		return q, combination("Network interfaces and an instance-level subnet ID may not be specified on the same request")
	}
	q.typ, q.imageID = data.InstanceType, data.ImageID
	if q.typ == "" {
		q.typ = "m1.small" // EC2's default, and as old as it looks
	}
	if data.Market != nil {
		switch data.Market.Type {
		case spotLifecycle:
			q.spot = true
			if err := data.Market.Spot.check(); err != nil {
				return q, err
			}
		case "", capacityBlock, interruptible:
		default:
			return q, protocol.Errorf("UnsupportedOperation", "The simulator does not support the market type %s", data.Market.Type)
		}
	}
	return q, nil
}

func templateTags(t *template, v *templateVersion) map[string]string {
	return map[string]string{"aws:ec2launchtemplate:id": t.id, "aws:ec2launchtemplate:version": strconv.Itoa(v.number)}
}

// instanceCount is MinCount and MaxCount of RunInstances.
type instanceCount struct{ least, most int }

// run launches between least and most instances of a launch plan, as many as capacity allows, or none. The lock must be
// held.
func (e *EC2) run(r *protocol.Request, o *launchPlan, b *batch, n instanceCount) (*reservationInfo, error) {
	if err := e.canLaunch(o, n.least, b.now); err != nil {
		return nil, err
	}
	var launched []*instanceRecord
	for len(launched) < n.most {
		i, err := e.launch(o, b)
		if err != nil && len(launched) == 0 {
			return nil, err
		}
		if err != nil {
			break // canLaunch found room for the least
		}
		launched = append(launched, i)
	}
	e.setTimer()
	r.Touch(idsOf(launched)...)
	shown, err := e.cfg.showReservations(launched)
	if err != nil {
		return nil, err
	}
	return shown[0], nil
}

// canLaunch returns why n instances of a launch plan cannot launch.
func (e *EC2) canLaunch(o *launchPlan, n int, now time.Time) error {
	if _, err := e.capacity(o, n, now); err != nil {
		return err
	}
	addrs := e.network.addrs[o.subnet.ID]
	if addrs.available() < n*o.addressesNeeded() {
		return noAddresses(o)
	}
	if blocks := o.prefixesNeeded(); blocks > 0 && addrs.prefixes() < n*blocks {
		return noBlocks()
	}
	if o.privateIP.IsValid() && (n > 1 || !addrs.isFree(o.privateIP)) {
		return protocol.Errorf("InvalidIPAddress.InUse", "Address %s is in use.", o.privateIP)
	}
	return nil
}

// overlaid returns the data with the fields that over sets replaced.
func (d templateData) overlaid(over templateData) templateData {
	set(&d.ImageID, over.ImageID)
	set(&d.InstanceType, over.InstanceType)
	set(&d.UserData, over.UserData)
	set(&d.KeyName, over.KeyName)
	set(&d.ShutdownBehavior, over.ShutdownBehavior)
	set(&d.Profile, over.Profile)
	set(&d.Placement, over.Placement)
	set(&d.Monitoring, over.Monitoring)
	set(&d.EBSOptimized, over.EBSOptimized)
	set(&d.Market, over.Market)
	set(&d.Metadata, over.Metadata)
	set(&d.CPU, over.CPU)
	set(&d.Credit, over.Credit)
	set(&d.Reservation, over.Reservation)
	set(&d.Enclave, over.Enclave)
	set(&d.Hibernation, over.Hibernation)
	set(&d.Maintenance, over.Maintenance)
	set(&d.DNS, over.DNS)
	set(&d.NoTermination, over.NoTermination)
	set(&d.NoStop, over.NoStop)
	set(&d.Bandwidth, over.Bandwidth)
	setList(&d.Disks, over.Disks)
	setList(&d.Interfaces, over.Interfaces)
	setList(&d.SecurityGroupIDs, over.SecurityGroupIDs)
	setList(&d.SecurityGroups, over.SecurityGroups)
	setList(&d.Tags, over.Tags)
	return d
}

func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}

func setList[T any](to *[]T, value []T) {
	if len(value) > 0 {
		*to = value
	}
}
