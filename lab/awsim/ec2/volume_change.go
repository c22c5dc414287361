package ec2

import (
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type createVolumeInput struct {
	DryRun       bool               `query:"DryRun"`
	Zone         string             `query:"AvailabilityZone,required"`
	Size         int                `query:"Size"`
	Type         string             `query:"VolumeType"`
	IOPS         *int               `query:"Iops"`
	Throughput   *int               `query:"Throughput"`
	Encrypted    bool               `query:"Encrypted"`
	Tags         []tagSpecification `query:"TagSpecification"`
	ClientToken  string             `query:"ClientToken"`
	Snapshot     *unsupported       `query:"SnapshotId,unsupported"`
	KMSKey       *unsupported       `query:"KmsKeyId,unsupported"`
	MultiAttach  *unsupported       `query:"MultiAttachEnabled,unsupported"`
	OutpostARN   *unsupported       `query:"OutpostArn,unsupported"`
	Initializing *unsupported       `query:"VolumeInitializationRate,unsupported"`
}

// volumeSizes are the sizes that a type of volume can have, in GiB.
var volumeSizes = map[string][2]int{
	"gp2": {
		1,
		16384,
	}, "gp3": {1, 65536}, "io1": {4, 16384}, "io2": {4, 65536}, "st1": {125, 16384}, "sc1": {125, 16384}, "standard": {1, 1024},
}

func (e *EC2) createVolume(r *protocol.Request, in *createVolumeInput) (*volumeInfo, error) {
	if in.Type == "" {
		in.Type = "gp2"
	}
	sizes, known := volumeSizes[in.Type]
	switch {
	case !known:
		return nil, protocol.Errorf("UnknownVolumeType", "Unsupported volume type '%s' for volume creation.", in.Type)
	case in.Size == 0:
		return nil, missing("size/snapshot")
	case in.Size < sizes[0] || in.Size > sizes[1]:
		return nil, invalidValue("Volume of %dGiB is out of the range of %s volumes: %d to %dGiB.", in.Size, in.Type, sizes[0], sizes[1])
	}
	if err := checkSpecifications(in.Tags, "volume"); err != nil {
		return nil, err
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cfg.zoneID(in.Zone) == "" {
		return nil, protocol.Errorf("InvalidZone.NotFound", "The zone '%s' does not exist.", in.Zone)
	}
	err := r.Authorize(
		e.making(r.Action, "volume", tagsFor("volume", in.Tags), "ec2:AvailabilityZone", in.Zone, "ec2:VolumeType", in.Type)...)
	if err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return once(e, r, in.ClientToken, func() (*volumeInfo, error) {
		v := &volume{
			plannedDisk: plannedDisk{kind: in.Type, sizeGiB: in.Size, encrypted: in.Encrypted}, id: e.newID("vol"), zone: in.Zone, created: now,
			tags: tagsFor("volume", in.Tags),
		}
		if in.IOPS != nil {
			v.iops = *in.IOPS
		}
		if in.Throughput != nil {
			v.throughput = *in.Throughput
		}
		e.volumes[v.id] = v
		r.Touch(v.id)
		info := e.cfg.showVolume(v)
		return &info, nil
	})
}

type volumeInput struct {
	DryRun   bool   `query:"DryRun"`
	ID       string `query:"VolumeId,required"`
	Instance string `query:"InstanceId"`
	Device   string `query:"Device"`
	Force    bool   `query:"Force"`
}

// volume finds the volume of a request. The lock must be held.
func (e *EC2) volumeOf(in *volumeInput) (*volume, error) {
	if err := volumeIDs().check(in.ID); err != nil {
		return nil, err
	}
	v := e.volumes[in.ID]
	if v == nil {
		return nil, volumeIDs().absent(in.ID)
	}
	return v, nil
}

func (e *EC2) deleteVolume(r *protocol.Request, in *volumeInput) (*struct{}, error) {
	e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	v, err := e.volumeOf(in)
	if err != nil {
		return nil, err
	}
	if err := r.Authorize(e.onVolume(v)); err != nil {
		return nil, err
	}
	if v.instance != "" {
		return nil, protocol.Errorf("VolumeInUse", "Volume %s is currently attached to %s", v.id, v.instance)
	}
	if in.DryRun {
		return nil, dryRun()
	}
	delete(e.volumes, v.id)
	r.Touch(v.id)
	return nil, nil
}

func (e *EC2) attachVolume(r *protocol.Request, in *volumeInput) (*volumeAttachment, error) {
	if in.Instance == "" {
		return nil, missing("InstanceId")
	}
	if in.Device == "" {
		return nil, missing("Device")
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	v, err := e.volumeOf(in)
	if err != nil {
		return nil, err
	}
	i := e.fleet.get(in.Instance)
	if i == nil {
		return nil, instanceIDs().absent(in.Instance)
	}
	if err := r.Authorize(e.onVolume(v), e.onInstance(i)); err != nil {
		return nil, err
	}
	switch {
	case v.instance != "":
		return nil, protocol.Errorf("VolumeInUse", "%s is already attached to an instance", v.id)
	case i.State != Running && i.State != Stopped:
		return nil, protocol.Errorf("IncorrectState", "Instance '%s' is not 'running'.", i.ID)
	case v.zone != i.Zone:
		return nil, protocol.Errorf(
			"InvalidVolume.ZoneMismatch",
			"The volume '%s' is not in the same availability zone as instance '%s'",
			v.id,
			i.ID,
		)
	case taken(i, in.Device):
		return nil, invalidValue("Invalid value '%s' for unixDevice. Attachment point %s is already in use", in.Device, in.Device)
	}
	if in.DryRun {
		return nil, dryRun()
	}
	attached := *v
	attached.instance, attached.attached, attached.device, attached.deletes = i.ID, now, in.Device, false
	e.volumes[v.id] = &attached
	e.fleet.put(i, func(i *instanceRecord) { i.joined = append(slices.Clone(i.joined), &attached) })
	r.Touch(v.id, i.ID)
	return &volumeAttachment{VolumeID: v.id, Instance: i.ID, Device: in.Device, Status: "attached", Attached: stamp(now)}, nil
}

// taken reports whether an instance has a volume at a device.
func taken(i *instanceRecord, device string) bool {
	return slices.ContainsFunc(i.order.disks, func(d plannedDisk) bool { return d.device == device }) ||
		slices.ContainsFunc(i.joined, func(v *volume) bool { return v.device == device })
}

func (e *EC2) detachVolume(r *protocol.Request, in *volumeInput) (*volumeAttachment, error) {
	e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	v, err := e.volumeOf(in)
	if err != nil {
		return nil, err
	}
	needs := []protocol.RequiredPermission{e.onVolume(v)}
	if i := e.fleet.get(v.instance); i != nil {
		needs = append(needs, e.onInstance(i))
	}
	if err := r.Authorize(needs...); err != nil {
		return nil, err
	}
	switch {
	case v.instance == "":
		return nil, protocol.Errorf("IncorrectState", "Volume '%s' is in the 'available' state.", v.id)
	case in.Instance != "" && in.Instance != v.instance, in.Device != "" && in.Device != v.device:
		return nil, protocol.Errorf(
			"InvalidAttachment.NotFound",
			"The volume '%s' is not attached to instance '%s' as device '%s'.",
			v.id,
			in.Instance,
			in.Device,
		)
	}
	i := e.fleet.get(v.instance)
	if i != nil && i.State == Running && !slices.ContainsFunc(i.joined, func(j *volume) bool { return j.id == v.id }) {
		return nil, protocol.Errorf("OperationNotPermitted", "Unable to detach root volume '%s' from instance '%s'", v.id, v.instance)
	}
	if in.DryRun {
		return nil, dryRun()
	}
	was := *v
	e.release(v.id)
	if i != nil {
		e.fleet.put(i, func(i *instanceRecord) {
			i.joined = slices.DeleteFunc(slices.Clone(i.joined), func(j *volume) bool { return j.id == v.id })
		})
	}
	r.Touch(v.id)
	return &volumeAttachment{
		VolumeID: v.id,
		Instance: was.instance,
		Device:   was.device,
		Status:   "detached",
		Attached: stamp(was.attached),
	}, nil
}

// release makes a volume available. The lock must be held.
func (e *EC2) release(id string) {
	free := *e.volumes[id]
	free.instance, free.attached, free.device = "", time.Time{}, ""
	e.volumes[id] = &free
}

// Volume is what a lab sees of a volume.
type Volume struct {
	ID, Zone string
	SizeGiB  int
	// Instance that it is attached to; empty if none.
	Instance string
	Tags     map[string]string
}

// Volumes are all volumes, by ID.
func (e *EC2) Volumes() []Volume {
	e.applyDueTransitions()
	e.mu.RLock()
	defer e.mu.RUnlock()
	out := make([]Volume, 0, len(e.volumes))
	for _, v := range e.volumes {
		out = append(out, Volume{ID: v.id, Zone: v.zone, SizeGiB: v.sizeGiB, Instance: v.instance, Tags: v.tags})
	}
	slices.SortFunc(out, func(a, b Volume) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}
