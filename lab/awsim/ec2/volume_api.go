package ec2

import (
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func volumeIDs() idRules {
	return idRules{prefix: "vol", malformed: "InvalidParameterValue", notFound: "InvalidVolume.NotFound", missing: func(ids []string) string {
		if len(ids) == 1 {
			return "The volume '" + ids[0] + "' does not exist."
		}
		return "The volumes '" + strings.Join(ids, ", ") + "' do not exist."
	}}
}

type describeVolumesInput struct {
	listInput
	IDs            []string `query:"VolumeId"`
	IncludeManaged bool     `query:"IncludeManagedResources"`
}

type describeVolumesOutput struct {
	Volumes []volumeInfo `xml:"volumeSet>item"`
	Next    *string      `xml:"nextToken"`
}

type volumeInfo struct {
	ID          string             `xml:"volumeId"`
	Size        int                `xml:"size"`
	Snapshot    string             `xml:"snapshotId"`
	Zone        string             `xml:"availabilityZone"`
	ZoneID      string             `xml:"availabilityZoneId"`
	Status      string             `xml:"status"`
	Created     string             `xml:"createTime"`
	Attachments []volumeAttachment `xml:"attachmentSet>item"`
	Tags        []tag              `xml:"tagSet>item"`
	Type        string             `xml:"volumeType"`
	IOPS        int                `xml:"iops,omitempty"`
	Throughput  int                `xml:"throughput,omitempty"`
	Encrypted   bool               `xml:"encrypted"`
	MultiAttach bool               `xml:"multiAttachEnabled"`
}

type volumeAttachment struct {
	VolumeID string `xml:"volumeId"`
	Instance string `xml:"instanceId"`
	Device   string `xml:"device"`
	Status   string `xml:"status"`
	Attached string `xml:"attachTime"`
	Deletes  bool   `xml:"deleteOnTermination"`
}

// status of the volume as a whole.
func (v *volume) status() string { return pick(v.instance != "", "in-use", "available") }

// performance returns IOPS and MiB/s: what was requested, or what the type gives.
func (v *volume) performance() (iops, throughput int) {
	iops, throughput = v.iops, v.throughput
	switch {
	case v.kind == "gp3" && iops == 0:
		iops = 3000
	case v.kind == "gp2":
		iops = min(16000, max(100, 3*v.sizeGiB))
	}
	if v.kind == "gp3" && throughput == 0 {
		throughput = 125
	}
	return iops, throughput
}

func (e *EC2) describeVolumes(_ *protocol.Request, in *describeVolumesInput) (*describeVolumesOutput, error) {
	e.applyDueTransitions()
	all := locked(e, func() []*volume {
		list := make([]*volume, 0, len(e.volumes))
		for _, v := range e.volumes {
			list = append(list, v)
		}
		return list
	})
	attached := func(get func(*volume) string) func(*volume) []string {
		return one(func(v *volume) string {
			if v.instance == "" {
				return ""
			}
			return get(v)
		})
	}
	n := resourceKind[*volume]{
		id: func(v *volume) string { return v.id }, tags: func(v *volume) map[string]string { return v.tags },
		ids: volumeIDs(), minResults: 5, maxResults: 1000, idsExcludePages: true,
		properties: properties[*volume]{
			"attachment.delete-on-termination": attached(func(v *volume) string { return strconv.FormatBool(v.deletes) }),
			"attachment.device":                attached(func(v *volume) string { return v.device }),
			"attachment.instance-id":           attached(func(v *volume) string { return v.instance }),
			"attachment.status":                attached(func(*volume) string { return "attached" }),
			"availability-zone":                one(func(v *volume) string { return v.zone }),
			"create-time":                      one(func(v *volume) string { return stamp(v.created) }),
			"encrypted":                        flag(func(v *volume) bool { return v.encrypted }),
			"size":                             func(v *volume) []string { return []string{strconv.Itoa(v.sizeGiB)} },
			"snapshot-id":                      one(func(v *volume) string { return v.snapshot }),
			"status":                           one((*volume).status),
			"volume-id":                        one(func(v *volume) string { return v.id }),
			"volume-type":                      one(func(v *volume) string { return v.kind }),
		},
	}
	p, err := n.list(in.listInput, in.IDs, all)
	if err != nil {
		return nil, err
	}
	out := &describeVolumesOutput{Next: p.next}
	for _, v := range p.items {
		out.Volumes = append(out.Volumes, e.cfg.showVolume(v))
	}
	return out, nil
}

func (c *Config) showVolume(v *volume) volumeInfo {
	info := volumeInfo{
		ID: v.id, Size: v.sizeGiB, Snapshot: v.snapshot, Zone: v.zone, ZoneID: c.zoneID(v.zone), Status: v.status(), Created: stamp(v.created),
		Tags: tagList(v.tags), Type: v.kind, Encrypted: v.encrypted,
	}
	info.IOPS, info.Throughput = v.performance()
	if v.instance != "" {
		info.Attachments = []volumeAttachment{{
			VolumeID: v.id, Instance: v.instance, Device: v.device, Status: "attached", Attached: stamp(v.attached), Deletes: v.deletes,
		}}
	}
	return info
}
