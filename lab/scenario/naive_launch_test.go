package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// errReplaced is the naive launcher's error for an instance that did not join.
var errReplaced = errors.New("the instance did not join and was terminated")

// naiveLaunch launches an instance like the cluster's first one, and terminates it if it does not join within the
// timeout. It does not check why.
func naiveLaunch(ctx context.Context, w *World, timeout time.Duration) error {
	first := w.Instances()[0]
	templates, err := w.EC2().DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{})
	if err != nil {
		return err
	}
	if len(templates.LaunchTemplates) == 0 {
		return errors.New("there is no launch template")
	}
	launched, err := w.EC2().CreateFleet(ctx, &ec2.CreateFleetInput{
		Type: ec2types.FleetTypeInstant,
		LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateId: templates.LaunchTemplates[0].LaunchTemplateId, Version: aws.String("$Latest"),
			},
			Overrides: []ec2types.FleetLaunchTemplateOverridesRequest{
				{InstanceType: ec2types.InstanceType(first.Type), SubnetId: &first.SubnetID},
			},
		}},
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: aws.Int32(1), DefaultTargetCapacityType: ec2types.DefaultTargetCapacityTypeOnDemand,
		},
		TagSpecifications: []ec2types.TagSpecification{{
			ResourceType: ec2types.ResourceTypeInstance, Tags: []ec2types.Tag{{
				Key:   aws.String("kubernetes.io/cluster/" + w.Name),
				Value: aws.String("owned"),
			}},
		}},
	})
	if err != nil {
		return err
	}
	if len(launched.Instances) == 0 {
		return fmt.Errorf("nothing was launched: %+v", launched.Errors)
	}
	id := launched.Instances[0].InstanceIds[0]
	joinCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	late := world.Until(joinCtx, func() error {
		var nodes corev1.NodeList
		if err := list(ctx, w, &nodes); err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return world.InstanceID(n.Spec.ProviderID) == id }) {
			return fmt.Errorf("no node of %s", id)
		}
		return nil
	})
	if late == nil {
		return nil
	}
	if _, err := w.EC2().TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", errReplaced, late)
}

// The scenario role-not-mapped fails for a launcher that replaces instances that do not join: it launches without end.
func TestNaiveLauncherKeepsLaunching(t *testing.T) {
	t.Parallel()
	s := roleNotMapped()
	s.Steps = []Step{
		startController(),
		installPool(manifests.Default, nil),
		{Name: "create a pod: an instance is launched for it", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
				return err
			}
			return world.Until(ctx, func() error {
				if len(w.Instances()) == 0 {
					return errors.New("none was")
				}
				return nil
			})
		}},
		{
			Name:    "delete the mapping: a naive launcher replaces instances that do not join",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := w.StopController(ctx); err != nil {
					return err
				}
				if err := unmapNodeRole(ctx, w); err != nil {
					return err
				}
				for range 2 { // an instance with a mapped role joins after about 3 s
					if err := naiveLaunch(ctx, w, 6*time.Second); !errors.Is(err, errReplaced) {
						return fmt.Errorf("joined, or %w", err)
					}
				}
				return nil
			},
		},
		{Name: "map the role again: the next instance joins", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error {
			if _, err := w.EKS().CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
				ClusterName: &w.Name, PrincipalArn: aws.String(roleARN(awsim.NodeRole(w.Name))), Type: aws.String("EC2_LINUX"),
			}); err != nil {
				return err
			}
			return naiveLaunch(ctx, w, 20*time.Second)
		}},
		{Name: theScenarioFails, Timeout: time.Second, Run: func(_ context.Context, w *World) error { return launchedAtMost(w, 2) }},
	}
	if message := runNaive(t, s); !strings.Contains(message, "4 instances were launched, want at most 2") {
		t.Errorf("the error is only: %s", message)
	}
}
