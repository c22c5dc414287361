package ec2

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type createFleetInput struct {
	DryRun      bool               `query:"DryRun"`
	ClientToken string             `query:"ClientToken"`
	Context     string             `query:"Context"`
	Type        string             `query:"Type"`
	Target      *fleetTarget       `query:"TargetCapacitySpecification,required"`
	Configs     []fleetConfig      `query:"LaunchTemplateConfigs,required"`
	Spot        *fleetSpotOptions  `query:"SpotOptions"`
	OnDemand    *fleetOnDemand     `query:"OnDemandOptions"`
	Reserved    *fleetReserved     `query:"ReservedCapacityOptions"`
	Tags        []tagSpecification `query:"TagSpecification"`
	Excess      string             `query:"ExcessCapacityTerminationPolicy"`
	Replace     *bool              `query:"ReplaceUnhealthyInstances"`
	Expiring    *bool              `query:"TerminateInstancesWithExpiration"`
	ValidFrom   *unsupported       `query:"ValidFrom,unsupported"`
	ValidUntil  *unsupported       `query:"ValidUntil,unsupported"`
}

type fleetTarget struct {
	Total    *int   `query:"TotalTargetCapacity,required"`
	OnDemand *int   `query:"OnDemandTargetCapacity"`
	Spot     *int   `query:"SpotTargetCapacity"`
	Default  string `query:"DefaultTargetCapacityType"`
	Unit     string `query:"TargetCapacityUnitType"`
}

type fleetConfig struct {
	Template  *templateSpec   `query:"LaunchTemplateSpecification,required"`
	Overrides []fleetOverride `query:"Overrides"`
}

type fleetOverride struct {
	InstanceType string         `query:"InstanceType"`
	SubnetID     string         `query:"SubnetId"`
	Zone         string         `query:"AvailabilityZone"`
	ZoneID       string         `query:"AvailabilityZoneId"`
	ImageID      string         `query:"ImageId"`
	MaxPrice     *float64       `query:"MaxPrice"`
	Priority     *float64       `query:"Priority"`
	Weight       *float64       `query:"WeightedCapacity"`
	Placement    *placementSpec `query:"Placement"`
	Requirements *unsupported   `query:"InstanceRequirements,unsupported"`
	Disks        *unsupported   `query:"BlockDeviceMapping,unsupported"`
	Profile      *unsupported   `query:"IamInstanceProfile,unsupported"`
	KeyName      *unsupported   `query:"KeyName,unsupported"`
	Metadata     *unsupported   `query:"MetadataOptions,unsupported"`
}

type fleetSpotOptions struct {
	Strategy     string       `query:"AllocationStrategy"`
	Interruption string       `query:"InstanceInterruptionBehavior"`
	Pools        *unsupported `query:"InstancePoolsToUseCount,unsupported"`
	Maintenance  *unsupported `query:"MaintenanceStrategies,unsupported"`
	MaxTotal     *unsupported `query:"MaxTotalPrice,unsupported"`
	MinTarget    *unsupported `query:"MinTargetCapacity,unsupported"`
	SingleZone   *unsupported `query:"SingleAvailabilityZone,unsupported"`
	SingleType   *unsupported `query:"SingleInstanceType,unsupported"`
}

type fleetOnDemand struct {
	Strategy     string       `query:"AllocationStrategy"`
	Reservations *unsupported `query:"CapacityReservationOptions,unsupported"`
	MaxTotal     *unsupported `query:"MaxTotalPrice,unsupported"`
	MinTarget    *unsupported `query:"MinTargetCapacity,unsupported"`
	SingleZone   *unsupported `query:"SingleAvailabilityZone,unsupported"`
	SingleType   *unsupported `query:"SingleInstanceType,unsupported"`
}

type fleetReserved struct {
	Types    []string     `query:"ReservationType"`
	Strategy *unsupported `query:"AllocationStrategy,unsupported"`
	Target   *unsupported `query:"CapacityReservationTarget,unsupported"`
	Fallback *unsupported `query:"ReservedCapacityFallbackOptions,unsupported"`
}

type createFleetOutput struct {
	ID        string          `xml:"fleetId"`
	Instances []fleetInstance `xml:"fleetInstanceSet>item"`
	Errors    []fleetError    `xml:"errorSet>item"`
}

type fleetInstance struct {
	Chosen       fleetChoice `xml:"launchTemplateAndOverrides"`
	Lifecycle    string      `xml:"lifecycle"`
	IDs          []string    `xml:"instanceIds>item"`
	InstanceType string      `xml:"instanceType"`
	Platform     string      `xml:"platform,omitempty"`
	SubnetID     string      `xml:"subnetId"`
	Zone         string      `xml:"availabilityZone"`
	ZoneID       string      `xml:"availabilityZoneId"`
}

type fleetError struct {
	Chosen    fleetChoice `xml:"launchTemplateAndOverrides"`
	Lifecycle string      `xml:"lifecycle"`
	Code      string      `xml:"errorCode"`
	Message   string      `xml:"errorMessage"`
}

// fleetChoice is the template and the override that an instance or an error came of.
type fleetChoice struct {
	Template  chosenTemplate `xml:"launchTemplateSpecification"`
	Overrides chosenOverride `xml:"overrides"`
}

type chosenTemplate struct {
	ID      string `xml:"launchTemplateId"`
	Version string `xml:"version"`
}

type chosenOverride struct {
	InstanceType string   `xml:"instanceType,omitempty"`
	SubnetID     string   `xml:"subnetId,omitempty"`
	Zone         string   `xml:"availabilityZone,omitempty"`
	ZoneID       string   `xml:"availabilityZoneId,omitempty"`
	ImageID      string   `xml:"imageId,omitempty"`
	MaxPrice     *float64 `xml:"maxPrice"`
	Priority     *float64 `xml:"priority"`
	Weight       *float64 `xml:"weightedCapacity"`
}

// maxOverrides is how many launch specifications a fleet may have.
const maxOverrides = 300

func (in *createFleetInput) check() error {
	switch {
	case in.Type == "" || in.Type == "maintain" || in.Type == "request":
		return protocol.Errorf("UnsupportedOperation", "The simulator supports fleets of type instant only")
	case in.Type != "instant":
		return oneOf("Type", in.Type, "instant", "maintain", "request")
	case in.Excess != "":
		return combination("ExcessCapacityTerminationPolicy is not supported for fleets of type instant")
	case *in.Target.Total < 1:
		return invalidValue("TotalTargetCapacity must be a positive number")
	case *in.Target.Total > maxPerCall:
		return protocol.Errorf("MaxFleetCountExceeded", "The target capacity %d exceeds %d", *in.Target.Total, maxPerCall)
	case in.Target.Unit != "" && in.Target.Unit != "units":
		return protocol.Errorf("UnsupportedOperation", "The simulator supports the target capacity unit type units only")
	}
	if sum := in.share(in.Target.OnDemand) + in.share(in.Target.Spot); sum > *in.Target.Total {
		return invalidValue("The sum of OnDemandTargetCapacity and SpotTargetCapacity exceeds TotalTargetCapacity")
	}
	overrides := 0
	for _, c := range in.Configs {
		overrides += len(c.Overrides)
		for _, o := range c.Overrides {
			if o.Weight != nil && *o.Weight <= 0 || o.Priority != nil && *o.Priority < 0 {
				return invalidValue("WeightedCapacity must be positive and Priority must not be negative")
			}
		}
	}
	if overrides > maxOverrides {
		return invalidFleet("The fleet configuration has %d launch specifications, more than the %d allowed", overrides, maxOverrides)
	}
	return firstError(
		in.checkReserved(),
		in.checkOptions(),
		in.checkInstant(),
		checkSpecifications(in.Tags, append(launchedKinds(), "fleet")...),
	)
}

// reservedCapacity is the target capacity type of fleets that use reservations of several types.
const reservedCapacity = "reserved-capacity"

func (in *createFleetInput) checkReserved() error {
	if err := oneOf("DefaultTargetCapacityType", in.Target.Default, spotLifecycle, onDemandLifecycle, capacityBlock,
		reservedCapacity); err != nil {
		return err
	}
	if (in.Reserved != nil) != (in.Target.Default == reservedCapacity) {
		return combination("ReservedCapacityOptions go with the DefaultTargetCapacityType reserved-capacity")
	}
	if in.Reserved == nil {
		return nil
	}
	for _, t := range in.Reserved.Types {
		if err := oneOf("ReservationType", t, "on-demand-capacity-reservation", capacityBlock, interruptible); err != nil {
			return err
		}
		if t != interruptible {
			return protocol.Errorf(
				"UnsupportedOperation",
				"The simulator supports the reservation type %s only for reserved-capacity",
				interruptible,
			)
		}
	}
	if len(in.Reserved.Types) == 0 {
		return missing("ReservedCapacityOptions.ReservationTypes")
	}
	return nil
}

func (in *createFleetInput) checkOptions() error {
	if s := in.Spot; s != nil {
		if err := firstError(
			oneOf("SpotOptions.AllocationStrategy", s.Strategy, lowestPrice, "diversified", capacityOptimized, capacityPrioritized, priceCapacity),
			oneOf("SpotOptions.InstanceInterruptionBehavior", s.Interruption, "hibernate", "stop", "terminate"),
		); err != nil {
			return err
		}
	}
	if o := in.OnDemand; o != nil {
		return oneOf("OnDemandOptions.AllocationStrategy", o.Strategy, lowestPrice, prioritized)
	}
	return nil
}

func (in *createFleetInput) share(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func (e *EC2) createFleet(r *protocol.Request, in *createFleetInput) (*createFleetOutput, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	candidates, err := e.candidates(in)
	if err != nil {
		return nil, err
	}
	if r.Enforced() {
		if err := r.Authorize(e.fleetNeeds(in, candidates)...); err != nil {
			return nil, err
		}
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return once(e, r, in.ClientToken, func() (*createFleetOutput, error) {
		f := &fleetLaunch{e: e, r: r, in: in, out: &createFleetOutput{ID: fleetID(e.newID("fleet"))}}
		f.batch = e.newBatch(in.ClientToken, now)
		for _, c := range candidates {
			c.request.systemTags["aws:ec2:fleet-id"] = f.out.ID
		}
		onDemand, spot := float64(in.share(in.Target.OnDemand)), float64(in.share(in.Target.Spot))
		rest := float64(*in.Target.Total) - onDemand - spot
		switch in.Target.Default {
		case spotLifecycle:
			spot += rest
		case capacityBlock:
			f.fill(capacityBlock, rest, candidates)
		case reservedCapacity:
			f.fill(interruptible, rest, candidates)
		default:
			onDemand += rest
		}
		f.fill(onDemandLifecycle, onDemand, candidates)
		f.fill(spotLifecycle, spot, candidates)
		e.setTimer()
		r.Touch(append([]string{f.out.ID}, f.launched...)...)
		return f.out, nil
	})
}

// candidate is one override of a fleet with its launch template.
type candidate struct {
	request launchRequest
	choice  fleetChoice
	weight  float64
	order   *launchPlan // looked up when first tried
}

// candidates lists the overrides of a fleet with their launch templates; a template without overrides is one itself.
// The lock must be held.
func (e *EC2) candidates(in *createFleetInput) ([]*candidate, error) {
	var list []*candidate
	for _, config := range in.Configs {
		t, err := e.templates.find(config.Template.templateRef)
		if err != nil {
			return nil, err
		}
		v, err := t.resolve(config.Template.Version)
		if err != nil {
			return nil, err
		}
		if config.Template.UserData != "" {
			return nil, protocol.Errorf("UnsupportedOperation", "The simulator does not support LaunchTemplateSpecificationUserData")
		}
		overrides := config.Overrides
		if len(overrides) == 0 {
			overrides = []fleetOverride{{}}
		}
		tags, first := templateTags(t, v), len(list)
		for _, o := range overrides {
			c, err := e.market.candidate(t, v, o)
			if err != nil {
				return nil, err
			}
			c.request.tags, c.request.systemTags = in.Tags, tags
			list = append(list, c)
		}
		if err := e.network.checkPools(list[first:]); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, missing("LaunchTemplateConfigs")
	}
	return list, nil
}

func (m *market) candidate(t *template, v *templateVersion, o fleetOverride) (*candidate, error) {
	if o.InstanceType == "" && v.data.InstanceType == "" {
		return nil, invalidFleet("Either the launch template or its overrides must name an instance type")
	}
	data := &v.data
	if o.Placement != nil {
		copied := v.data
		copied.Placement, data = o.Placement, &copied
	}
	c := &candidate{
		request: launchRequest{
			data: data, typ: cmp.Or(o.InstanceType, v.data.InstanceType), imageID: cmp.Or(o.ImageID, v.data.ImageID), subnetID: o.SubnetID,
			zone: o.Zone,
		},
		weight: 1,
		choice: fleetChoice{
			Template: chosenTemplate{ID: t.id, Version: strconv.Itoa(v.number)},
			Overrides: chosenOverride{
				InstanceType: o.InstanceType, SubnetID: o.SubnetID, Zone: o.Zone, ZoneID: o.ZoneID, ImageID: o.ImageID,
				MaxPrice: o.MaxPrice, Priority: o.Priority, Weight: o.Weight,
			},
		},
	}
	if o.ZoneID != "" {
		var err error
		if c.request.zone, err = m.zoneNamed(o.Zone, o.ZoneID); err != nil {
			return nil, err
		}
	}
	if o.Weight != nil {
		c.weight = *o.Weight
	}
	return c, nil
}

// fleetLaunch is a CreateFleet call in progress.
type fleetLaunch struct {
	e        *EC2
	r        *protocol.Request
	in       *createFleetInput
	batch    *batch
	out      *createFleetOutput
	launched []string
}

// fill launches instances of a lifecycle until their weights reach the target or every candidate has failed. A
// candidate that fails is reported once and not tried again.
func (f *fleetLaunch) fill(lifecycle string, target float64, candidates []*candidate) {
	if target <= 0 {
		return
	}
	queue := f.rank(lifecycle, candidates)
	groups := map[*candidate]int{} // place in the answer
	for filled := 0.0; filled < target && len(queue) > 0; {
		c := queue[0]
		i, err := f.try(c, lifecycle)
		if err != nil {
			f.fail(c, lifecycle, err)
			queue = queue[1:]
			continue
		}
		filled += c.weight
		f.launched = append(f.launched, i.ID)
		at, known := groups[c]
		if !known {
			at = len(f.out.Instances)
			groups[c] = at
			f.out.Instances = append(f.out.Instances, f.group(c, i))
		}
		f.out.Instances[at].IDs = append(f.out.Instances[at].IDs, i.ID)
		if f.strategy(lifecycle) == "diversified" {
			queue = append(queue[1:], c)
		}
	}
}

func (f *fleetLaunch) try(c *candidate, lifecycle string) (*instanceRecord, error) {
	if c.order == nil || c.order.lifecycle != lifecycle {
		q := c.request
		q.spot = lifecycle == spotLifecycle
		var err error
		if c.order, err = f.e.resolve(q); err != nil {
			return nil, err
		}
		if err := matchesMarket(c.order, lifecycle); err != nil {
			return nil, err
		}
		// An instant fleet launches in the name of its caller.
		if f.r.Enforced() {
			if err := f.r.Authorize(f.e.launching(c.order, q)...); err != nil {
				return nil, err
			}
		}
		if err := f.e.spotRole(f.r, c.order, false /* dry */); err != nil {
			return nil, err
		}
		if limit := c.choice.Overrides.MaxPrice; q.spot && limit != nil {
			if err := f.e.market.withinPrice(c.order, *limit); err != nil {
				return nil, err
			}
		}
	}
	return f.e.launch(c.order, f.batch)
}

// matchesMarket rejects a template with another purchase option than the fleet.
func matchesMarket(o *launchPlan, lifecycle string) error {
	market := o.marketType()
	if reserved := lifecycle == capacityBlock || lifecycle == interruptible; reserved != (market == capacityBlock ||
		market == interruptible) ||
		reserved && market != lifecycle {
		return combination("The market type %q of the launch template does not go with the target capacity type of the fleet", market)
	}
	return nil
}

func (f *fleetLaunch) group(c *candidate, i *instanceRecord) fleetInstance {
	choice := c.choice
	choice.Overrides.InstanceType, choice.Overrides.SubnetID, choice.Overrides.ImageID = i.Type, i.SubnetID, i.ImageID
	choice.Overrides.Zone, choice.Overrides.ZoneID = i.Zone, i.ZoneID
	return fleetInstance{
		Chosen: choice, Lifecycle: cmp.Or(i.Lifecycle, onDemandLifecycle), InstanceType: i.Type, Platform: i.order.image.Platform,
		SubnetID: i.SubnetID, Zone: i.Zone, ZoneID: i.ZoneID,
	}
}

func (f *fleetLaunch) fail(c *candidate, lifecycle string, err error) {
	reported := fleetError{Chosen: c.choice, Lifecycle: lifecycle, Code: "InternalError", Message: err.Error()}
	var e *protocol.Error
	if errors.As(err, &e) {
		reported.Code, reported.Message = e.Code, e.Message
	}
	reported.Chosen.Overrides.InstanceType = c.request.typ
	reported.Chosen.Overrides.ImageID = c.request.imageID
	if s := f.e.network.subnet(c.request.subnetID); s != nil {
		reported.Chosen.Overrides.Zone, reported.Chosen.Overrides.ZoneID = s.Zone, f.e.cfg.zoneID(s.Zone)
	}
	f.out.Errors = append(f.out.Errors, reported)
}

// fleetID makes the ID of a fleet, a UUID behind the prefix, from another ID.
func fleetID(from string) string {
	sum := sha256.Sum256([]byte(from))
	return fmt.Sprintf("fleet-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
