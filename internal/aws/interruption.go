package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/interruption"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// InterruptionQueue is the SQS queue of that name, in the account and region of the cluster.
func (c *Cloud) InterruptionQueue(name string) *interruption.Queue {
	return interruption.NewQueue(sqs.NewFromConfig(c.cfg.AWS), name)
}

// Ailments returns the instances of the account, ours or not, that are not well.
func (c *Cloud) Ailments(ctx context.Context) ([]cloudprovider.Ailment, error) {
	return interruption.Ailments(ctx, c.ec2, c.cfg.Now())
}

// SpotInterrupted notes that EC2 takes back a spot instance: another of its kind would not live long.
func (c *Cloud) SpotInterrupted(instanceType, zone string) {
	c.scarcity.MarkOffering(unavailableofferings.Offering{CapacityType: karpv1.CapacityTypeSpot, InstanceType: instanceType, Zone: zone})
}

// ReservationInterrupted notes that the owner of a capacity reservation takes it back.
func (c *Cloud) ReservationInterrupted(id string) {
	if c.reservations != nil {
		c.reservations.Unavailable(id)
	}
}
