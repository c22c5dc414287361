package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

const (
	localApp     = "local"
	localDriver  = "lis.csi.aws.com"
	localClass   = "instance-store"
	selectedNode = "volume.kubernetes.io/selected-node"
)

// localDisks are the disks of the cheapest types of manifests.InstanceStore. A volume of 200 GB needs an m5d.2xlarge at least, and no m5
// has any disk.
var localDisks = map[string]string{"m5d.large": "75G", "m5d.xlarge": "150G", "m5d.2xlarge": "300G", "m5d.4xlarge": "600G"}

// localStorage gives pods volumes on the disks of their nodes.
func localStorage() Scenario {
	const replicas = 2
	return Scenario{
		Name: "local-storage",
		Summary: "pods with volumes of 200 GB on instance disks get a type whose disks hold them, before any driver has " +
			"published its storage",
		Background: runLocalDriver,
		Steps: []Step{
			startController(),
			{
				Name: "create NodePool, CSI driver, and pods with a volume each: all run", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.InstanceStore, map[string]string{"REPLICAS": fmt.Sprint(replicas)}); err != nil {
						return err
					}
					return awaitPodsRunning(ctx, w, localApp, replicas)
				},
			},
			{
				Name: "the disks of each node hold its volumes, and no node was launched in vain", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					var nodes corev1.NodeList
					if err := list(ctx, w, &nodes); err != nil {
						return err
					}
					if err := disksHold(ctx, w, nodes.Items); err != nil {
						return err
					}
					if n := len(w.History.Claims()); n != len(nodes.Items) {
						return fmt.Errorf("%d NodeClaims were created in total, and there are %d nodes", n, len(nodes.Items))
					}
					return errors.Join(noIdleNodes(ctx, w, localApp), oneInstancePerClaim(w))
				},
			},
		},
	}
}

// disksHold checks that each node has disks, and that these are as large as the volumes on them together.
func disksHold(ctx context.Context, w *World, nodes []corev1.Node) error {
	var volumes corev1.PersistentVolumeList
	if err := w.Client.List(ctx, &volumes); err != nil {
		return err
	}
	for i := range nodes {
		n := &nodes[i]
		size, known := localDisks[n.Labels[corev1.LabelInstanceTypeStable]]
		if !known {
			return fmt.Errorf("node %s is an %s, whose disks are not known", n.Name, n.Labels[corev1.LabelInstanceTypeStable])
		}
		left := resource.MustParse(size)
		for k := range volumes.Items {
			if v := &volumes.Items[k]; v.Labels["example.com/node"] == n.Name {
				left.Sub(*v.Spec.Capacity.Storage())
			}
		}
		if left.Sign() < 0 {
			return fmt.Errorf("the volumes on node %s are larger than its disks of %s by %s", n.Name, size, left.String())
		}
	}
	return nil
}

// runLocalDriver is the CSI driver for instance disks: it publishes what is left of each node's disks, two seconds after the node is there,
// and makes volumes for claims that have a node.
func runLocalDriver(ctx context.Context, w *World) error {
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true /* immediate */, func(ctx context.Context) (bool, error) {
		var nodes corev1.NodeList
		if err := w.Client.List(ctx, &nodes); err != nil {
			return false, err
		}
		for i := range nodes.Items {
			if n := &nodes.Items[i]; time.Since(n.CreationTimestamp.Time) > 2*time.Second {
				if err := publishDisks(ctx, w, n); err != nil {
					return false, err
				}
			}
		}
		return false, makeLocalVolumes(ctx, w)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// publishDisks publishes the size of the largest volume that the node's disks have room for, less the volumes that are on them.
func publishDisks(ctx context.Context, w *World, n *corev1.Node) error {
	size, known := localDisks[n.Labels[corev1.LabelInstanceTypeStable]]
	if !known {
		return nil
	}
	left := resource.MustParse(size)
	var volumes corev1.PersistentVolumeList
	if err := w.Client.List(ctx, &volumes); err != nil {
		return err
	}
	for i := range volumes.Items {
		if v := &volumes.Items[i]; v.Labels["example.com/node"] == n.Name {
			left.Sub(*v.Spec.Capacity.Storage())
		}
	}
	c := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "instance-store-" + n.Name}, StorageClassName: localClass,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: n.Labels[corev1.LabelHostname]}},
		Capacity:     &left,
	}
	err := w.Client.Create(ctx, c)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	have := &storagev1.CSIStorageCapacity{}
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(c), have); err != nil || have.Capacity.Cmp(left) == 0 {
		return client.IgnoreNotFound(err)
	}
	have.Capacity = &left
	return w.Client.Update(ctx, have)
}

// makeLocalVolumes makes a volume for each claim of the class for which kube-scheduler has selected a node.
func makeLocalVolumes(ctx context.Context, w *World) error {
	var claims corev1.PersistentVolumeClaimList
	if err := w.Client.List(ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		node := c.Annotations[selectedNode]
		if node == "" || c.Spec.VolumeName != "" || c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != localClass {
			continue
		}
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + string(c.UID), Labels: map[string]string{"example.com/node": node},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": localDriver},
		}}
		v.Spec = corev1.PersistentVolumeSpec{
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: localClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/" + strings.ToLower(c.Name)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				},
			}}}},
		}
		if err := w.Client.Create(ctx, v); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
