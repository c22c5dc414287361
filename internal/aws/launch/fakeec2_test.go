package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// callOutcome describes what happens to one CreateFleet call.
type callOutcome int

const (
	served            callOutcome = iota // takes effect, and the response arrives
	responseLost                         // takes effect, but the response is lost
	requestLost                          // never arrives
	rejectedCall                         // is rejected with an error code
	noCapacity                           // returns errors and no instance
	templateGone                         // names a template that was deleted meanwhile
	rejectedWithToken                    // is rejected, and EC2 remembers its token with its parameters
)

// fakeEC2 is EC2 as far as idempotency goes: client tokens, delayed visibility, lost messages.
type fakeEC2 struct {
	time         time.Time
	visible      time.Duration // delay until a new instance is visible
	callOutcomes []callOutcome // of the next calls; served when used up
	tokens       map[string]tokenUse
	instances    []ec2types.Instance
	calls        int
	// mark is the launch annotation of the NodeClaim that is launched alone.
	mark string

	mu        sync.Mutex // calls are concurrent
	templates map[string]bool
}

type tokenUse struct {
	parameters *ec2.CreateFleetInput
	answer     *ec2.CreateFleetOutput
}

func newFakeEC2() *fakeEC2 {
	return &fakeEC2{
		time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), visible: 20 * time.Second,
		tokens: map[string]tokenUse{}, templates: map[string]bool{},
	}
}

func (w *fakeEC2) now() time.Time { return w.time }

func (w *fakeEC2) CreateFleet(_ context.Context, in *ec2.CreateFleetInput, _ ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	next := served
	if len(w.callOutcomes) > 0 {
		next, w.callOutcomes = w.callOutcomes[0], w.callOutcomes[1:]
	}
	switch next {
	case requestLost:
		return nil, errors.New("dial tcp: connection refused")
	case rejectedCall:
		return nil, &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "You are not authorized"}
	case templateGone:
		clear(w.templates)
	}
	if used, ok := w.tokens[*in.ClientToken]; ok {
		if !reflect.DeepEqual(used.parameters, in) {
			return nil, &smithy.GenericAPIError{Code: "IdempotentParameterMismatch", Message: "other parameters"}
		}
		if used.answer != nil {
			return used.answer, nil
		}
	}
	if next == rejectedWithToken {
		w.tokens[*in.ClientToken] = tokenUse{parameters: in}
		return nil, &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "You are not authorized"}
	}
	for _, c := range in.LaunchTemplateConfigs {
		if !w.templates[*c.LaunchTemplateSpecification.LaunchTemplateName] {
			return nil, &smithy.GenericAPIError{Code: "InvalidLaunchTemplateName.NotFoundException", Message: "no such template"}
		}
	}
	out := w.serve(in, next == noCapacity)
	w.tokens[*in.ClientToken] = tokenUse{in, out}
	if next == responseLost {
		return nil, context.DeadlineExceeded
	}
	return out, nil
}

func (w *fakeEC2) serve(in *ec2.CreateFleetInput, scarce bool) *ec2.CreateFleetOutput {
	o := in.LaunchTemplateConfigs[0].Overrides[0]
	chosen := &ec2types.LaunchTemplateAndOverridesResponse{Overrides: &ec2types.FleetLaunchTemplateOverrides{
		InstanceType: o.InstanceType, AvailabilityZone: o.AvailabilityZone, SubnetId: o.SubnetId, ImageId: o.ImageId,
	}}
	if scarce {
		return &ec2.CreateFleetOutput{Errors: []ec2types.CreateFleetError{{
			ErrorCode: aws.String("InsufficientInstanceCapacity"), ErrorMessage: aws.String("none left"), LaunchTemplateAndOverrides: chosen,
		}}}
	}
	var ids []string
	for range *in.TargetCapacitySpecification.TotalTargetCapacity {
		id := fmt.Sprintf("i-%d", len(w.instances))
		ids = append(ids, id)
		w.instances = append(w.instances, ec2types.Instance{
			InstanceId: aws.String(id), InstanceType: o.InstanceType, ImageId: o.ImageId, SubnetId: o.SubnetId, LaunchTime: aws.Time(w.time),
			Placement: &ec2types.Placement{AvailabilityZone: o.AvailabilityZone}, Tags: in.TagSpecifications[0].Tags,
			State: &ec2types.InstanceState{Name: ec2types.InstanceStateNamePending},
		})
	}
	return &ec2.CreateFleetOutput{Instances: []ec2types.CreateFleetInstance{{
		InstanceIds: ids, InstanceType: o.InstanceType, LaunchTemplateAndOverrides: chosen,
	}}}
}

// DescribeInstances supports the one filter that finds a NodeClaim's instance.
func (w *fakeEC2) DescribeInstances(
	_ context.Context,
	in *ec2.DescribeInstancesInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &ec2.DescribeInstancesOutput{}
	for _, i := range w.instances {
		tagged := slices.ContainsFunc(i.Tags, func(t ec2types.Tag) bool {
			return "tag:"+*t.Key == *in.Filters[0].Name && *t.Value == in.Filters[0].Values[0]
		})
		if tagged && w.time.Sub(*i.LaunchTime) >= w.visible {
			out.Reservations = append(out.Reservations, ec2types.Reservation{Instances: []ec2types.Instance{i}})
		}
	}
	return out, nil
}

func (w *fakeEC2) TerminateInstances(
	context.Context,
	*ec2.TerminateInstancesInput,
	...func(*ec2.Options),
) (*ec2.TerminateInstancesOutput, error) {
	return nil, errors.New("a launch terminates nothing")
}

func (w *fakeEC2) DescribeLaunchTemplates(
	_ context.Context,
	in *ec2.DescribeLaunchTemplatesInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeLaunchTemplatesOutput, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.templates[in.LaunchTemplateNames[0]] {
		return nil, &smithy.GenericAPIError{Code: "InvalidLaunchTemplateName.NotFoundException"}
	}
	return &ec2.DescribeLaunchTemplatesOutput{
		LaunchTemplates: []ec2types.LaunchTemplate{{LaunchTemplateName: &in.LaunchTemplateNames[0]}},
	}, nil
}

func (w *fakeEC2) CreateLaunchTemplate(
	_ context.Context,
	in *ec2.CreateLaunchTemplateInput,
	_ ...func(*ec2.Options),
) (*ec2.CreateLaunchTemplateOutput, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.templates[*in.LaunchTemplateName] = true
	return &ec2.CreateLaunchTemplateOutput{}, nil
}

func (w *fakeEC2) DeleteLaunchTemplate(
	context.Context,
	*ec2.DeleteLaunchTemplateInput,
	...func(*ec2.Options),
) (*ec2.DeleteLaunchTemplateOutput, error) {
	return nil, errors.New("launching deletes nothing")
}

func (w *fakeEC2) CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error) {
	return nil, errors.New("launching tags nothing afterwards")
}

var blue = identity.Identity{ClusterUID: "uid-blue", ClusterName: "prod", AccountID: "111122223333", Region: "us-east-1"}

// process is one run of the controller: its memory is lost with it.
type process struct {
	*Launcher
	ec2   *fakeEC2
	order Request
}

func (w *fakeEC2) start(o Request) *process { return w.startGathering(o, batch.Window{}) }

// startGathering is start with a window for batch launches; zero is the default.
func (w *fakeEC2) startGathering(o Request, window batch.Window) *process {
	addresses := network.NewAddresses(time.Minute, w.now)
	addresses.Observe([]network.Subnet{{ID: "subnet-a", Zone: "us-east-1a", FreeAddresses: 1000}})
	return &process{ec2: w, order: o, Launcher: New(Config{
		EC2: w, Identity: blue, Templates: NewTemplates(w, blue, w.now), Instances: instance.New(instance.Config{
			EC2: w, Identity: blue,
			Now: w.now,
		}),
		Addresses: addresses, UnavailableOfferings: unavailableofferings.New(w.now), Now: w.now, Log: slog.New(slog.DiscardHandler),
		Reservations: reservationLog{}, Window: window,
		Cluster: func() bootstrap.Cluster {
			return bootstrap.Cluster{Name: "prod", Endpoint: "https://prod", CABundle: "Y2E=", ServiceCIDR: "10.100.0.0/16", DNS: "10.100.0.10"}
		},
	})}
}

// launch does what a reconciler does: adopt, or else launch.
func (p *process) launch(ctx context.Context) (cloudprovider.Instance, error) {
	p.order.Claim.Annotations = map[string]string{karpv1.AnnotationLaunch: p.ec2.mark}
	if i, ok, err := p.Adopt(ctx, p.order.Claim); err != nil || ok {
		return i, err
	}
	return p.Launch(ctx, p.order, func(_ context.Context, mark string) error {
		p.ec2.mark = mark
		return nil
	})
}

// offering is an offering in zone us-east-1a unless zone states otherwise.
func offering(capacityType string, price float64, zone string) catalog.Offering {
	return catalog.Offering{
		Zone: zone, CapacityType: capacityType, Price: price, Available: true,
		Requirements: requirement.NewSet(
			requirement.In(karpv1.LabelCapacityType, capacityType),
			requirement.In(corev1.LabelTopologyZone, zone),
		),
	}
}

// instanceType is an instance type with 4 CPUs unless more states otherwise.
func instanceType(name string, more corev1.ResourceList, offerings ...catalog.Offering) *catalog.InstanceType {
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("58")}
	for k, v := range more {
		capacity[k] = v
	}
	return &catalog.InstanceType{
		Name: name, Capacity: capacity, Allocatable: capacity, Offerings: offerings,
		Requirements: requirement.NewSet(
			requirement.In(corev1.LabelInstanceTypeStable, name), requirement.In(corev1.LabelArchStable, "amd64"),
			requirement.DoesNotExist(awsv1.LabelInstanceGPUCount), requirement.DoesNotExist(awsv1.LabelInstanceAcceleratorCount),
		),
	}
}

func newOrder(types ...*catalog.InstanceType) Request {
	return Request{
		Types: types,
		Claim: &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name:   "general-x7k2p",
				UID:    "claim-uid",
				Labels: map[string]string{karpv1.LabelNodePool: "general", "team": "a"},
			},
			Spec: karpv1.NodeClaimSpec{
				Requirements: []karpv1.Requirement{{Key: karpv1.LabelCapacityType, Operator: corev1.NodeSelectorOpExists}},
				Resources:    karpv1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			},
		},
		Class: &awsv1.EC2NodeClass{
			ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-uid"},
			Spec:       awsv1.EC2NodeClassSpec{AMISelectorTerms: []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}, Role: "node"},
			Status: awsv1.EC2NodeClassStatus{
				Subnets:        []awsv1.Subnet{{ID: "subnet-a", Zone: "us-east-1a", ZoneID: "use1-az1"}},
				SecurityGroups: []awsv1.SecurityGroup{{ID: "sg-2"}, {ID: "sg-1"}},
				AMIs: []awsv1.AMI{
					{ID: "ami-1", Requirements: []awsv1.AMIRequirement{{Key: corev1.LabelArchStable, Operator: "In", Values: []string{"amd64"}}}},
				},
				InstanceProfile: "prod_1",
			},
		},
	}
}

// reservationLog records what a launch reports about reservations, by ID.
type reservationLog map[string]string

func (n reservationLog) Launched(id string) { n[id] += "launched " }
func (n reservationLog) Full(id string)     { n[id] += "full " }

func (n reservationLog) Unavailable(id string) { n[id] += "unavailable " }
