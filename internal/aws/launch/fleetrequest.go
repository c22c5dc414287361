package launch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// fleet is a request for instances.
type fleet struct {
	capacityType string
	tags         map[string]string
	context      string
	// overlaid is true when a NodeOverlay sets the price of one of the types: EC2 must follow our order then.
	overlaid bool
	configs  []ec2types.FleetLaunchTemplateConfigRequest
	token    string
	// instances counts how many to launch; 0 means one.
	instances int
	// zones has the IDs of the zones of the overrides, by name.
	zones     map[string]string
	placement cloudprovider.Placement
	// reservations are the requested reservations by offering; all are of one market, that of sample.
	reservations map[catalog.OfferingKey]cloudprovider.Reservation
	sample       cloudprovider.Reservation
}

// fleetCall is a call with the facts that its response does not repeat.
type fleetCall struct {
	*ec2.CreateFleetInput
	capacityType string
	reservations map[catalog.OfferingKey]cloudprovider.Reservation
	zones        map[string]string // IDs by name
	placement    cloudprovider.Placement
}

func (f fleet) call() *fleetCall {
	return &fleetCall{
		CreateFleetInput: f.input(),
		capacityType:     f.capacityType,
		reservations:     f.reservations,
		zones:            f.zones,
		placement:        f.placement,
	}
}

func (f fleet) input() *ec2.CreateFleetInput {
	in := &ec2.CreateFleetInput{
		Type:                  ec2types.FleetTypeInstant,
		ClientToken:           aws.String(f.token),
		LaunchTemplateConfigs: f.configs,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity:       aws.Int32(int32(max(f.instances, 1))),
			DefaultTargetCapacityType: target(f.capacityType, f.sample),
		},
		TagSpecifications: []ec2types.TagSpecification{
			{ResourceType: ec2types.ResourceTypeInstance, Tags: instance.Tags(f.tags)},
			{ResourceType: ec2types.ResourceTypeVolume, Tags: instance.Tags(f.tags)},
			{ResourceType: ec2types.ResourceTypeFleet, Tags: instance.Tags(f.tags)},
		},
	}
	if f.context != "" {
		in.Context = aws.String(f.context)
	}
	if f.capacityType == karpv1.CapacityTypeSpot {
		strategy := ec2types.SpotAllocationStrategyPriceCapacityOptimized
		if f.overlaid {
			strategy = ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized
		}
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: strategy}
		return in
	}
	switch in.TargetCapacitySpecification.DefaultTargetCapacityType {
	case ec2types.DefaultTargetCapacityTypeCapacityBlock:
		return in
	case ec2types.DefaultTargetCapacityTypeReservedCapacity:
		in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{
			ReservationTypes: []ec2types.FleetReservationType{ec2types.FleetReservationTypeInterruptibleCapacityReservation},
		}
		return in
	}
	strategy := ec2types.FleetOnDemandAllocationStrategyLowestPrice
	if f.overlaid {
		strategy = ec2types.FleetOnDemandAllocationStrategyPrioritized
	}
	in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: strategy}
	return in
}

// instancesOf returns the instances in a response, by ID. What the response leaves out comes from the request.
func instancesOf(in *fleetCall, out *ec2.CreateFleetOutput) (all []cloudprovider.Instance) {
	for _, i := range out.Instances {
		launched := cloudprovider.Instance{
			Type:         string(i.InstanceType),
			Zone:         aws.ToString(i.AvailabilityZone),
			ZoneID:       aws.ToString(i.AvailabilityZoneId),
			SubnetID:     aws.ToString(i.SubnetId),
			CapacityType: in.capacityType,
			State:        cloudprovider.Pending,
		}
		if o := overrideOf(i.LaunchTemplateAndOverrides); o != nil {
			fill(&launched.Type, string(o.InstanceType))
			fill(&launched.Zone, aws.ToString(o.AvailabilityZone))
			fill(&launched.SubnetID, aws.ToString(o.SubnetId))
			fill(&launched.ImageID, aws.ToString(o.ImageId))
		}
		fillFromRequest(&launched, in.CreateFleetInput)
		launched.Reservation = in.reservations[reservedKey(launched.Type, launched.Zone)]
		for _, id := range i.InstanceIds {
			launched.ID = id
			all = append(all, launched)
		}
	}
	slices.SortFunc(all, func(a, b cloudprovider.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func fillFromRequest(i *cloudprovider.Instance, in *ec2.CreateFleetInput) {
	for _, config := range in.LaunchTemplateConfigs {
		for _, o := range config.Overrides {
			if string(o.InstanceType) == i.Type && (i.Zone == "" || i.Zone == aws.ToString(o.AvailabilityZone)) {
				fill(&i.Zone, aws.ToString(o.AvailabilityZone))
				fill(&i.SubnetID, aws.ToString(o.SubnetId))
				fill(&i.ImageID, aws.ToString(o.ImageId))
				return
			}
		}
	}
}

func overrideOf(l *ec2types.LaunchTemplateAndOverridesResponse) *ec2types.FleetLaunchTemplateOverrides {
	if l == nil {
		return nil
	}
	return l.Overrides
}

// Failure is the error of a response for one requested offering.
type Failure struct {
	Code, Message  string
	InstanceType   string
	Zone, SubnetID string
	// ZoneID is empty for a zone that was not requested.
	ZoneID       string
	CapacityType string
	// Reservation is the requested reservation; empty if none was.
	Reservation string
	// Placement is the requested placement.
	Placement cloudprovider.Placement
	// implied by another failure.
	implied bool
}

func failures(in *fleetCall, out *ec2.CreateFleetOutput) []Failure {
	all := make([]Failure, 0, len(out.Errors))
	for _, e := range out.Errors {
		f := Failure{
			Code:         aws.ToString(e.ErrorCode),
			Message:      aws.ToString(e.ErrorMessage),
			CapacityType: in.capacityType,
			Placement:    in.placement,
		}
		if o := overrideOf(e.LaunchTemplateAndOverrides); o != nil {
			f.InstanceType = string(o.InstanceType)
			f.Zone = aws.ToString(o.AvailabilityZone)
			f.ZoneID = in.zones[f.Zone]
			f.SubnetID = aws.ToString(o.SubnetId)
			f.Reservation = in.reservations[reservedKey(f.InstanceType, f.Zone)].ID
		}
		all = append(all, f)
	}
	for _, f := range all {
		if spreadGroupFull(f) {
			all = append(all, in.allOfferings(f)...)
		}
	}
	return all
}

// spreadGroupFull reports whether a spread placement group accepts no more instances in a zone, of any type.
func spreadGroupFull(f Failure) bool {
	return f.Placement.GroupID != "" && f.Reservation == "" && f.Zone != "" &&
		strings.Contains(f.Message, "limit of instances in this spread placement group")
}

// allOfferings returns the failure f for every requested offering in the zone of f, or in any zone if that is empty.
func (in *fleetCall) allOfferings(f Failure) (all []Failure) {
	f.implied = true
	zone := f.Zone
	for _, config := range in.LaunchTemplateConfigs {
		for _, o := range config.Overrides {
			if name := aws.ToString(o.AvailabilityZone); zone == "" || zone == name {
				f.InstanceType, f.Zone, f.ZoneID = string(o.InstanceType), name, in.zones[name]
				f.Reservation = in.reservations[reservedKey(f.InstanceType, f.Zone)].ID
				all = append(all, f)
			}
		}
	}
	return all
}

// scope is the offerings that are unavailable according to the failure.
func (f Failure) scope() unavailableofferings.Scope {
	o := unavailableofferings.Scope{
		OfferingKey:    catalog.OfferingKey{InstanceType: f.InstanceType, Zone: f.Zone, CapacityType: f.CapacityType},
		PlacementGroup: f.Placement.GroupID,
	}
	if f.Placement.Partition > 0 {
		o.Partition = strconv.Itoa(f.Placement.Partition)
	}
	return o
}

// markUnavailable records what the failures show about capacity. It calls refused for each reservation that EC2
// launched nothing into, with the error code, and exhausted for each subnet without addresses.
func markUnavailable(
	all []Failure,
	memory *unavailableofferings.Cache,
	refused func(reservation, code string),
	exhausted func(subnet string),
) {
	for _, f := range all {
		switch {
		case f.Code == awserrors.SpotRoleDenied:
			memory.MarkCapacityType(karpv1.CapacityTypeSpot)
		case !awserrors.Unfulfillable(f.Code) && !f.implied:
		default:
			if f.Reservation != "" {
				refused(f.Reservation, f.Code)
			} else if f.InstanceType != "" && f.Zone != "" {
				memory.Mark(f.scope())
			}
			if f.Code == awserrors.SubnetFull && f.SubnetID != "" {
				memory.MarkSubnet(f.SubnetID)
				exhausted(f.SubnetID)
			}
		}
	}
}

// failureError is the error for a response without an instance: an InsufficientCapacityError if all failures are about
// capacity, else a CreateError.
func failureError(all []Failure) error {
	if len(all) == 0 {
		return &cloudprovider.CreateError{Reason: awserrors.LaunchFailed, Message: "EC2 returned neither an instance nor an error"}
	}
	capacity := !slices.ContainsFunc(all, func(f Failure) bool {
		return !awserrors.Unfulfillable(f.Code) && f.Code != awserrors.SpotRoleDenied
	})
	text := describe(all)
	if capacity {
		if slices.ContainsFunc(all, func(f Failure) bool { return f.Code == awserrors.SpotRoleDenied }) {
			text = awserrors.ReasonOf(awserrors.SpotRoleDenied).Hint + ": " + text
		}
		return &cloudprovider.InsufficientCapacityError{Err: errors.New(text)}
	}
	return createError(errors.New(text))
}

// rejectionError is the error for a call that EC2 rejected as a whole.
func rejectionError(a fleetResult) error {
	if code := awserrors.Code(a.err); awserrors.Unfulfillable(code) || code == awserrors.SpotRoleDenied {
		return &cloudprovider.InsufficientCapacityError{Err: fmt.Errorf("create fleet: %w", awserrors.WithoutRequestIDs(a.err))}
	}
	return createError(fmt.Errorf("create fleet: %w", a.err))
}

// createError derives reason and message from the text of an error.
func createError(err error) *cloudprovider.CreateError {
	reason := awserrors.ReasonOf(err.Error())
	message := awserrors.WithoutRequestIDs(err).Error()
	if reason.Hint != "" {
		message = reason.Hint + ": " + message
	}
	return &cloudprovider.CreateError{Reason: reason.Code, Message: message, Err: err}
}

// maxShownFailures limits how many different failures a message lists, so that it fits into a condition and stays readable.
const maxShownFailures = 4

// describe lists each kind of failure once, with the number of its offerings and the first of them.
func describe(all []Failure) string {
	var order []string
	where := map[string][]string{}
	for _, f := range all {
		if f.implied {
			continue
		}
		what := fmt.Sprintf("%s: %s", f.Code, f.Message)
		if _, seen := where[what]; !seen {
			order = append(order, what)
		}
		where[what] = append(where[what], strings.Trim(f.InstanceType+"/"+f.Zone, "/"))
	}
	parts := make([]string, 0, maxShownFailures)
	for i, what := range order {
		if i == maxShownFailures {
			parts = append(parts, fmt.Sprintf("and %d more kinds of errors", len(order)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s (%d offerings, first %s)", what, len(where[what]), where[what][0]))
	}
	return strings.Join(parts, "; ")
}
