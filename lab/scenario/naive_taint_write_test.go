package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// naiveTaintWrite removes the unregistered taint from a stale copy of a node. A merge patch sends the whole list of
// taints, and without a resource version the API server accepts it.
func naiveTaintWrite(ctx context.Context, w *World, read *corev1.Node) error {
	node := read.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.TaintKeyUnregistered })
	return w.Client.Patch(ctx, node, client.MergeFrom(read))
}

// The scenario uninitialized-taint fails for a writer that sends a stale list of taints: it adds the taint again that
// the cloud controller manager removed.
func TestNaiveWriterAddsTheTaintAgain(t *testing.T) {
	t.Parallel()
	returned := &returnedTaints{}
	read := make(chan *corev1.Node, 1)
	s := uninitializedTaint()
	s.Steps = []Step{
		startController(),
		installPool(manifests.Default, nil),
		watchTaint(returned),
		{Name: "create a pod and read its node as it joins", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			defer w.History.Watch(func(o client.Object, _ bool) {
				if n, ok := o.(*corev1.Node); ok && hasTaint(n, uninitialized) && hasTaint(n, karpv1.TaintKeyUnregistered) {
					select {
					case read <- n.DeepCopy():
					default: // one is enough
					}
				}
			})()
			if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
				return err
			}
			return awaitPodsRunning(ctx, w, "sample", 1)
		}},
		{Name: "the taint was removed and not added again", Timeout: time.Second, Run: returned.none},
		{
			Name:    "write the stale copy of the node: the taint is added again",
			Timeout: 20 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				select {
				case node := <-read:
					if err := naiveTaintWrite(ctx, w, node); err != nil {
						return err
					}
				default:
					return errors.New("the node was not seen with its taints")
				}
				return world.Until(ctx, func() error {
					if returned.none(ctx, w) == nil {
						return errors.New("the taint was not added again")
					}
					return nil
				})
			},
		},
		{Name: theScenarioFails, Timeout: time.Second, Run: returned.none},
	}
	if message := runNaive(t, s); !strings.Contains(message, "was added again to Node") {
		t.Errorf("the error is only: %s", message)
	}
}
