package launch

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// placement is where in the order's group its instance goes: into the lowest partition that the claim allows, if it names any,
// else into the one that EC2 chooses.
func (o Order) placement(reqs requirement.Set) cloud.Placement {
	out := cloud.Placement{GroupID: o.Group.ID}
	if o.Group.Strategy == placement.Partition && reqs.Defines(awsv1.LabelPlacementGroupPartition) {
		for n := range o.Group.Partitions {
			if reqs.Get(awsv1.LabelPlacementGroupPartition).Has(strconv.Itoa(n + 1)) {
				out.Partition = n + 1
				break
			}
		}
	}
	return out
}

func (b Blueprint) placement() *ec2types.LaunchTemplatePlacementRequest {
	out := &ec2types.LaunchTemplatePlacementRequest{Tenancy: ec2types.Tenancy(b.Tenancy)}
	if b.Placement.GroupID != "" {
		out.GroupId = aws.String(b.Placement.GroupID)
	}
	if b.Placement.Partition > 0 {
		out.PartitionNumber = aws.Int32(int32(b.Placement.Partition))
	}
	return out
}
