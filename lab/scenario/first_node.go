package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

// firstNode is the shortest complete scenario: a pod gets a node, and both are deleted.
func firstNode() Scenario {
	const app = "sample"
	return Scenario{
		Name:    "first-node",
		Summary: "a pending pod gets a node and runs; after it is deleted, no resource is left",
		Steps: []Step{
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: "create a pod: a node is launched for it, and it runs", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, app, 1); err != nil {
						return err
					}
					pod := w.History.Pods()[0]
					w.Note("from pod created to pod running: %.1f s", pod.Running.Sub(pod.Seen).Seconds())
					return noteCost(ctx, w)
				},
			},
			{
				Name: "there is one NodeClaim, and the only instance is its own", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if claims, instances := len(w.History.Claims()), len(w.Instances()); claims != 1 || instances != 1 {
						return fmt.Errorf("%d NodeClaims were created and %d instances launched, want one of each", claims, instances)
					}
					return awaitPaired(ctx, w)
				},
			},
			{
				Name: "delete the workload: the node and the instance terminate", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					text, err := render(w, manifests.Sample, map[string]string{"REPLICAS": "1"})
					if err != nil {
						return err
					}
					if err := w.Delete(ctx, text); err != nil {
						return err
					}
					return awaitEmpty(ctx, w, app)
				},
			},
			removePool(manifests.Default, nil),
		},
	}
}

// installPool is the step that creates a NodePool and an EC2NodeClass.
func installPool(manifest string, variables map[string]string) Step {
	return Step{
		Name: "create NodePool and EC2NodeClass: both become Ready", Timeout: 20 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			if err := apply(ctx, w, manifest, variables); err != nil {
				return err
			}
			return awaitPoolReady(ctx, w)
		},
	}
}
