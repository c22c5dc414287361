package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// deletionCost scales a Deployment down: the ReplicaSet removes the pods of the nodes that would be consolidated next.
func deletionCost() Scenario {
	const replicas = 7
	s := newDisruptionFixture()
	s.pool["CONSOLIDATE_AFTER"], s.pool["BUDGET"] = "1h", "100%" // no node goes by itself
	enable := Step{
		Name: "enable the feature gate PodDeletionCostManagement, and permit to patch pods", Timeout: 10 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			w.SetFeatureGates("PodDeletionCostManagement=true")
			return apply(ctx, w, manifests.PatchPods, nil)
		},
	}
	steps := append(
		append([]Step{enable}, s.setUp()...),
		s.fill(2, 0, replicas),
		Step{
			Name:    "kill the controller once it has written the first deletion cost: after its restart the pods have the order of their nodes",
			Timeout: 3 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				killed := killPoint{name: "a pod has a deletion cost", nth: 1, object: hasDeletionCost}.arm(w)
				defer killed.disarm()
				if err := killed.wait(ctx); err != nil {
					return err
				}
				if err := w.StartController(ctx); err != nil {
					return err
				}
				return world.Until(ctx, func() error {
					_, err := removalOrder(ctx, w, storeApp)
					return err
				})
			},
		},
		Step{
			Name: "scale down by the pods of one node, then of another: just these go", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				order, err := removalOrder(ctx, w, storeApp)
				if err != nil {
					return err
				}
				for _, n := range order[:2] {
					if err := s.scaleDown(ctx, w, n); err != nil {
						return err
					}
					w.Note("%d pods of node %s went", len(n.pods), n.node)
				}
				return nil
			},
		},
		Step{
			Name: "turn the feature gate off: no pod keeps a deletion cost", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				w.SetFeatureGates("")
				if err := errors.Join(w.StopController(ctx), w.StartController(ctx)); err != nil {
					return err
				}
				return world.Until(ctx, func() error {
					all, err := pods(ctx, w, storeApp)
					if err == nil && slices.ContainsFunc(all, func(p corev1.Pod) bool { return hasDeletionCost(&p) }) {
						err = errors.New("pods still have deletion costs")
					}
					return err
				})
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "deletion-cost",
		Summary: "a Deployment is scaled down: the pods of the nodes that would be consolidated next go first",
		Steps:   steps,
	}
}

func hasDeletionCost(o client.Object) bool {
	_, ours := o.GetAnnotations()[karpv1.AnnotationOwnDeletionCost]
	_, set := o.GetAnnotations()[corev1.PodDeletionCost]
	return ours && set
}

// nodePods are the pods of an app on a node.
type nodePods struct {
	node string
	cost int64 // of all of them
	pods []string
}

// removalOrder returns the nodes of an app's pods in the order in which a scale-down removes their pods. The error states
// that the order is not complete: two nodes have the same deletion cost, or the pods of a node differ in theirs.
func removalOrder(ctx context.Context, w *World, app string) ([]nodePods, error) {
	all, err := pods(ctx, w, app)
	if err != nil {
		return nil, err
	}
	byNode := map[string]*nodePods{}
	for _, p := range all {
		cost, _ := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32) // 0 without one, as for the ReplicaSet
		n := byNode[p.Spec.NodeName]
		if n == nil {
			n = &nodePods{node: p.Spec.NodeName, cost: cost}
			byNode[n.node] = n
		}
		if n.cost != cost {
			return nil, fmt.Errorf("pods on node %s have deletion costs %d and %d", n.node, n.cost, cost)
		}
		n.pods = append(n.pods, p.Name)
	}
	var out []nodePods
	for _, name := range slices.Sorted(maps.Keys(byNode)) {
		out = append(out, *byNode[name])
	}
	slices.SortStableFunc(out, func(a, b nodePods) int { return cmp.Compare(a.cost, b.cost) })
	for i := 1; i < len(out); i++ {
		if out[i].cost == out[i-1].cost {
			return nil, fmt.Errorf("pods on nodes %s and %s have the same deletion cost %d", out[i-1].node, out[i].node, out[i].cost)
		}
	}
	return out, nil
}

// scaleDown scales the store down by the pods of one node, and checks that these and no others went.
func (s *disruptionFixture) scaleDown(ctx context.Context, w *World, n nodePods) error {
	before, err := pods(ctx, w, storeApp)
	if err != nil {
		return err
	}
	if err := s.scale(ctx, w, s.front, s.store-len(n.pods)); err != nil {
		return err
	}
	after, err := pods(ctx, w, storeApp)
	if err != nil {
		return err
	}
	left := map[string]bool{}
	for _, p := range after {
		left[p.Name] = true
	}
	for _, p := range before {
		if leaves := slices.Contains(n.pods, p.Name); leaves == left[p.Name] {
			return fmt.Errorf("pod %s on node %s: gone is %t, want %t (all pods of node %s, and no others)",
				p.Name, p.Spec.NodeName, !left[p.Name], leaves, n.node)
		}
	}
	return nil
}
