package scenario

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// podNominatedStale has pods keep the name of a node that they were nominated to, and that is gone or has no room.
func podNominatedStale() Scenario {
	return Scenario{
		Name:    "pod-nominated-stale",
		Summary: "pods with a nominatedNodeName of a node that is gone, or that has no room, get a node: the name never blocks them",
		Steps: []Step{
			{
				Name: "create a pod, which is nominated to a node that is gone", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					return nominatePod(ctx, w, "orphan", "1", "gone.ec2.internal")
				},
			},
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: "the pod runs on a new node", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error { return runsOnNode(ctx, w, "orphan", 1) },
			},
			{
				Name: "create a pod that does not fit on the node, and is nominated to it: it runs on a second one", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					var nodes corev1.NodeList
					if err := list(ctx, w, &nodes); err != nil {
						return err
					}
					if len(nodes.Items) != 1 {
						return fmt.Errorf("there are %d nodes, want one", len(nodes.Items))
					}
					if err := nominatePod(ctx, w, "large", "30", nodes.Items[0].Name); err != nil {
						return err
					}
					return runsOnNode(ctx, w, "large", 2)
				},
			},
		},
	}
}

// nominatePod creates a pod and nominates it to a node, as preemption does.
// kube-scheduler keeps the name: the pod has the preemption policy Never.
func nominatePod(ctx context.Context, w *World, name, cpu, node string) error {
	if err := apply(ctx, w, manifests.NominatedPod, map[string]string{"NAME": name, "CPU": fmt.Sprintf("%q", cpu)}); err != nil {
		return err
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = nominatedNamespace, name
	patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"status":{"nominatedNodeName":%q}}`, node)))
	if err := w.Client.Status().Patch(ctx, pod, patch); err != nil {
		return fmt.Errorf("nominate pod %s: %w", name, err)
	}
	return nil
}

// nominatedNamespace is the namespace of the manifests' pods.
const nominatedNamespace = corev1.NamespaceDefault

// runsOnNode waits until the pod runs, and checks how many nodes were launched in total.
func runsOnNode(ctx context.Context, w *World, name string, nodes int) error {
	err := world.Until(ctx, func() error {
		pod := &corev1.Pod{}
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: nominatedNamespace, Name: name}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s, nominated to %q", name, pod.Status.Phase, pod.Status.NominatedNodeName)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n := len(w.History.Claims()); n != nodes {
		return fmt.Errorf("%d NodeClaims were created in total, want %d", n, nodes)
	}
	return nil
}
