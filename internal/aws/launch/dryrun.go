package launch

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/dryrun"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// DryRunRequests ensures the launch template of on-demand instances of a type, and returns the requests of a launch:
// the fleet, and the same instance in each subnet of the class. It ignores the types of the request.
func (l *Launcher) DryRunRequests(ctx context.Context, o Request, t *catalog.InstanceType, tenancy string) (dryrun.Requests, error) {
	imageID, err := ImageFor(o.Class, t)
	if err != nil {
		return dryrun.Requests{}, err
	}
	kubelet, err := o.kubelet(t.Name)
	if err != nil {
		return dryrun.Requests{}, err
	}
	p := plan{requirements: requirement.NewSet(), capacityType: karpv1.CapacityTypeOnDemand, tenancy: tenancy}
	name, err := l.template(ctx, o, p, templateGroup{image: imageID, maxPods: t.Capacity.Pods().Value(), kubelet: kubelet})
	if err != nil {
		return dryrun.Requests{}, err
	}
	tags := l.sharedTags(o)
	config := ec2types.FleetLaunchTemplateConfigRequest{
		LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
			LaunchTemplateName: aws.String(name),
			Version:            aws.String("$Latest"),
		},
	}
	single := singleInstance{class: o.Class, instanceType: t.Name, template: name, tags: tags}
	var out dryrun.Requests
	for _, s := range o.Class.Status.Subnets {
		config.Overrides = append(config.Overrides, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType: ec2types.InstanceType(
				t.Name,
			), SubnetId: aws.String(s.ID), ImageId: aws.String(imageID), AvailabilityZone: aws.String(s.Zone),
		})
		out.RunInstances = append(out.RunInstances, single.input(s.ID))
	}
	out.Fleet = fleet{
		capacityType: p.capacityType, tags: tags, context: o.Class.Spec.Context, configs: []ec2types.FleetLaunchTemplateConfigRequest{config},
	}.input()
	out.Fleet.ClientToken = nil // the SDK generates one
	return out, nil
}

// singleInstance is an instance from a template.
type singleInstance struct {
	class        *awsv1.EC2NodeClass
	instanceType string
	template     string
	tags         map[string]string
}

// input requests the instance in a subnet.
func (s singleInstance) input(subnet string) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: ec2types.InstanceType(s.instanceType),
		LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: aws.String(s.template), Version: aws.String("$Latest")},
	}
	// Network interfaces in a call replace those of the template, including their security groups.
	for _, nic := range (TemplateSpec{Class: s.class}).interfaces() {
		in.NetworkInterfaces = append(in.NetworkInterfaces, ec2types.InstanceNetworkInterfaceSpecification{
			DeviceIndex: nic.DeviceIndex, NetworkCardIndex: nic.NetworkCardIndex, InterfaceType: nic.InterfaceType, Groups: nic.Groups,
			AssociatePublicIpAddress: nic.AssociatePublicIpAddress, SubnetId: aws.String(subnet),
		})
	}
	for _, kind := range []ec2types.ResourceType{
		ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume,
		ec2types.ResourceTypeNetworkInterface,
	} {
		in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: instance.Tags(s.tags)})
	}
	return in
}
