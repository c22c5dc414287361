package ec2

import (
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/wire"
)

func reservationIDs() idRules {
	return idRules{
		prefix: "cr", malformed: "InvalidCapacityReservationId.Malformed", notFound: "InvalidCapacityReservationId.NotFound",
		missing: func(ids []string) string {
			return "The capacity reservation ID '" + strings.Join(ids, ", ") + "' does not exist"
		},
	}
}

func groupUnknown(name string) error {
	return wire.Errorf("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", name)
}

// capacityReservation stands for the reservations of the account, which has none.
type capacityReservation struct{}

type describeReservationsInput struct {
	listInput
	IDs []string `query:"CapacityReservationId"`
}

type describeReservationsOutput struct {
	Reservations []struct{} `xml:"capacityReservationSet>item"`
	Next         *string    `xml:"nextToken"`
}

func (e *EC2) describeCapacityReservations(_ *wire.Request, in *describeReservationsInput) (*describeReservationsOutput, error) {
	none := func(capacityReservation) []string { return nil }
	known := properties[capacityReservation]{}
	for _, name := range []string{
		"availability-zone", "end-date", "end-date-type", "instance-match-criteria", "instance-type", "outpost-arn", "owner-id",
		"placement-group-arn", "start-date", "state", "tenancy",
	} {
		known[name] = none
	}
	n := noun[capacityReservation]{
		id: func(capacityReservation) string { return "" }, tags: func(capacityReservation) map[string]string { return nil },
		ids: reservationIDs(), minResults: 1, maxResults: 1000, properties: known, idsExcludePages: true,
	}
	if _, err := n.list(in.listInput, in.IDs, nil); err != nil {
		return nil, err
	}
	return &describeReservationsOutput{}, nil
}

// placementGroup stands for the placement groups of the account, which has none.
type placementGroup struct{}

type describePlacementGroupsInput struct {
	DryRun  bool     `query:"DryRun"`
	Filters []Filter `query:"Filter"`
	IDs     []string `query:"GroupId"`
	Names   []string `query:"GroupName"`
}

type describePlacementGroupsOutput struct {
	Groups []struct{} `xml:"placementGroupSet>item"`
}

func (e *EC2) describePlacementGroups(_ *wire.Request, in *describePlacementGroupsInput) (*describePlacementGroupsOutput, error) {
	none := func(placementGroup) []string { return nil }
	known := properties[placementGroup]{}
	for _, name := range []string{"group-name", "group-arn", "spread-level", "state", "strategy"} {
		known[name] = none
	}
	if _, err := compileFilters(in.Filters, known, func(placementGroup) map[string]string { return nil }); err != nil {
		return nil, err
	}
	if len(in.IDs) > 0 {
		id := in.IDs[0]
		if !strings.HasPrefix(id, "pg-") || !hexadecimal.MatchString(id[len("pg-"):]) {
			return nil, wire.Errorf("InvalidPlacementGroupId.Malformed", "The placement group ID '%s' is malformed.", id)
		}
		return nil, groupUnknown(id)
	}
	if len(in.Names) > 0 {
		return nil, groupUnknown(in.Names[0])
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return &describePlacementGroupsOutput{}, nil
}
