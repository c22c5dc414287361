package scenario

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	neverReady = "NodeNeverReady"
	// noCNI is what kubelet reports until the network plugin works.
	noCNI = "cni plugin not initialized"
)

// launchesHeldBack is the metric of the condition NodesCanJoin, which the alert DovetailLaunchesHeldBack reads.
var launchesHeldBack = regexp.MustCompile(`(?m)^operator_status_condition_count\{.*status="False",type="NodesCanJoin".*} 1$`)

// nodeNeverReady breaks the network plugin of new nodes, and repairs it later.
func nodeNeverReady() Scenario {
	const app = "sample"
	return Scenario{
		Name: "node-never-ready",
		Summary: "nodes register and never become Ready: reported with kubelet's reason, replaced once, then launches stop; " +
			"once the network plugin works, pods run",
		Steps: []Step{
			{
				Name: "start the controller, which reports a node that is not Ready after 10 s", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					w.SetEnv("STARTUP_TAINT_GRACE_PERIOD", taintGracePeriod.String())
					return w.StartController(ctx)
				},
			},
			installPool(manifests.Default, nil),
			{
				Name: "break the network plugin and create a pod: the NodeClaim has kubelet's reason", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					w.BlockNetworkPlugin()
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
						return err
					}
					return awaitNeverReady(ctx, w)
				},
			},
			{
				Name: "dovetail doctor reports the node", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					_, err := awaitRemedy(ctx, w, "nodes-never-ready", "Node ", noCNI)
					return err
				},
			},
			{
				Name: "the pod gets one other node and no third: NodePool and pod have the reason", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := awaitPoolReason(ctx, w, neverReady); err != nil {
						return err
					}
					if err := awaitPodEvents(ctx, w, app, noCNI, 1); err != nil {
						return err
					}
					if n := len(w.Instances()); n != 2 {
						return fmt.Errorf("%d instances were launched, want 2", n)
					}
					_, err := awaitMetric(ctx, w, launchesHeldBack)
					return err
				},
			},
			{
				Name: "repair the network plugin: the pod runs, without a controller restart, and the NodePool is Ready", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					w.UnblockNetworkPlugin()
					if err := awaitPodsRunning(ctx, w, app, 1); err != nil {
						return err
					}
					return awaitPoolReason(ctx, w, "")
				},
			},
			deleteAll(app, manifests.Default),
		},
	}
}

// awaitNeverReady waits until a condition of a NodeClaim and an event report that its node does not become Ready.
func awaitNeverReady(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		last := errors.New("there is no NodeClaim")
		for _, c := range claims.Items {
			initialized := findCondition(c.Status.Conditions, karpv1.ConditionInitialized)
			if initialized.Reason != neverReady || !strings.Contains(initialized.Message, noCNI) {
				last = fmt.Errorf("NodeClaim %s: Initialized=%s %s %s", c.Name, initialized.Status, initialized.Reason, initialized.Message)
				continue
			}
			return awaitEvent(ctx, w, c.Name, neverReady)
		}
		return last
	})
}

// awaitPoolReason waits until each NodePool is not Ready with this reason, or Ready if the reason is empty.
func awaitPoolReason(ctx context.Context, w *World, reason string) error {
	return world.Until(ctx, func() error {
		var pools karpv1.NodePoolList
		if err := list(ctx, w, &pools); err != nil {
			return err
		}
		for _, p := range pools.Items {
			ready := findCondition(p.Status.Conditions, karpv1.ConditionReady)
			if notReady := ready.Status != "True"; notReady != (reason != "") || notReady && ready.Reason != reason {
				return fmt.Errorf("NodePool %s: Ready=%s %s %s, want the reason %q", p.Name, ready.Status, ready.Reason, ready.Message, reason)
			}
		}
		return nil
	})
}
