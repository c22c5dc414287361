package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// nodeLifecycle empties three nodes with a budget of one, and announces a maintenance of the last of them by price and name. It goes first,
// and its drain is shown on the Node, with the permission that the chart gives.
func nodeLifecycle() Scenario {
	const nodes = 3
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(1))
	s.pool["BUDGET"] = `"0"`
	var planned string
	steps := append(
		append([]Step{{
			Name: "enable the feature gate NodeLifecycleConditions, and permit to patch the status of Nodes", Timeout: 10 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				w.SetFeatureGates("NodeLifecycleConditions=true")
				return apply(ctx, w, manifests.PatchNodeStatus, nil)
			},
		}}, s.setUp()...),
		s.fill(nodes, nodes, 0),
		Step{
			Name: "plan a maintenance of the node that would go last, and empty all: it goes first", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) (err error) {
				if planned, err = planMaintenance(ctx, w); err != nil {
					return err
				}
				if err := s.scale(ctx, w, 0, 0); err != nil {
					return err
				}
				if err := s.applyPool(ctx, w, map[string]string{"BUDGET": `"1"`}); err != nil {
					return err
				}
				first, err := firstToGo(ctx, w)
				if err == nil && first != planned {
					err = fmt.Errorf("node %s goes first, want %s", first, planned)
				}
				return err
			},
		},
		Step{
			Name: "its Node has the conditions of a drain that is over, before its instance is gone", Timeout: 30 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				if err := awaitNodeCondition(ctx, w, planned, corev1.NodeDrained, corev1.ConditionTrue); err != nil {
					return err
				}
				// It has been True: without it, no False is written.
				return awaitNodeCondition(ctx, w, planned, corev1.NodeDrainInProgress, corev1.ConditionFalse)
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "node-lifecycle",
		Summary: "of three empty nodes the one with a planned maintenance goes first, and its drain is a condition of the Node",
		Steps:   steps,
	}
}

// planMaintenance announces a maintenance of the last node by name, and returns the name.
func planMaintenance(ctx context.Context, w *World) (string, error) {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return "", err
	}
	node := slices.MaxFunc(nodes.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"Lab","message":"A kernel update."}]}}`,
		corev1.NodeMaintenancePlanned)
	return node.Name, w.Client.Status().Patch(ctx, &node, client.RawPatch(types.StrategicMergePatchType, patch))
}

// firstToGo waits until a Node is being deleted, and returns its name.
func firstToGo(ctx context.Context, w *World) (name string, err error) {
	err = world.Until(ctx, func() error {
		var nodes corev1.NodeList
		if err := list(ctx, w, &nodes); err != nil {
			return err
		}
		for i := range nodes.Items {
			if nodes.Items[i].DeletionTimestamp != nil {
				name = nodes.Items[i].Name
				return nil
			}
		}
		return fmt.Errorf("none of %d nodes is being deleted", len(nodes.Items))
	})
	return name, err
}
