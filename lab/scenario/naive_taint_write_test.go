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

// naiveTaintWrite takes the registration's taint off a node as it was once read. Taints are a list, so that all of them are sent, and
// no version says which ones were meant.
func naiveTaintWrite(ctx context.Context, w *World, read *corev1.Node) error {
	node := read.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.TaintKeyUnregistered })
	return w.Client.Patch(ctx, node, client.MergeFrom(read))
}

// The world of uninitialized-taint bites: a writer that sends the whole list of a stale copy puts the taint back that the cloud
// controller manager took off, and the story would say so.
func TestNaiveWriterPutsTheTaintBack(t *testing.T) {
	t.Parallel()
	back := &returnedTaints{}
	read := make(chan *corev1.Node, 1)
	story := uninitializedTaint()
	story.Steps = []Step{
		startController(),
		installPool(manifests.Default, nil),
		watchTaint(back),
		{Name: "create a pod: its node is read as it joins", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
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
		{Name: "so far the taint went for good", Timeout: time.Second, Run: back.none},
		{Name: "the node is written as it was read then: the taint is back", Timeout: 20 * time.Second, Run: func(ctx context.Context, w *World) error {
			select {
			case node := <-read:
				if err := naiveTaintWrite(ctx, w, node); err != nil {
					return err
				}
			default:
				return errors.New("the node was not seen with its taints")
			}
			return world.Until(ctx, func() error {
				if back.none(ctx, w) == nil {
					return errors.New("the taint is not back")
				}
				return nil
			})
		}},
		{Name: theScenarioFails, Timeout: time.Second, Run: back.none},
	}
	if message := runNaive(t, story); !strings.Contains(message, "was added again to Node") {
		t.Errorf("the error is only: %s", message)
	}
}
