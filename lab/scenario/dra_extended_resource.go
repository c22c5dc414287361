package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

// extendedApp is the Deployment of manifests.ExtendedWorkload.
const extendedApp = "extended"

// draExtendedResource launches nodes for pods that request GPUs by an extended resource, where a DRA driver serves it and no device plugin
// does.
func draExtendedResource() Scenario {
	return Scenario{
		Name: "dra-extended-resource",
		Summary: "pods request nvidia.com/gpu, which a DeviceClass stands for, and nodes have a DRA driver and no device plugin: " +
			"each gets a node, which initializes",
		Steps: []Step{
			{
				Name: "start the controller with the feature gate DRANVIDIAGPU; nodes run no device plugins", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.InstallDRADrivers(node.NVIDIADriver); err != nil {
						return err
					}
					w.RemoveDevicePlugins()
					w.SetEnv("AWS_FEATURE_GATES", "DRANVIDIAGPU=true")
					w.SetEnv("IGNORE_DRA_REQUESTS", "false")
					return w.StartController(ctx)
				},
			},
			installPool(manifests.Devices, nil),
			{
				Name: "create a DeviceClass that stands for nvidia.com/gpu, and a Deployment without pods", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error { return apply(ctx, w, manifests.ExtendedWorkload, nil) },
			},
			{
				Name: "create a pod: it runs on a " + gpuType + " that has waited for the DRA driver", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, extendedApp, 1); err != nil {
						return err
					}
					return deviceNode{extendedApp, gpuType, node.NVIDIADriver, 1}.await(ctx, w)
				},
			},
			{
				Name: "create another: the GPU is in use, so that it gets a second node", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, extendedApp, 2); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, extendedApp, 2); err != nil {
						return err
					}
					var claims resourcev1.ResourceClaimList
					if err := list(ctx, w, &claims); err != nil {
						return err
					}
					if n, made := len(w.History.Claims()), len(claims.Items); n != 2 || made != 2 {
						return fmt.Errorf("%d NodeClaims were created, and kube-scheduler has made %d ResourceClaims, want 2 of each", n, made)
					}
					return errors.Join(oneInstancePerClaim(w), awaitPaired(ctx, w))
				},
			},
		},
	}
}
