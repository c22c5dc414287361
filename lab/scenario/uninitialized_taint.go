package scenario

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// uninitializedTaint stops the cloud controller manager, restarts it, and slows it down. No stale write may add its
// taint again after the removal.
func uninitializedTaint() Scenario {
	const app = "sample"
	returned := &returnedTaints{}
	return Scenario{
		Name: "uninitialized-taint",
		Summary: "nodes wait for a stopped cloud controller manager: reported within a minute, and launches stop; " +
			"after its restart, pods run; while it is slow, nodes only wait",
		Long: true,
		// Nodes wait for another component, which keeps its own pace: a faster controller consolidates them in the meantime.
		RealPace: true,
		Steps: []Step{
			watchTaint(returned),
			{Name: "stop the cloud controller manager", Timeout: 10 * time.Second, Run: func(_ context.Context, w *World) error {
				w.StopCloudController()
				return nil
			}},
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: "create a pod: its node registers, and a condition reports the stuck taint with its owner", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
						return err
					}
					return awaitStuckTaint(ctx, w)
				},
			},
			{
				Name: "dovetail doctor reports the taint", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					_, err := awaitRemedy(ctx, w, "nodes-stuck-taint", "Node ", "cloud controller manager")
					return err
				},
			},
			{
				// The next checks hold for any grace period. A short one saves waiting for the default.
				Name: "restart the controller, which reports a stuck taint after 10 s", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					w.SetEnv("STARTUP_TAINT_GRACE_PERIOD", taintGracePeriod.String())
					return errors.Join(w.StopController(ctx), w.StartController(ctx))
				},
			},
			{
				Name: "the pod gets one other node, and no third", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if _, err := awaitClassReason(ctx, w, "TaintStuck"); err != nil {
						return err
					}
					if n := len(w.Instances()); n != 2 {
						return fmt.Errorf("%d instances were launched, want 2", n)
					}
					return nil
				},
			},
			{
				Name: "restart the cloud controller manager: the pod runs, without a controller restart", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					w.StartCloudController()
					return awaitPodsRunning(ctx, w, app, 1)
				},
			},
			surplusNodeIsCounted(),
			slowCloudController(),
			{Name: "no Node got the taint again", Timeout: time.Second, Run: returned.none},
			deleteAll(app, manifests.Default),
		},
	}
}

var surplusLaunch = regexp.MustCompile(`(?m)^dovetail_surplus_launches_total\{.*} 1$`)

// surplusNodeIsCounted waits until the node that the pod did not need in the end is gone, and counted.
func surplusNodeIsCounted() Step {
	return Step{
		Name: "the other node is deleted: the metric counts a node that was launched and that no pod has come to", Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			line, err := awaitMetric(ctx, w, surplusLaunch)
			w.Note("%s", line)
			return err
		},
	}
}

// slowCloudController slows the cloud controller manager down, so that ten nodes exceed the taint's grace period.
func slowCloudController() Step {
	const nodes, rate = 10, 0.5
	return Step{
		Name:    "slow down the cloud controller manager and launch ten nodes: events report the delay, and no other node is launched",
		Timeout: 90 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			w.SlowCloudController(rate)
			defer w.SlowCloudController(0)
			before := len(w.Instances())
			if err := apply(ctx, w, manifests.OnePerNode, map[string]string{"REPLICAS": fmt.Sprint(nodes)}); err != nil {
				return err
			}
			if err := awaitPodsRunning(ctx, w, "one-per-node", nodes); err != nil {
				return err
			}
			if n := len(w.Instances()) - before; n > nodes {
				return fmt.Errorf("%d instances were launched for %d pods", n, nodes)
			}
			if err := awaitEvent(ctx, w, "", "TaintLate"); err != nil {
				return err
			}
			return w.Scale(ctx, "one-per-node", 0)
		},
	}
}

// awaitEvent waits for an event with a reason. An empty object name matches any object.
func awaitEvent(ctx context.Context, w *World, object, reason string) error {
	return world.Until(ctx, func() error {
		var events corev1.EventList
		if err := list(ctx, w, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && (object == "" || e.InvolvedObject.Name == object) {
				return nil
			}
		}
		return fmt.Errorf("no event %s on %q", reason, object)
	})
}

// awaitStuckTaint waits until a NodeClaim's condition names the taint that its node waits for, and the owner of the
// taint.
func awaitStuckTaint(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		last := errors.New("there is no NodeClaim")
		for _, c := range claims.Items {
			initialized, registered := findCondition(
				c.Status.Conditions,
				karpv1.ConditionInitialized,
			), findCondition(
				c.Status.Conditions,
				karpv1.ConditionRegistered,
			)
			if initialized.Reason != "TaintStuck" || !strings.Contains(initialized.Message, uninitialized) ||
				!strings.Contains(initialized.Message, "cloud controller manager") {
				last = fmt.Errorf("NodeClaim %s: Initialized=%s %s %s", c.Name, initialized.Status, initialized.Reason, initialized.Message)
				continue
			}
			after := time.Since(registered.LastTransitionTime.Time)
			w.Note("reported %.0f s after the node registered", after.Seconds())
			if after > reportWithin+2*time.Second { // condition times have whole seconds, and the watch has a delay
				return fmt.Errorf("NodeClaim %s: the taint was reported %v after the node registered, which is late", c.Name, after)
			}
			return nil
		}
		return last
	})
}
