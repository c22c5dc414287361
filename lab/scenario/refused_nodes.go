package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	// mostRefused is how many nodes are launched at most for pods that each node refuses.
	mostRefused = 3
	// taintStays is how long the taint of another component stays on the first node of the pool late, and taintsApart how much longer on each
	// other: kube-scheduler binds pods that the second was launched for to the first, and passes come in between.
	taintStays, taintsApart = 14 * time.Second, 10 * time.Second
	// refusedGracePeriod is the grace period of startup taints: longer than the taint of the second node stays.
	refusedGracePeriod = 35 * time.Second
	// thirdPause is how long after the third node a fourth would be launched, if pauses went on doubling.
	thirdPause = 2 * time.Minute
)

// refusingPools are the NodePools with nodes that refuse their pods, with the reason of the condition and a part of its message. Where the
// node suits its pods as far as a plan can see, it is kept for a while, and no other is launched meanwhile: state is that of its pods.
var refusingPools = []struct{ name, reason, message, state string }{
	{"tainted", "NodeTainted", "node.cilium.io/agent-not-ready:NoSchedule", "held"},
	{"relabeled", "NodeLabelsDiffer", "example.com/tier=silver", "held"},
	{"small", "NodeTooSmall", "of cpu left for the pod", "held"},
	{"unbindable", "SchedulerRefuses", "nodes that were scanned", "waiting"},
}

// refusedNodes makes nodes refuse the pods that they are launched for, for causes that no plan can know.
func refusedNodes(fleet Fleet) Scenario {
	watched := fleet.paced(thirdPause)
	return Scenario{
		Name: "refused-nodes",
		Summary: "new nodes get a taint, lose a label, have less CPU than the catalog says, or pods cannot be bound to them: " +
			"at most three nodes each, with the cause on pod and NodePool; taints that go one after the other are waited for",
		Long: true, PlantsRefusals: true, Background: removeLateTaints,
		Steps: []Step{
			{Name: "start the controller", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error {
				w.SetEnv("STARTUP_TAINT_GRACE_PERIOD", refusedGracePeriod.String())
				return errors.Join(apply(ctx, w, manifests.NodeFaults, nil), w.StartController(ctx))
			}},
			{
				Name: "four pods that need two nodes, which lose the taint of another component 10 s apart: two are launched", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.RefusedNodes, map[string]string{"NAME": "late", "REPLICAS": "4"}); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, "late", 4); err != nil {
						return err
					}
					if n := len(w.History.Claims()); n != 2 {
						return fmt.Errorf("%d nodes were launched, want 2", n)
					}
					return nil
				},
			},
			{
				Name: "pods that each node refuses, for four causes: event, condition and metric have the cause", Timeout: 3 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					for _, pool := range refusingPools {
						if err := apply(ctx, w, manifests.RefusedNodes, map[string]string{"NAME": pool.name, "REPLICAS": "2"}); err != nil {
							return err
						}
					}
					return awaitRefusals(ctx, w)
				},
			},
			{
				Name: "kill the controller, which goes on counting", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return errors.Join(w.KillController(), w.StartController(ctx))
				},
			},
			{
				Name: "at most three nodes were launched for each cause: the pods are held", Timeout: 6 * time.Minute,
				Run: awaitPodsHeld,
			},
			{
				Name: fmt.Sprintf("no fourth node is launched within %v, and another pod gets a node at once", watched), Timeout: 4 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.RefusedNodes, map[string]string{"NAME": "other", "REPLICAS": "1"}); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, "other", 1); err != nil {
						return err
					}
					return staysHeld(ctx, w, watched)
				},
			},
			{
				Name: "remove what taints the nodes, and the history: the pods run, and the condition goes", Timeout: 2 * time.Minute,
				Run: mendTainted,
			},
		},
	}
}

// removeLateTaints removes the taint from nodes of the pool late, as its component does.
func removeLateTaints(ctx context.Context, w *World) error {
	err := wait.PollUntilContextCancel(ctx, time.Second, true /* immediate */, func(ctx context.Context) (bool, error) {
		var nodes corev1.NodeList
		if err := w.Client.List(ctx, &nodes, client.MatchingLabels{karpv1.LabelNodePool: "late"}); err != nil {
			return false, err
		}
		for i := range nodes.Items {
			if n := &nodes.Items[i]; time.Since(n.CreationTimestamp.Time) > taintStays+time.Duration(i)*taintsApart {
				if err := removeAgentTaint(ctx, w, n); client.IgnoreNotFound(err) != nil {
					return false, err
				}
			}
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// removeAgentTaint removes the taint that the admission policy has added to a node.
func removeAgentTaint(ctx context.Context, w *World, node *corev1.Node) error {
	for i, t := range node.Spec.Taints {
		if t.Key != "node.cilium.io/agent-not-ready" {
			continue
		}
		path := fmt.Sprintf("/spec/taints/%d", i)
		text, err := json.Marshal([]map[string]string{
			{"op": "test", "path": path + "/key", "value": t.Key}, {"op": "remove", "path": path},
		})
		if err != nil {
			return err
		}
		return w.Client.Patch(ctx, node, client.RawPatch(types.JSONPatchType, text))
	}
	return nil
}

// launchedFor counts the nodes that were launched in a pool, whether they still exist or not.
func launchedFor(w *World, pool string) int {
	n := 0
	for _, c := range w.History.Claims() {
		if strings.HasPrefix(c.Name, pool+"-") {
			n++
		}
	}
	return n
}

// awaitRefusals waits until each pool's condition, an event on a pod, and the metric have the cause.
func awaitRefusals(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		metrics, err := w.Metrics(ctx)
		if err != nil {
			return err
		}
		var events corev1.EventList
		if err := list(ctx, w, &events); err != nil {
			return err
		}
		for _, want := range refusingPools {
			if err := refused(ctx, w, want.name, want.reason, want.message); err != nil {
				return err
			}
			if !strings.Contains(metrics, fmt.Sprintf("dovetail_refused_nodes_total{cause=%q,nodepool=%q}", want.reason, want.name)) {
				return fmt.Errorf("no metric counts a node of pool %s that refuses its pods", want.name)
			}
			if !hasPodEvent(events.Items, want.name, want.message) {
				return fmt.Errorf("no event %s on a pod of %s has %q", karpv1.ConditionPodsRefused, want.name, want.message)
			}
		}
		return nil
	})
}

func hasPodEvent(events []corev1.Event, app, message string) bool {
	for _, e := range events {
		if e.InvolvedObject.Kind == "Pod" && strings.HasPrefix(e.InvolvedObject.Name, app+"-") &&
			e.Reason == karpv1.ConditionPodsRefused && strings.Contains(e.Message, message) {
			return true
		}
	}
	return false
}

// refused returns an error unless the condition of the pool has the cause.
func refused(ctx context.Context, w *World, pool, reason, message string) error {
	got := &karpv1.NodePool{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: pool}, got); err != nil {
		return err
	}
	c := findCondition(got.Status.Conditions, karpv1.ConditionPodsRefused)
	if c.Status != "True" || c.Reason != reason || !strings.Contains(c.Message, message) {
		return fmt.Errorf("NodePool %s: %s=%s %s: %s; want %s with %q",
			pool, karpv1.ConditionPodsRefused, c.Status, c.Reason, c.Message, reason, message)
	}
	return nil
}

// awaitPodsHeld waits until all pods that nodes refuse are held, after as many nodes as are allowed.
func awaitPodsHeld(ctx context.Context, w *World) error {
	err := world.Until(ctx, func() error {
		metrics, err := w.Metrics(ctx)
		if err != nil {
			return err
		}
		for _, pool := range refusingPools {
			if !strings.Contains(metrics, fmt.Sprintf("dovetail_refused_pods{nodepool=%q,state=%q} 2\n", pool.name, pool.state)) {
				return fmt.Errorf("the pods of %s are not %s, after %d nodes", pool.name, pool.state, launchedFor(w, pool.name))
			}
		}
		return nil
	})
	for _, pool := range refusingPools {
		w.Note("%s: %d nodes", pool.name, launchedFor(w, pool.name))
	}
	return errors.Join(err, tooMany(w))
}

// tooMany returns an error if more nodes than are allowed were launched for pods that nodes refuse.
func tooMany(w *World) error {
	var errs []error
	for _, pool := range refusingPools {
		if n := launchedFor(w, pool.name); n > mostRefused {
			errs = append(errs, fmt.Errorf("%d nodes were launched in pool %s, want at most %d", n, pool.name, mostRefused))
		}
	}
	return errors.Join(errs...)
}

// staysHeld watches for so long that no other node is launched for refused pods.
func staysHeld(ctx context.Context, w *World, d time.Duration) error {
	end := time.Now().Add(d)
	err := world.Until(ctx, func() error {
		if rest := time.Until(end); rest > 0 && tooMany(w) == nil {
			return fmt.Errorf("%v to go", rest.Round(time.Second))
		}
		return nil
	})
	return errors.Join(err, tooMany(w))
}

// mendTainted removes what taints the nodes, and the history of the pool.
func mendTainted(ctx context.Context, w *World) error {
	if _, err := w.Shell(ctx, "kubectl delete mutatingadmissionpolicybinding foreign-taint"); err != nil {
		return err
	}
	if _, err := w.Shell(ctx, "kubectl annotate nodepool tainted dovetail.sh/refused-pods-"); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, "tainted", 2); err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		if refused(ctx, w, "tainted", "NodeTainted", "") == nil {
			return errors.New("the condition is still there")
		}
		return nil
	})
}
