package launch

import (
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// placement returns where in the placement group the instance goes: the lowest partition that the NodeClaim allows and
// that has an available offering, if the NodeClaim names partitions; else the partition that EC2 chooses.
func (o Request) placement(reqs requirement.Set, all []candidate) cloudprovider.Placement {
	out := cloudprovider.Placement{GroupID: o.Group.ID}
	if o.Group.Strategy != placement.Partition || !reqs.Defines(awsv1.LabelPlacementGroupPartition) {
		return out
	}
	for n := range o.Group.Partitions {
		partition := strconv.Itoa(n + 1)
		if !reqs.Get(awsv1.LabelPlacementGroupPartition).Has(partition) {
			continue
		}
		if out.Partition == 0 {
			out.Partition = n + 1
		}
		if slices.ContainsFunc(all, func(c candidate) bool { return c.inPartition(partition) }) {
			out.Partition = n + 1
			break
		}
	}
	return out
}

// inPartition reports whether one of the offerings is available in a partition.
func (c candidate) inPartition(partition string) bool {
	return slices.ContainsFunc(c.offerings, func(o catalog.Offering) bool {
		return o.Requirements.Get(awsv1.LabelPlacementGroupPartition).Has(partition)
	})
}

// suits reports whether an offering is in the partition of the launch, if it has one.
func (p plan) suits(o *catalog.Offering) bool {
	return p.placement.Partition == 0 || o.Requirements.Get(awsv1.LabelPlacementGroupPartition).Has(strconv.Itoa(p.placement.Partition))
}

func (b TemplateSpec) placement() *ec2types.LaunchTemplatePlacementRequest {
	out := &ec2types.LaunchTemplatePlacementRequest{Tenancy: ec2types.Tenancy(b.Tenancy)}
	if b.Placement.GroupID != "" {
		out.GroupId = aws.String(b.Placement.GroupID)
	}
	if b.Placement.Partition > 0 {
		out.PartitionNumber = aws.Int32(int32(b.Placement.Partition))
	}
	return out
}
