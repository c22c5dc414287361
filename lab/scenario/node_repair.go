package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	labnode "github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// storageReady is a condition of the EKS node monitoring agent.
const storageReady corev1.NodeConditionType = "StorageReady"

// repairPolicies let the NodePool tolerate failed storage for five seconds, in place of 30 minutes.
const repairPolicies = `[{"condition": "StorageReady", "status": "False", "reason": ".*", "toleration": "5s",
  "terminationGracePeriod": "10m", "action": "ReplaceNode"}]`

// repair lets the node monitoring agent report failed storage.
func repair() Scenario {
	const nodes = 10
	s := newDisruptionFixture()
	var failed []string
	steps := append(
		append([]Step{enableRepair()}, s.setUp()...),
		repairBy("the NodePool tolerates failed storage for 5 s", repairPolicies),
		s.fill(nodes, nodes, 0),
		Step{
			Name:    "the storage of one node fails: its replacement is ready before it goes, and budgets of pods hold",
			Timeout: 2 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				names, err := failStorage(ctx, w, 1)
				if err != nil {
					return err
				}
				begin := time.Now()
				if err := errors.Join(nodesGone(ctx, w, names), s.awaitPods(ctx, w)); err != nil {
					return err
				}
				w.Note("replaced after %.1f s", time.Since(begin).Seconds())
				return nil
			},
		},
		Step{
			Name:    "the storage of three of ten nodes fails: repair is blocked, and no node is replaced",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				var err error
				if failed, err = failStorage(ctx, w, 3); err != nil {
					return err
				}
				message, err := awaitEventMessage(ctx, w, "Node", "", "NodeRepairBlocked")
				if err != nil {
					return err
				}
				w.Note("%s", message)
				for _, name := range failed {
					if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}); err != nil {
						return err
					}
				}
				return s.awaitPods(ctx, w)
			},
		},
		Step{
			Name:    "the storage of one of them recovers: the node stays",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				node := &corev1.Node{}
				if err := w.Client.Get(ctx, client.ObjectKey{Name: failed[0]}, node); err != nil {
					return err
				}
				w.Recover(world.InstanceID(node.Spec.ProviderID), storageReady)
				if err := awaitNodeCondition(ctx, w, node.Name, storageReady, corev1.ConditionTrue); err != nil {
					return err
				}
				if err := errors.Join(awaitPaired(ctx, w), s.awaitPods(ctx, w)); err != nil {
					return err
				}
				return errors.Join(w.Client.Get(ctx, client.ObjectKey{Name: failed[0]}, &corev1.Node{}), s.invariants.check(w))
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "repair",
		Summary: "the node monitoring agent reports failed storage: one node is replaced, three of ten are not",
		Steps:   steps,
	}
}

// enableRepair turns node repair on.
func enableRepair() Step {
	return Step{Name: "enable the feature gate NodeRepair", Timeout: time.Second, Run: func(_ context.Context, w *World) error {
		w.SetFeatureGates("NodeRepair=true")
		return nil
	}}
}

// repairBy gives the NodePools repair policies.
func repairBy(name, policies string) Step {
	return Step{Name: name, Timeout: 10 * time.Second, Run: func(ctx context.Context, w *World) error {
		return annotatePools(ctx, w, karpv1.AnnotationRepairPolicies, policies)
	}}
}

// failStorage lets the storage of the n oldest nodes fail.
func failStorage(ctx context.Context, w *World, n int) ([]string, error) {
	nodes, err := oldestNodes(ctx, w, n)
	var names []string
	for _, node := range nodes {
		w.Fail(world.InstanceID(node.Spec.ProviderID), labnode.Fault{
			Condition: storageReady, Reason: "EBSVolumeImpaired", Message: "reads time out",
		})
		names = append(names, node.Name)
	}
	return names, err
}

// oldestNodes returns the n oldest nodes.
func oldestNodes(ctx context.Context, w *World, n int) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return nil, err
	}
	if len(nodes.Items) < n {
		return nil, fmt.Errorf("the cluster has only %d nodes, want %d", len(nodes.Items), n)
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return nodes.Items[:n], nil
}

// annotatePools sets an annotation of all NodePools.
func annotatePools(ctx context.Context, w *World, key, value string) error {
	var pools karpv1.NodePoolList
	if err := list(ctx, w, &pools); err != nil {
		return err
	}
	for i := range pools.Items {
		before := pools.Items[i].DeepCopy()
		metav1.SetMetaDataAnnotation(&pools.Items[i].ObjectMeta, key, value)
		if err := w.Client.Patch(ctx, &pools.Items[i], client.MergeFrom(before)); err != nil {
			return fmt.Errorf("annotate NodePool %s: %w", pools.Items[i].Name, err)
		}
	}
	return nil
}

// nodesGone waits until the Nodes are deleted.
func nodesGone(ctx context.Context, w *World, names []string) error {
	return world.Until(ctx, func() error {
		var nodes corev1.NodeList
		if err := list(ctx, w, &nodes); err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if slices.Contains(names, n.Name) {
				return fmt.Errorf("node %s still exists", n.Name)
			}
		}
		return nil
	})
}

// awaitNodeCondition waits until a condition of a Node has a status.
func awaitNodeCondition(
	ctx context.Context, w *World, name string, condition corev1.NodeConditionType, want corev1.ConditionStatus,
) error {
	return world.Until(ctx, func() error {
		node := &corev1.Node{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == condition && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("node %s does not have %s=%s", name, condition, want)
	})
}
