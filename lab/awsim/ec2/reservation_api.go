package ec2

import (
	"fmt"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func reservationIDs() idRules {
	return idRules{
		prefix: "cr", malformed: "InvalidCapacityReservationId.Malformed", notFound: "InvalidCapacityReservationId.NotFound",
		missing: func(ids []string) string {
			return "The capacity reservation ID '" + strings.Join(ids, ", ") + "' does not exist"
		},
	}
}

type describeReservationsInput struct {
	listInput
	IDs []string `query:"CapacityReservationId"`
}

type describeReservationsOutput struct {
	Reservations []capacityReservationInfo `xml:"capacityReservationSet>item"`
	Next         *string                   `xml:"nextToken"`
}

// capacityReservationInfo is a reservation as DescribeCapacityReservations shows it.
type capacityReservationInfo struct {
	ID            string `xml:"capacityReservationId"`
	Owner         string `xml:"ownerId"`
	ARN           string `xml:"capacityReservationArn"`
	Zone          string `xml:"availabilityZone"`
	ZoneID        string `xml:"availabilityZoneId"`
	InstanceType  string `xml:"instanceType"`
	Platform      string `xml:"instancePlatform"`
	Tenancy       string `xml:"tenancy"`
	Total         int    `xml:"totalInstanceCount"`
	Available     int    `xml:"availableInstanceCount"`
	EBSOptimized  bool   `xml:"ebsOptimized"`
	State         string `xml:"state"`
	Created       string `xml:"createDate"`
	Start         string `xml:"startDate"`
	End           string `xml:"endDate,omitempty"`
	EndType       string `xml:"endDateType"`
	Criteria      string `xml:"instanceMatchCriteria"`
	Type          string `xml:"reservationType"`
	Interruptible bool   `xml:"interruptible"`
	Tags          []tag  `xml:"tagSet>item"`
	tags          map[string]string
}

func (c *Config) showReservation(r *reservation, now time.Time) capacityReservationInfo {
	shown := r.at(now)
	start := shown.Start
	if start.IsZero() {
		start = r.created
	}
	return capacityReservationInfo{
		ID: shown.ID, Owner: shown.OwnerID, Zone: shown.Zone, ZoneID: c.zoneID(shown.Zone), InstanceType: shown.InstanceType,
		ARN:      fmt.Sprintf("arn:aws:ec2:%s:%s:capacity-reservation/%s", c.Region, shown.OwnerID, shown.ID),
		Platform: "Linux/UNIX", Tenancy: "default", Total: shown.Total, Available: shown.Available, State: shown.State,
		Created: stamp(r.created), Start: stamp(start), End: stamp(shown.End), EndType: pick(shown.End.IsZero(), "unlimited", "limited"),
		Criteria: pick(shown.Targeted, "targeted", "open"), Type: pick(shown.Block, capacityBlock, "default"),
		Interruptible: shown.Interruptible, Tags: tagList(shown.Tags), tags: shown.Tags,
	}
}

func (e *EC2) describeCapacityReservations(_ *protocol.Request, in *describeReservationsInput) (*describeReservationsOutput, error) {
	now := e.applyDueTransitions()
	none := func(capacityReservationInfo) []string { return nil }
	n := resourceKind[capacityReservationInfo]{
		id:   func(r capacityReservationInfo) string { return r.ID },
		tags: func(r capacityReservationInfo) map[string]string { return r.tags },
		ids:  reservationIDs(), minResults: 1, maxResults: 1000, idsExcludePages: true,
		properties: properties[capacityReservationInfo]{
			"availability-zone":       one(func(r capacityReservationInfo) string { return r.Zone }),
			"end-date":                one(func(r capacityReservationInfo) string { return r.End }),
			"end-date-type":           one(func(r capacityReservationInfo) string { return r.EndType }),
			"instance-match-criteria": one(func(r capacityReservationInfo) string { return r.Criteria }),
			"instance-platform":       one(func(r capacityReservationInfo) string { return r.Platform }),
			"instance-type":           one(func(r capacityReservationInfo) string { return r.InstanceType }),
			"outpost-arn":             none,
			"owner-id":                one(func(r capacityReservationInfo) string { return r.Owner }),
			"placement-group-arn":     none,
			"start-date":              one(func(r capacityReservationInfo) string { return r.Start }),
			"state":                   one(func(r capacityReservationInfo) string { return r.State }),
			"tenancy":                 one(func(r capacityReservationInfo) string { return r.Tenancy }),
		},
	}
	all := locked(e, func() []capacityReservationInfo {
		out := make([]capacityReservationInfo, len(e.reservations))
		for i, r := range e.reservations {
			out[i] = e.cfg.showReservation(r, now)
		}
		return out
	})
	p, err := n.list(in.listInput, in.IDs, all)
	if err != nil {
		return nil, err
	}
	return &describeReservationsOutput{Reservations: p.items, Next: p.next}, nil
}
