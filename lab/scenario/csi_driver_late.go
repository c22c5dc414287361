package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// driverLate is how long after the initialization of a node its CSI driver starts.
const driverLate = 8 * time.Second

// csiDriverLate has nodes be Ready before their CSI driver registers, without which kube-scheduler refuses pods with its volumes.
func csiDriverLate() Scenario {
	return Scenario{
		Name: "csi-driver-late",
		Summary: fmt.Sprintf("a node is ready %.0f s before its CSI driver, without which kube-scheduler refuses its pods: "+
			"no other node is launched meanwhile", driverLate.Seconds()),
		Steps: []Step{
			startController(),
			installPool(manifests.MediumInstances, nil),
			{
				Name: "install a CSI driver that must be registered, and whose pods wait", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Storage, map[string]string{"TOLERATIONS": toleratesAll}); err != nil {
						return err
					}
					driver, daemons := &storagev1.CSIDriver{}, client.RawPatch(types.StrategicMergePatchType, []byte(
						`{"spec":{"template":{"spec":{"schedulingGates":[{"name":"example.com/late"}]}}}}`,
					))
					driver.Name = "ebs.csi.aws.com"
					must := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"preventPodSchedulingIfMissing":true}}`))
					set, err := w.DaemonSet(ctx, "kube-system", "ebs-csi-node")
					if err != nil {
						return err
					}
					return errors.Join(w.Client.Patch(ctx, driver, must), w.Client.Patch(ctx, set, daemons))
				},
			},
			{
				Name: "create a pod with a volume: its node is initialized, and kube-scheduler refuses it", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Database, database(1, "gp3")); err != nil {
						return err
					}
					return world.Until(ctx, func() error {
						nodes, err := initializedNodes(ctx, w)
						if err != nil {
							return err
						}
						if len(nodes) != 1 {
							return fmt.Errorf("%d nodes are initialized, want one", len(nodes))
						}
						return nil
					})
				},
			},
			{
				Name: "the driver registers: the pod runs on that node, and no other was launched", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := startDriverLate(ctx, w); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, databaseApp, 1); err != nil {
						return err
					}
					if n := len(w.History.Claims()); n != 1 {
						return fmt.Errorf("%d NodeClaims were created, want one", n)
					}
					return oneInstancePerClaim(w)
				},
			},
		},
	}
}

// initializedNodes are the nodes with the label that the controller sets once they are ready for use.
func initializedNodes(ctx context.Context, w *World) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	err := w.Client.List(ctx, &nodes, client.MatchingLabels{karpv1.LabelInitialized: "true"})
	return nodes.Items, err
}

// startDriverLate lets the driver's pods start once the node has been initialized for driverLate, by the pod's own age.
func startDriverLate(ctx context.Context, w *World) error {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	err := world.Until(ctx, func() error {
		for i := range claims.Items {
			for _, c := range claims.Items[i].Status.Conditions {
				if c.Type == karpv1.ConditionInitialized && time.Since(c.LastTransitionTime.Time) < driverLate {
					return errors.New("the driver is not to start yet")
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := w.Client.List(ctx, &pods, client.InNamespace("kube-system"), client.MatchingLabels{"app": "ebs-csi-node"}); err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errors.New("the DaemonSet of the driver has no pods")
	}
	ungate := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`))
	for i := range pods.Items {
		if err := w.Client.Patch(ctx, &pods.Items[i], ungate); err != nil {
			return fmt.Errorf("remove the gate of pod %s: %w", pods.Items[i].Name, err)
		}
	}
	return nil
}
