package kill

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// Instances are the instances of a scenario. They outlive processes.
type Instances struct {
	t *testing.T
	// All in the order of their launch.
	All []*Instance
	// MayTerminate returns why an instance must not be terminated now, or nil. The func may be nil.
	MayTerminate func(m *Instance) error
}

// Instance is an instance.
type Instance struct {
	ProviderID string
	Claim      *karpv1.NodeClaim
	State      cloudprovider.State
}

// Add adds a running instance of the claim.
func (m *Instances) Add(claim *karpv1.NodeClaim) *Instance {
	out := &Instance{
		ProviderID: fmt.Sprintf("aws:///us-east-1a/i-%d", len(m.All)+1),
		Claim:      claim.DeepCopy(),
		State:      cloudprovider.Running,
	}
	m.All = append(m.All, out)
	return out
}

// settle completes the state transitions of instances.
func (m *Instances) settle() {
	for _, i := range m.All {
		if i.State == cloudprovider.ShuttingDown {
			i.State = cloudprovider.Terminated
		}
	}
}

func (m *Instances) find(providerID string) *Instance {
	for _, i := range m.All {
		if i.ProviderID == providerID {
			return i
		}
	}
	return nil
}

// Cloud is the cloud of one process.
type Cloud struct {
	gate     *faultInjector
	machines *Instances
}

// LaunchInBatch launches an instance for the claim, or returns the one launched before.
func (c *Cloud) LaunchInBatch(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	_ *awsv1.EC2NodeClass,
	annotate func(context.Context, string) error,
) (cloudprovider.Launched, error) {
	for _, i := range c.machines.All {
		if i.Claim.UID == claim.UID && i.State == cloudprovider.Running {
			return launched(i), nil
		}
	}
	if claim.Annotations[karpv1.AnnotationLaunch] == cloudprovider.Unlaunched {
		if err := annotate(ctx, ""); err != nil {
			return cloudprovider.Launched{}, err
		}
	}
	var out cloudprovider.Launched
	err := c.gate.write(func() error {
		out = launched(c.machines.Add(claim))
		return nil
	})
	return out, err
}

func launched(i *Instance) cloudprovider.Launched {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(
			"2",
		), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("29"),
	}
	return cloudprovider.Launched{
		ProviderID: i.ProviderID,
		ImageID:    "ami-1",
		Labels: map[string]string{
			corev1.LabelInstanceTypeStable: "m7i.large", corev1.LabelTopologyZone: "us-east-1a", karpv1.LabelCapacityType: karpv1.CapacityTypeSpot,
			awsv1.LabelNodeClass: i.Claim.Spec.NodeClassRef.Name,
		},
		Annotations: map[string]string{awsv1.AnnotationNodeClassHash: "1", awsv1.AnnotationNodeClassHashVersion: "v4"},
		Capacity:    capacity,
		Allocatable: capacity,
	}
}

// Get returns an instance that is not terminated.
func (c *Cloud) Get(_ context.Context, providerID string) (cloudprovider.Instance, error) {
	var out cloudprovider.Instance
	err := c.gate.read(func() error {
		i := c.machines.find(providerID)
		if i == nil || i.State == cloudprovider.Terminated {
			return cloudprovider.ErrNotFound
		}
		out = instance(i)
		return nil
	})
	return out, err
}

// List returns the instances that are not terminated.
func (c *Cloud) List(context.Context) ([]cloudprovider.Instance, error) {
	var out []cloudprovider.Instance
	err := c.gate.read(func() error {
		for _, i := range c.machines.All {
			if i.State != cloudprovider.Terminated {
				out = append(out, instance(i))
			}
		}
		return nil
	})
	return out, err
}

// FindByClaim returns the running instances of a claim.
func (c *Cloud) FindByClaim(_ context.Context, claim *karpv1.NodeClaim) ([]cloudprovider.Instance, error) {
	var out []cloudprovider.Instance
	err := c.gate.read(func() error {
		for _, i := range c.machines.All {
			if i.Claim.UID == claim.UID && i.State == cloudprovider.Running {
				out = append(out, instance(i))
			}
		}
		return nil
	})
	return out, err
}

// Terminate begins the termination of an instance.
func (c *Cloud) Terminate(_ context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return err
	}
	i := c.machines.find(providerID)
	switch {
	case i == nil || i.State == cloudprovider.Terminated:
		return cloudprovider.ErrNotFound
	case i.State == cloudprovider.ShuttingDown:
		return nil
	}
	return c.gate.write(func() error {
		if may := c.machines.MayTerminate; may != nil {
			if err := may(i); err != nil {
				c.machines.t.Errorf("instance %s is terminated too soon: %v", i.ProviderID, err)
			}
		}
		i.State = cloudprovider.ShuttingDown
		return nil
	})
}

func instance(i *Instance) cloudprovider.Instance {
	return cloudprovider.Instance{
		ProviderID: i.ProviderID,
		State:      i.State,
		Owner:      cloudprovider.Ours,
		NodeClaim:  i.Claim.Name,
		LaunchedAt: Start,
	}
}
