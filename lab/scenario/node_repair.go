package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// tolerated is how long storage that fails is. Nodes fall sick so that all of them are due at the same time, a little later.
const (
	repairToleration = 30 * time.Minute
	repairDelay      = 5 * time.Second
)

// repair are nodes of which an agent says that their storage fails.
func repair() Scenario {
	const nodes = 10
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(nodes)) // repair knows no budget
	var sick []string
	steps := append([]Step{{Name: "allow node repair", Timeout: time.Second, Run: func(_ context.Context, w *World) error {
		w.SetFeatureGates("NodeRepair=true")
		return nil
	}}}, s.setUp()...)
	steps = append(steps,
		s.fill(nodes, nodes, 0),
		Step{Name: "the storage of one node fails: it is replaced", Timeout: 2 * time.Minute, Run: func(ctx context.Context, w *World) error {
			names, err := failStorage(ctx, w, 1)
			if err != nil {
				return err
			}
			begin := time.Now()
			s.invariants.requireReady(frontApp, 0) // its pods are not asked
			if err := errors.Join(nodesGone(ctx, w, names), s.awaitPods(ctx, w)); err != nil {
				return err
			}
			w.Note("replaced after %.1f s", time.Since(begin).Seconds())
			return nil
		}},
		Step{Name: "that of three of ten fails: this is no matter of single nodes, and none is replaced", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			var err error
			if sick, err = failStorage(ctx, w, 3); err != nil {
				return err
			}
			said, err := awaitEventMessage(ctx, w, "Node", "", "NodeRepairBlocked")
			if err != nil {
				return err
			}
			w.Note("%s", said)
			for _, name := range sick {
				if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}); err != nil {
					return err
				}
			}
			return s.awaitPods(ctx, w)
		}},
		Step{Name: "one of them gets well by itself: it stays", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			if err := setStorageReady(ctx, w, sick[0], corev1.ConditionTrue, time.Now()); err != nil {
				return err
			}
			if err := errors.Join(awaitPaired(ctx, w), s.awaitPods(ctx, w)); err != nil {
				return err
			}
			return errors.Join(w.Client.Get(ctx, client.ObjectKey{Name: sick[0]}, &corev1.Node{}), s.invariants.check(w))
		}},
		s.tearDown(),
	)
	return Scenario{Name: "repair", Summary: "nodes that an agent calls sick: one is replaced, three of ten are not", Steps: steps}
}

// failStorage has the agents of so many healthy nodes report that their storage fails.
func failStorage(ctx context.Context, w *World, n int) ([]string, error) {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return nil, err
	}
	if len(nodes.Items) < n {
		return nil, fmt.Errorf("there are only %d nodes", len(nodes.Items))
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var names []string
	since := time.Now().Add(repairDelay - repairToleration)
	for _, node := range nodes.Items[:n] {
		if err := setStorageReady(ctx, w, node.Name, corev1.ConditionFalse, since); err != nil {
			return nil, err
		}
		names = append(names, node.Name)
	}
	return names, nil
}

// setStorageReady is what EKS's node monitoring agent reports.
func setStorageReady(ctx context.Context, w *World, name string, status corev1.ConditionStatus, since time.Time) error {
	node := &corev1.Node{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	node.Status.Conditions = append(slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "StorageReady" }),
		corev1.NodeCondition{
			Type: "StorageReady", Status: status, Reason: "EBSVolumeImpaired", Message: "reads time out",
			LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.Now(),
		})
	if err := w.Client.Status().Patch(ctx, node, client.StrategicMergeFrom(before)); err != nil {
		return fmt.Errorf("report of Node %s: %w", name, err)
	}
	return nil
}

// nodesGone waits until the Nodes have gone.
func nodesGone(ctx context.Context, w *World, names []string) error {
	return world.Until(ctx, func() error {
		var nodes corev1.NodeList
		if err := list(ctx, w, &nodes); err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if slices.Contains(names, n.Name) {
				return fmt.Errorf("node %s is still there", n.Name)
			}
		}
		return nil
	})
}
