package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Deployments of manifests.DevicesWorkload, and the cheapest types of manifests.Devices for their pods.
const (
	gpuApp, gpuType = "gpu", "g4dn.xlarge"
	efaApp, efaType = "efa", "g4dn.8xlarge"
)

// draFromZero launches nodes for pods that request nothing but a device by a ResourceClaim, before any node has published one.
func draFromZero() Scenario {
	return Scenario{
		Name:    "dra-from-zero",
		Summary: "pods with only a ResourceClaim for a GPU or EFA get a node each from zero, also if the controller is killed meanwhile",
		Steps: []Step{
			{
				Name: "start the controller with the feature gates DRANVIDIAGPU and DRAEFA", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.InstallDRADrivers(node.NVIDIADriver, node.EFADriver); err != nil {
						return err
					}
					w.SetEnv("AWS_FEATURE_GATES", "DRANVIDIAGPU=true,DRAEFA=true")
					w.SetEnv("IGNORE_DRA_REQUESTS", "false")
					return w.StartController(ctx)
				},
			},
			installPool(manifests.Devices, nil),
			{
				Name: "create device classes, claim templates and Deployments without pods", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error { return apply(ctx, w, manifests.DevicesWorkload, nil) },
			},
			{
				Name: "create a pod that claims a GPU, with a selector and alternatives: it runs on a " + gpuType, Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, gpuApp, 1); err != nil {
						return err
					}
					return deviceNode{gpuApp, gpuType, node.NVIDIADriver, 1}.await(ctx, w)
				},
			},
			{
				Name:    "create a pod that claims EFA, kill the controller between launch and registration: it runs on the one " + efaType,
				Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					kill := killPoint{
						name: "a NodeClaim is launched", nth: 1, object: claimBetween(karpv1.ConditionLaunched, karpv1.ConditionRegistered),
					}.arm(w)
					defer kill.disarm()
					if err := w.Scale(ctx, efaApp, 1); err != nil {
						return err
					}
					if err := kill.wait(ctx); err != nil {
						return err
					}
					if err := w.StartController(ctx); err != nil {
						return err
					}
					return deviceNode{efaApp, efaType, node.EFADriver, 2}.await(ctx, w)
				},
			},
			{
				Name: "delete pods, NodePool and EC2NodeClass: no node, instance or other resource is left", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := errors.Join(w.Scale(ctx, gpuApp, 0), w.Scale(ctx, efaApp, 0)); err != nil {
						return err
					}
					if err := removePool(manifests.Devices, nil).Run(ctx, w); err != nil {
						return err
					}
					return errors.Join(awaitEmpty(ctx, w, gpuApp), awaitEmpty(ctx, w, efaApp))
				},
			},
		},
	}
}

// deviceNode is a node that was launched for a device.
type deviceNode struct {
	app, instanceType, driver string
	// nodes is how many were launched so far, this one included.
	nodes int
}

// await waits until the pod runs on the node, with a device that the scheduler has allocated, and checks that no other
// node was launched.
func (d deviceNode) await(ctx context.Context, w *World) error {
	if err := awaitPodsRunning(ctx, w, d.app, 1); err != nil {
		return err
	}
	var claims resourcev1.ResourceClaimList
	var nodeClaims karpv1.NodeClaimList
	if err := list(ctx, w, &claims, &nodeClaims); err != nil {
		return err
	}
	allocated := false
	for i := range claims.Items {
		if a := claims.Items[i].Status.Allocation; a != nil && len(a.Devices.Results) == 1 {
			allocated = allocated || a.Devices.Results[0].Driver == d.driver
		}
	}
	waited := false
	for i := range nodeClaims.Items {
		c := &nodeClaims.Items[i]
		launched := c.Labels[corev1.LabelInstanceTypeStable] == d.instanceType
		waited = waited || launched && c.Annotations[karpv1.AnnotationRequestedDRADrivers] == d.driver
	}
	if !allocated || !waited {
		return fmt.Errorf(
			"a device of %s is allocated: %v; a NodeClaim of type %s waited for it: %v", d.driver, allocated, d.instanceType, waited)
	}
	if err := world.Until(ctx, func() error { return devicesAsExpected(ctx, w) }); err != nil {
		return err
	}
	if n := len(w.History.Claims()); n != d.nodes {
		return fmt.Errorf("%d NodeClaims were created in total, want %d", n, d.nodes)
	}
	return errors.Join(oneInstancePerClaim(w), awaitPaired(ctx, w))
}

// devicesAsExpected checks that each node has published the devices that plans expect of its type.
func devicesAsExpected(ctx context.Context, w *World) error {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		if c, _ := condition.Get(&claims.Items[i], karpv1.ConditionConsistentStateFound); c.Status != metav1.ConditionTrue {
			return fmt.Errorf("NodeClaim %s: ConsistentStateFound is %q: %s", claims.Items[i].Name, c.Status, c.Message)
		}
	}
	return nil
}
