package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	labnode "github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// acceleratedHardwareReady is the condition of the EKS node monitoring agent for faults of GPUs.
const acceleratedHardwareReady corev1.NodeConditionType = "AcceleratedHardwareReady"

// rebootPolicies reboot a node for a GPU fault that is five seconds old, and give its pods ten seconds to leave.
const rebootPolicies = `[{"condition": "AcceleratedHardwareReady", "status": "False", "reason": "XID63", "toleration": "5s",
  "terminationGracePeriod": "10s", "action": "RebootNode"}]`

// rebooted is a node with a GPU that fails.
type rebooted struct {
	node, claim, instance string
	before                int // reboots of the instance
}

// rebootForRepair lets GPUs fail in ways that a reboot clears, or does not.
func rebootForRepair() Scenario {
	const nodes = 4
	s := newDisruptionFixture()
	reboots := Step{
		Name: "enable the feature gate RebootForRepair", Timeout: time.Second,
		Run: func(_ context.Context, w *World) error {
			w.SetEnv("AWS_FEATURE_GATES", "RebootForRepair=true")
			return nil
		},
	}
	steps := append(
		append([]Step{enableRepair(), reboots}, s.setUp()...),
		repairBy("the NodePool reboots nodes for XID63", rebootPolicies),
		s.fill(nodes, nodes, 0),
		Step{
			Name:    "a GPU has a fault that a reboot clears: the node is rebooted, and no instance is launched for its pods",
			Timeout: 90 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				r, err := failGPU(ctx, w, 0, true)
				if err != nil {
					return err
				}
				return s.awaitRebooted(ctx, w, r, nodes)
			},
		},
		Step{
			Name:    "again, with the controller killed at four points of the reboot: EC2 reboots the instance once",
			Timeout: 3 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				var r rebooted
				err := killInTurn(ctx, w, rebootKillPoints(), func() (err error) {
					r, err = failGPU(ctx, w, 1, true)
					return err
				})
				if err != nil {
					return err
				}
				return s.awaitRebooted(ctx, w, r, nodes)
			},
		},
		Step{
			Name:    "a GPU has a fault that no reboot clears: after two reboots the node is replaced",
			Timeout: 4 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				r, err := failGPU(ctx, w, 2, false)
				if err != nil {
					return err
				}
				if err := nodesGone(ctx, w, []string{r.node}); err != nil {
					return err
				}
				if got := r.reboots(w); got != 2 {
					return fmt.Errorf("instance %s was rebooted %d times before it was replaced, want 2", r.instance, got)
				}
				return errors.Join(awaitPaired(ctx, w), s.awaitPods(ctx, w))
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:      "reboot-for-repair",
		Summary:   "GPUs fail: nodes are rebooted, once each, also by a controller that is killed; what a reboot does not clear is replaced",
		Configure: func(cfg *world.Config) { cfg.RebootForRepair = true },
		Steps:     steps,
	}
}

// failGPU lets the GPU of the nth oldest node fail.
func failGPU(ctx context.Context, w *World, n int, cleared bool) (rebooted, error) {
	nodes, err := oldestNodes(ctx, w, n+1)
	if err != nil {
		return rebooted{}, err
	}
	r := rebooted{node: nodes[n].Name, instance: world.InstanceID(nodes[n].Spec.ProviderID)}
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return r, err
	}
	for _, c := range claims.Items {
		if c.Status.ProviderID == nodes[n].Spec.ProviderID {
			r.claim = c.Name
		}
	}
	r.before = r.reboots(w)
	w.Fail(r.instance, labnode.Fault{
		Condition: acceleratedHardwareReady, Reason: "XID63", Message: "row remapping failed", ClearedByReboot: cleared,
	})
	return r, nil
}

// reboots is how often EC2 has rebooted the instance.
func (r rebooted) reboots(w *World) int {
	for _, i := range w.Instances() {
		if i.ID == r.instance {
			return i.Reboots
		}
	}
	return 0
}

// awaitRebooted waits until the node has come back and its pods run, and checks that nothing else has changed.
func (s *disruptionFixture) awaitRebooted(ctx context.Context, w *World, r rebooted, nodes int) error {
	begin := time.Now()
	err := world.Until(ctx, func() error { return r.back(ctx, w) })
	if err != nil {
		return err
	}
	w.Note("back after %.1f s", time.Since(begin).Seconds())
	if got := r.reboots(w) - r.before; got != 1 {
		return fmt.Errorf("instance %s was rebooted %d times, want once", r.instance, got)
	}
	if err := errors.Join(s.awaitPods(ctx, w), awaitPaired(ctx, w)); err != nil {
		return err
	}
	if launched := len(w.Instances()); launched != nodes {
		return fmt.Errorf("%d instances were launched, want the first %d only", launched, nodes)
	}
	return nil
}

// back returns nil once the node is healthy, initialized and open to pods.
func (r rebooted) back(ctx context.Context, w *World) error {
	claim, node := &karpv1.NodeClaim{}, &corev1.Node{}
	err := errors.Join(
		w.Client.Get(ctx, client.ObjectKey{Name: r.claim}, claim),
		w.Client.Get(ctx, client.ObjectKey{Name: r.node}, node),
	)
	if err != nil {
		return err
	}
	last, known := condition.Get(claim, karpv1.ConditionRebooting)
	switch {
	case !known || last.Reason != karpv1.RebootSucceeded:
		return fmt.Errorf("condition Rebooting of NodeClaim %s is %s %s", r.claim, last.Status, last.Reason)
	case !condition.IsTrue(claim, karpv1.ConditionInitialized):
		return fmt.Errorf("NodeClaim %s is not initialized again", r.claim)
	case nodeFenced(node):
		return fmt.Errorf("node %s still has the taint of the reboot", r.node)
	}
	return awaitNodeCondition(ctx, w, r.node, acceleratedHardwareReady, corev1.ConditionTrue)
}

func nodeFenced(o client.Object) bool {
	node, ok := o.(*corev1.Node)
	return ok && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.TaintKeyRebooting })
}

// rebootKillPoints are the points between the decision and the end of a reboot.
func rebootKillPoints() []killPoint {
	rebooting := func(reason string) func(client.Object) bool {
		return func(o client.Object) bool {
			claim, ok := o.(*karpv1.NodeClaim)
			if !ok {
				return false
			}
			c, _ := condition.Get(claim, karpv1.ConditionRebooting)
			return c.Reason == reason && c.Status == "True"
		}
	}
	return []killPoint{
		{name: "the reboot is decided", nth: 1, object: rebooting(karpv1.RebootRequested)},
		{name: "the node is fenced", nth: 1, object: nodeFenced},
		{name: "RebootInstances has taken effect", nth: 1, call: controllerCall("RebootInstances")},
		{name: "the reboot is recorded as issued", nth: 1, object: rebooting(karpv1.RebootIssued)},
	}
}
