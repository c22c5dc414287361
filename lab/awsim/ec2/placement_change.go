package ec2

import (
	"cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type createPlacementGroupInput struct {
	DryRun     bool               `query:"DryRun"`
	Name       string             `query:"GroupName,required"`
	Strategy   string             `query:"Strategy"`
	Partitions int                `query:"PartitionCount"`
	Level      string             `query:"SpreadLevel"`
	Tags       []tagSpecification `query:"TagSpecification"`

	Linked   *unsupported `query:"LinkedGroupId,unsupported"`
	Operator *unsupported `query:"Operator,unsupported"`
	Parent   *unsupported `query:"ParentGroupId,unsupported"`
}

type createPlacementGroupOutput struct {
	Group placementGroupInfo `xml:"placementGroup"`
}

// createPlacementGroup makes a placement group, which is available at once. A group with partitions has two by default.
func (e *EC2) createPlacementGroup(r *protocol.Request, in *createPlacementGroupInput) (*createPlacementGroupOutput, error) {
	g := PlacementGroup{Name: in.Name, Strategy: cmp.Or(in.Strategy, groupCluster), Partitions: in.Partitions}
	if g.Strategy == groupPartition {
		g.Partitions = cmp.Or(g.Partitions, 2)
	}
	if err := firstError(
		oneOf("Strategy", in.Strategy, groupCluster, groupPartition, groupSpread),
		oneOf("SpreadLevel", in.Level, "rack"), // the simulator has no outposts, which have hosts
		checkSpecifications(in.Tags, "placement-group"),
	); err != nil {
		return nil, err
	}
	switch {
	case len(in.Name) > 255:
		return nil, invalidValue("Value (%s) for parameter groupName is invalid. It has more than 255 characters", in.Name)
	case g.Strategy != groupPartition && in.Partitions != 0:
		return nil, combination("PartitionCount goes with the strategy partition")
	case g.Strategy != groupSpread && in.Level != "":
		return nil, combination("SpreadLevel goes with the strategy spread")
	case g.Strategy == groupPartition && (g.Partitions < 1 || g.Partitions > 7):
		return nil, invalidValue("Value (%d) for parameter partitionCount is invalid. It must be 1 to 7", in.Partitions)
	}
	g.Tags = tagsFor("placement-group", in.Tags)
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := r.Authorize(e.making(r.Action, "placement-group", g.Tags, "ec2:PlacementGroupStrategy", g.Strategy)...); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	added, err := e.addGroup(g, now)
	if err != nil {
		return nil, err
	}
	r.Touch(added.ID)
	return &createPlacementGroupOutput{Group: e.cfg.showGroup(added)}, nil
}

type deletePlacementGroupInput struct {
	DryRun bool   `query:"DryRun"`
	Name   string `query:"GroupName,required"`
}

// deletePlacementGroup begins the deletion of a group without instances.
func (e *EC2) deletePlacementGroup(r *protocol.Request, in *deletePlacementGroupInput) (*changed, error) {
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	g, err := e.groupToDelete(in.Name, now)
	if err != nil {
		return nil, err
	}
	err = r.Authorize(e.on("placement-group", g.Name, g.Tags, "ec2:PlacementGroupName", g.Name, "ec2:PlacementGroupStrategy", g.Strategy))
	switch {
	case err != nil:
		return nil, err
	case in.DryRun:
		return nil, dryRun()
	}
	e.deleteGroup(g, now)
	r.Touch(g.ID)
	return &changed{Return: true}, nil
}
