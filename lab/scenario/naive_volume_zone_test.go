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

// naivePlanner buys a node for a pod in the zone that it likes best, and in the next one if the pod is not on it a moment after
// it is up. It does not look at volumes.
func naivePlanner(ctx context.Context, w *World, app string, likes ...string) error {
	for _, zone := range likes {
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

// zoneClaim is a claim of no pool.
func zoneClaim(zone string) *karpv1.NodeClaim {
	in := func(key, value string) karpv1.Requirement {
		return karpv1.Requirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "naive-", Labels: map[string]string{awsv1.LabelNodeClass: "default"}}}
	claim.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	claim.Spec.Requirements = []karpv1.Requirement{
		in(corev1.LabelTopologyZone, zone), in(corev1.LabelInstanceTypeStable, "m5.xlarge"), in(karpv1.LabelCapacityType, "on-demand"),
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
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

// The world of immediate-volume bites: a planner that does not look at volumes buys a node where the pod's volume is not, and
// the story would say so.
func TestNaivePlannerBuysWhereTheVolumeIsNot(t *testing.T) {
	t.Parallel()
	story := immediateVolume()
	story.Steps = []Step{
		startController(),
		installPool(manifests.MediumInstances, nil),
		installStorage("with a toleration for every taint", toleratesAll),
		{Name: "the controller has no NodePool to buy from", Timeout: 20 * time.Second, Run: func(ctx context.Context, w *World) error {
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
		}},
		{Name: "a pod with a volume: nodes are bought naively until it runs", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
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
		}},
		{Name: theScenarioFails, Timeout: 10 * time.Second, Run: oneNodeInZone},
	}
	if message := runNaive(t, story); !strings.Contains(message, "2 NodeClaims were created and 2 instances launched") {
		t.Errorf("the error is only: %s", message)
	}
}
