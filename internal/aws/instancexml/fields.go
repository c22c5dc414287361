package instancexml

import (
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Fields returns the fields of an instance that Lean decodes.
func Fields(i ec2types.Instance) ec2types.Instance {
	out := ec2types.Instance{
		InstanceId: i.InstanceId, ImageId: i.ImageId, SubnetId: i.SubnetId, InstanceType: i.InstanceType, LaunchTime: i.LaunchTime,
		InstanceLifecycle: i.InstanceLifecycle, SpotInstanceRequestId: i.SpotInstanceRequestId,
		CapacityReservationId: i.CapacityReservationId, Tags: i.Tags,
	}
	if i.State != nil {
		out.State = &ec2types.InstanceState{Name: i.State.Name}
	}
	if p := i.Placement; p != nil {
		out.Placement = &ec2types.Placement{
			AvailabilityZone: p.AvailabilityZone, AvailabilityZoneId: p.AvailabilityZoneId, GroupId: p.GroupId, Tenancy: p.Tenancy,
			PartitionNumber: p.PartitionNumber,
		}
	}
	if c := i.CapacityReservationSpecification; c != nil {
		out.CapacityReservationSpecification = &ec2types.CapacityReservationSpecificationResponse{
			CapacityReservationPreference: c.CapacityReservationPreference,
		}
	}
	for _, g := range i.SecurityGroups {
		out.SecurityGroups = append(out.SecurityGroups, ec2types.GroupIdentifier{GroupId: g.GroupId})
	}
	return out
}

// field is an element that is decoded.
type field int

const (
	none field = iota
	item
	nextToken
	reservationSet
	instancesSet
	instanceID
	imageID
	subnetID
	spotInstanceRequestID
	capacityReservationID
	instanceType
	instanceLifecycle
	launchTime
	instanceState
	stateName
	placement
	capacityReservationSpecification
	capacityReservationPreference
	groupSet
	tagSet
	availabilityZone
	availabilityZoneID
	groupID
	tenancy
	partitionNumber
	key
	value
)

// fields are the elements that are decoded in another.
type fields []namedField

type namedField struct {
	name  string
	field field
}

var (
	listFields        = fields{{"item", item}}
	responseFields    = fields{{"nextToken", nextToken}, {"reservationSet", reservationSet}}
	reservationFields = fields{{"instancesSet", instancesSet}}
	instanceFields    = fields{
		{"instanceId", instanceID},
		{"imageId", imageID},
		{"subnetId", subnetID},
		{"spotInstanceRequestId", spotInstanceRequestID},
		{"capacityReservationId", capacityReservationID},
		{"instanceType", instanceType},
		{"instanceLifecycle", instanceLifecycle},
		{"launchTime", launchTime},
		{"instanceState", instanceState},
		{"placement", placement},
		{"capacityReservationSpecification", capacityReservationSpecification},
		{"groupSet", groupSet},
		{"tagSet", tagSet},
	}
	stateFields     = fields{{"name", stateName}}
	placementFields = fields{
		{"availabilityZone", availabilityZone},
		{"availabilityZoneId", availabilityZoneID},
		{"groupId", groupID},
		{"tenancy", tenancy},
		{"partitionNumber", partitionNumber},
	}
	specificationFields = fields{{"capacityReservationPreference", capacityReservationPreference}}
	groupFields         = fields{{"groupId", groupID}}
	tagFields           = fields{{"key", key}, {"value", value}}
)

// find returns the field with a name; none if it is not decoded. The SDK ignores the case of names, and EC2 does not change it: a known
// name in another case is unusual.
func (f fields) find(name []byte) (field, error) {
	for _, known := range f {
		switch {
		case len(known.name) != len(name):
		case known.name == string(name):
			return known.field, nil
		case strings.EqualFold(known.name, string(name)):
			return none, errUnusual
		}
	}
	return none, nil
}
