package ec2

import (
	"cmp"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type createReservationInput struct {
	DryRun       bool               `query:"DryRun"`
	InstanceType string             `query:"InstanceType,required"`
	Platform     string             `query:"InstancePlatform,required"`
	Zone         string             `query:"AvailabilityZone"`
	ZoneID       string             `query:"AvailabilityZoneId"`
	Count        int                `query:"InstanceCount,required"`
	End          *time.Time         `query:"EndDate"`
	EndType      string             `query:"EndDateType"`
	Criteria     string             `query:"InstanceMatchCriteria"`
	Tenancy      string             `query:"Tenancy"`
	EBSOptimized bool               `query:"EbsOptimized"`
	Ephemeral    bool               `query:"EphemeralStorage"`
	Tags         []tagSpecification `query:"TagSpecifications"`
	ClientToken  string             `query:"ClientToken"`

	Start          *unsupported `query:"StartDate,unsupported"`
	Commitment     *unsupported `query:"CommitmentDuration,unsupported"`
	Delivery       *unsupported `query:"DeliveryPreference,unsupported"`
	PlacementGroup *unsupported `query:"PlacementGroupArn,unsupported"`
	Outpost        *unsupported `query:"OutpostArn,unsupported"`
}

type createReservationOutput struct {
	Reservation capacityReservationInfo `xml:"capacityReservation"`
}

// How a reservation expires: see checkEnd.
const (
	endUnlimited = "unlimited"
	endLimited   = "limited"
)

// checkEnd rejects an end without its kind, and the reverse, and one that has passed.
func checkEnd(kind string, end *time.Time, now time.Time) error {
	if err := oneOf("EndDateType", kind, endUnlimited, endLimited); err != nil {
		return err
	}
	switch {
	case kind == endLimited && end == nil:
		return combination("EndDate must be provided when EndDateType is limited")
	case kind != endLimited && end != nil:
		return combination("EndDate must not be provided when EndDateType is unlimited")
	case end != nil && !end.After(now):
		return invalidValue("Value (%s) for parameter EndDate is invalid. The end date must be in the future", stamp(*end))
	}
	return nil
}

// createCapacityReservation reserves capacity that the account uses from now on.
func (e *EC2) createCapacityReservation(r *protocol.Request, in *createReservationInput) (*createReservationOutput, error) {
	now := e.applyDueTransitions()
	err := firstError(
		checkEnd(in.EndType, in.End, now),
		oneOf("InstanceMatchCriteria", in.Criteria, "open", "targeted"),
		oneOf("Tenancy", in.Tenancy, "default"), // the simulator has no dedicated hosts
		oneOf("InstancePlatform", in.Platform, "Linux/UNIX"),
		checkSpecifications(in.Tags, "capacity-reservation"),
	)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	zone, err := e.cfg.reservedZone(in)
	if err != nil {
		return nil, err
	}
	t := e.market.byName[in.InstanceType]
	switch {
	case t == nil:
		return nil, invalidValue("Invalid value '%s' for InstanceType.", in.InstanceType)
	case !e.market.sold(t, zone):
		return nil, protocol.Errorf(
			"Unsupported",
			"The requested configuration is currently not supported. Please check the documentation for supported configurations.",
		)
	case in.Count < 1:
		return nil, invalidValue("Value (%d) for parameter InstanceCount is invalid. It must be at least 1", in.Count)
	}
	tags := tagsFor("capacity-reservation", in.Tags)
	if err := r.Authorize(e.making(r.Action, "capacity-reservation", tags, "ec2:InstanceType", in.InstanceType, "ec2:AvailabilityZone",
		zone)...); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return once(e, r, in.ClientToken, func() (*createReservationOutput, error) {
		made := &reservation{created: now, CapacityReservation: CapacityReservation{
			ID: e.newID("cr"), InstanceType: in.InstanceType, Zone: zone, Total: in.Count, Targeted: in.Criteria == "targeted",
			OwnerID: e.cfg.AccountID, Tags: tags,
		}}
		if in.End != nil {
			made.End = *in.End
		}
		e.reservations = append(e.reservations, made)
		e.setTimer()
		r.Touch(made.ID)
		return &createReservationOutput{Reservation: e.cfg.showReservation(made, now)}, nil
	})
}

// reservedZone is the zone that a request names by its name or its ID.
func (c *Config) reservedZone(in *createReservationInput) (string, error) {
	for _, z := range regionZones(c.Region) {
		if cmp.Or(in.Zone, in.ZoneID) == pick(in.Zone != "", z.Name, z.ID) {
			return z.Name, nil
		}
	}
	if in.Zone == "" && in.ZoneID == "" {
		return "", missing("AvailabilityZone")
	}
	return "", invalidValue("Invalid availability zone: [%s]", cmp.Or(in.Zone, in.ZoneID))
}

type cancelReservationInput struct {
	DryRun bool   `query:"DryRun"`
	ID     string `query:"CapacityReservationId,required"`
}

// cancelCapacityReservation gives reserved capacity back. Instances in it run on as any others.
func (e *EC2) cancelCapacityReservation(r *protocol.Request, in *cancelReservationInput) (*changed, error) {
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	res, err := e.reservationToChange(r, in.ID, now)
	switch {
	case err != nil:
		return nil, err
	case in.DryRun:
		return nil, dryRun()
	}
	res.cancelled = true
	e.endReservation(res, now)
	r.Touch(res.ID)
	return &changed{Return: true}, nil
}

type modifyReservationInput struct {
	DryRun   bool       `query:"DryRun"`
	ID       string     `query:"CapacityReservationId,required"`
	Count    *int       `query:"InstanceCount"`
	End      *time.Time `query:"EndDate"`
	EndType  string     `query:"EndDateType"`
	Criteria string     `query:"InstanceMatchCriteria"`

	Accept *unsupported `query:"Accept,unsupported"`
	Info   *unsupported `query:"AdditionalInfo,unsupported"`
}

// modifyCapacityReservation changes how many instances a reservation holds, when it finishes, and which instances match it.
func (e *EC2) modifyCapacityReservation(r *protocol.Request, in *modifyReservationInput) (*changed, error) {
	now := e.applyDueTransitions()
	err := oneOf("InstanceMatchCriteria", in.Criteria, "open", "targeted")
	if err == nil && (in.EndType != "" || in.End != nil) {
		err = checkEnd(in.EndType, in.End, now)
	}
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	res, err := e.reservationToChange(r, in.ID, now)
	switch {
	case err != nil:
		return nil, err
	case in.Count != nil && *in.Count < max(1, res.used):
		return nil, invalidValue(
			"Value (%d) for parameter InstanceCount is invalid. %d instances run in the reservation",
			*in.Count,
			res.used,
		)
	case res.Block && (in.Count != nil || in.EndType != "" || in.Criteria != ""):
		return nil, protocol.Errorf("OperationNotPermitted", "A capacity block cannot be modified")
	case in.DryRun:
		return nil, dryRun()
	}
	if in.Count != nil {
		res.Total = *in.Count
	}
	switch in.EndType {
	case endLimited:
		res.End = *in.End
	case endUnlimited:
		res.End = time.Time{}
	}
	if in.Criteria != "" {
		res.Targeted = in.Criteria == "targeted"
	}
	e.setTimer()
	r.Touch(res.ID)
	return &changed{Return: true}, nil
}

// reservationToChange is a reservation of the account's own that has not finished. The lock must be held.
func (e *EC2) reservationToChange(r *protocol.Request, id string, now time.Time) (*reservation, error) {
	if err := reservationIDs().check(id); err != nil {
		return nil, err
	}
	res := e.reservation(id)
	if res == nil {
		return nil, reservationIDs().absent(id)
	}
	if err := r.Authorize(e.on("capacity-reservation", res.ID, res.Tags)); err != nil {
		return nil, err
	}
	if res.OwnerID != e.cfg.AccountID {
		return nil, protocol.Errorf("OperationNotPermitted", "The capacity reservation %s belongs to the account %s", id, res.OwnerID)
	}
	if state := res.state(now); state != reservationActive && state != reservationScheduled {
		return nil, protocol.Errorf("InvalidCapacityReservationState", "The capacity reservation %s is in the state %s", id, state)
	}
	return res, nil
}
