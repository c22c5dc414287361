package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// uninitializedTaint is the story of a cloud controller manager that does not work, and of its taint, which no stale write
// puts back once it has gone.
func uninitializedTaint() Scenario {
	const app = "sample"
	back := &returnedTaints{}
	return Scenario{
		Name: "uninitialized-taint",
		Summary: "nodes wait for a cloud controller manager that is absent: named within a minute, and no endless launching; " +
			"back again, pods run; slow, they only wait",
		Steps: []Step{
			watchTaint(back),
			{Name: "the cloud controller manager stops", Timeout: 10 * time.Second, Run: func(_ context.Context, w *World) error {
				w.StopCloudController()
				return nil
			}},
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: "create a pod: its node joins, and the taint that stays is named with its owner", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
						return err
					}
					return awaitStuckTaint(ctx, w)
				},
			},
			{
				Name: "the doctor names it, too", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					_, err := awaitRemedy(ctx, w, "nodes-stuck-taint", "Node ", "cloud controller manager")
					return err
				},
			},
			{
				// What follows holds for any time; to wait twice for the default one proves no more.
				Name: "start the controller anew, to name a taint that stays after 10 s", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					w.SetEnv("USUAL_TAINT_TIME", taintGracePeriod.String())
					return errors.Join(w.StopController(ctx), w.StartController(ctx))
				},
			},
			{
				Name: "another node is bought once for the pod, and no third", Timeout: 2 * time.Minute,
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
				Name: "the cloud controller manager is back: the pod runs, without a restart", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					w.StartCloudController()
					return awaitPodsRunning(ctx, w, app, 1)
				},
			},
			slowCloudController(),
			{Name: "the taint came back to no node", Timeout: time.Second, Run: back.none},
			deleteAll(app, manifests.Default),
		},
	}
}

// slowCloudController is a cloud controller manager that works, and takes longer over a crowd of nodes than a taint may stay.
func slowCloudController() Step {
	const nodes, rate = 10, 0.5
	return Step{
		Name:    "the cloud controller manager is slow, and ten nodes join at once: they are late, say so, and no other is launched",
		Timeout: 90 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			w.SlowCloudController(rate)
			defer w.SlowCloudController(0)
			before := len(w.Instances())
			if err := apply(ctx, w, manifests.OnePerNode, map[string]string{"REPLICAS": fmt.Sprint(nodes)}); err != nil {
				return err
			}
			if err := awaitPodsRunning(ctx, w, "lonely", nodes); err != nil {
				return err
			}
			if n := len(w.Instances()) - before; n > nodes {
				return fmt.Errorf("%d instances were launched for %d pods", n, nodes)
			}
			if err := awaitEvent(ctx, w, "", "TaintLate"); err != nil {
				return err
			}
			return w.Scale(ctx, "lonely", 0)
		},
	}
}

// awaitEvent waits for an event with a reason on an object, any object if it has no name.
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

// awaitStuckTaint waits until a NodeClaim says which taint its node waits for, and whose it is.
func awaitStuckTaint(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		last := errors.New("there is no NodeClaim")
		for _, c := range claims.Items {
			initialized, registered := findCondition(c.Status.Conditions, karpv1.ConditionInitialized), findCondition(c.Status.Conditions, karpv1.ConditionRegistered)
			if initialized.Reason != "TaintStuck" || !strings.Contains(initialized.Message, uninitialized) || !strings.Contains(initialized.Message, "cloud controller manager") {
				last = fmt.Errorf("NodeClaim %s: Initialized=%s %s %s", c.Name, initialized.Status, initialized.Reason, initialized.Message)
				continue
			}
			after := time.Since(registered.LastTransitionTime.Time)
			w.Note("named %.0f s after the node joined", after.Seconds())
			if after > reportWithin+2*time.Second { // the condition's time is in whole seconds, and the claim is seen a moment later
				return fmt.Errorf("NodeClaim %s: named %v after its node joined", c.Name, after)
			}
			return nil
		}
		return last
	})
}
