package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

// firstNode is the shortest whole story: a pod, a node for it, and neither.
func firstNode() Scenario {
	const app = "sample"
	return Scenario{
		Name:    "first-node",
		Summary: "a pending pod gets a node and runs; when it is deleted, nothing is left",
		Steps: []Step{
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: "create a pod: it runs, on a node bought for it", Timeout: time.Minute,
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
				Name: "there is one NodeClaim and one instance, and they belong together", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if claims, instances := len(w.History.Claims()), len(w.Instances()); claims != 1 || instances != 1 {
						return fmt.Errorf("%d NodeClaims were created and %d instances launched, want one of each", claims, instances)
					}
					return awaitPaired(ctx, w)
				},
			},
			{
				Name: "delete the workload: the node and the instance go", Timeout: time.Minute,
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

// installPool is the step that gives the cluster a NodePool.
func installPool(manifest string, variables map[string]string) Step {
	return Step{
		Name: "create NodePool and EC2NodeClass: they get ready", Timeout: 20 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			if err := apply(ctx, w, manifest, variables); err != nil {
				return err
			}
			return awaitPoolReady(ctx, w)
		},
	}
}
