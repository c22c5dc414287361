package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// naivePlanner launches a node for a pod in the first of its preferred zones, and in the next one if the pod is not
// bound shortly after the node is initialized. It ignores volumes.
func naivePlanner(ctx context.Context, w *World, app string, zones ...string) error {
	for _, zone := range zones {
		claim := zoneClaim(zone)
		if err := w.Client.Create(ctx, claim); err != nil {
			return err
		}
		if err := world.Until(ctx, func() error {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
				return err
			}
			if up := findCondition(claim.Status.Conditions, karpv1.ConditionInitialized); up.Status != metav1.ConditionTrue {
				return fmt.Errorf("node of %s: %s %s", claim.Name, up.Reason, up.Message)
			}
			return nil
		}); err != nil {
			return err
		}
		moment, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := awaitBound(moment, w, app)
		cancel()
		if err == nil {
			break
		}
	}
	return awaitPodsRunning(ctx, w, app, 1)
}

// zoneClaim returns a NodeClaim without a NodePool.
func zoneClaim(zone string) *karpv1.NodeClaim {
	in := func(key, value string) karpv1.Requirement {
		return karpv1.Requirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "naive-", Labels: map[string]string{awsv1.LabelNodeClass: "default"}},
	}
	claim.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	claim.Spec.Requirements = []karpv1.Requirement{
		in(corev1.LabelTopologyZone, zone), in(corev1.LabelInstanceTypeStable, "m5.xlarge"), in(karpv1.LabelCapacityType, "on-demand"),
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1"),
		corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	return claim
}

// awaitBound waits until all pods of an app have a node.
func awaitBound(ctx context.Context, w *World, app string) error {
	return world.Until(ctx, func() error {
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Spec.NodeName == "" {
				return fmt.Errorf("pod %s has no node", p.Name)
			}
		}
		return nil
	})
}

// The scenario immediate-volume fails for a planner that ignores volumes: it launches a node in a zone without the
// volume.
func TestNaivePlannerLaunchesInAnotherZoneThanTheVolume(t *testing.T) {
	t.Parallel()
	s := immediateVolume()
	s.Steps = []Step{
		startController(),
		installPool(manifests.MediumInstances, nil),
		installStorage("with a toleration for every taint", toleratesAll),
		{
			Name:    "delete the NodePool, so that the controller does not launch",
			Timeout: 20 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
				if err := w.Client.Delete(ctx, pool); err != nil {
					return err
				}
				return world.Until(ctx, func() error {
					var pools karpv1.NodePoolList
					if err := list(ctx, w, &pools); err != nil || len(pools.Items) == 0 {
						return err
					}
					return fmt.Errorf("%d NodePools are there", len(pools.Items))
				})
			},
		},
		{
			Name:    "create a pod with a volume: the naive planner launches nodes until it runs",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := apply(ctx, w, manifests.Database, database(1, "gp3-immediate")); err != nil {
					return err
				}
				if err := world.Until(ctx, func() error {
					all, err := pods(ctx, w, databaseApp)
					if err != nil || len(all) == 1 {
						return err
					}
					return fmt.Errorf("%d pods are there", len(all))
				}); err != nil {
					return err
				}
				return naivePlanner(ctx, w, databaseApp, "us-east-1b", "us-east-1a")
			},
		},
		{Name: theScenarioFails, Timeout: 10 * time.Second, Run: oneNodeInZone},
	}
	if message := runNaive(t, s); !strings.Contains(message, "2 NodeClaims were created and 2 instances launched") {
		t.Errorf("the error is only: %s", message)
	}
}
