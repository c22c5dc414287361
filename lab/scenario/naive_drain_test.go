package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// naiveDrain taints a node and deletes its pods, DaemonSet pods right after the others.
func naiveDrain(ctx context.Context, w *World, name string) error {
	node := &corev1.Node{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "karpenter.sh/disrupting", Effect: corev1.TaintEffectNoSchedule})
	if err := w.Client.Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return err
	}
	for _, namespace := range []string{"default", "kube-system"} {
		err := world.Until(ctx, func() error {
			var pods corev1.PodList
			if err := w.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", name)}); err != nil {
				return err
			}
			for i := range pods.Items {
				if err := client.IgnoreNotFound(w.Client.Delete(ctx, &pods.Items[i])); err != nil {
					return err
				}
			}
			if len(pods.Items) > 0 {
				return fmt.Errorf("%d pods of %s are left", len(pods.Items), namespace)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// The scenario volume-detach-on-disruption fails for a drain that does not wait for volumes: it leaves volumes
// attached.
func TestNaiveDrainLeavesVolumesBehind(t *testing.T) {
	t.Parallel()
	const replicas = 2
	s := volumeDetach()
	s.Steps = []Step{
		startController(),
		installPool(manifests.MediumInstances, nil),
		installStorage("without a toleration for karpenter.sh/disrupted", toleratesNone),
		runDatabase(replicas, "gp3"),
		{Name: "drain a node naively: its volumes stay attached", Timeout: 2 * time.Minute, Run: func(ctx context.Context, w *World) error {
			node, _, err := busiest(ctx, w)
			if err != nil {
				return err
			}
			if err := naiveDrain(ctx, w, node); err != nil {
				return err
			}
			return world.Until(ctx, func() error {
				if noMultiAttach(ctx, w) == nil || attachmentsOf(ctx, w, node) == "" {
					return errors.New("no pod waits for a volume that is attached to another node")
				}
				return nil
			})
		}},
		{Name: theScenarioFails, Timeout: time.Second, Run: noMultiAttach},
	}
	if message := runNaive(t, s); !strings.Contains(message, waitingForDetach) {
		t.Errorf("the error is only: %s", message)
	}
}
