package interruption

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// StatusReader reads the status of the instances of an account and region.
type StatusReader struct {
	EC2 ec2.DescribeInstanceStatusAPIClient
	Now func() time.Time
}

// Ailments returns the instances that are impaired, whether they are this cluster's or not: see Ailments.
func (r *StatusReader) Ailments(ctx context.Context) ([]cloudprovider.Impairment, error) {
	return ImpairedInstances(ctx, r.EC2, r.Now())
}
