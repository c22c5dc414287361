package aws

import (
	"context"

	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// PriceState says where the prices of each capacity type come from.
func (c *Cloud) PriceState() []cloudprovider.PriceState { return c.prices.State() }

// NodeSeen tells how much memory a node of a class has, so that others of its type are planned with as much. A node that was
// launched from another image than the class would launch it from now tells nothing of those to come.
func (c *Cloud) NodeSeen(ctx context.Context, class *awsv1.EC2NodeClass, instanceType, imageID string, memory resource.Quantity) error {
	now, err := c.imageFor(ctx, class, instanceType)
	if err != nil || imageID == "" || now != imageID {
		return err
	}
	c.observed.Note(instanceType, discoveredmemory.Images(class.Status.AMIs), memory)
	return nil
}
