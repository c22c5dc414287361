package initialization

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
)

// servedResources are requested resources that no device plugin has registered on the node, and that device classes name: kube-scheduler
// allocates devices for them, which the node has published. Without DRA there are none.
func (r *Reconciler) servedResources(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	nodes []corev1.Node,
) (map[corev1.ResourceName]bool, error) {
	if !r.Devices || len(nodes) != 1 {
		return nil, nil
	}
	lacks := unregistered(claim, &nodes[0])
	if len(lacks) == 0 {
		return nil, nil
	}
	known, err := r.extendedResources(ctx)
	if err != nil {
		return nil, err
	}
	var published resourcev1.ResourceSliceList
	if err := r.Client.List(ctx, &published); err != nil {
		return nil, fmt.Errorf("read the devices of node %q: %w", nodes[0].Name, err)
	}
	all := make([]*resourcev1.ResourceSlice, len(published.Items))
	for i := range published.Items {
		all[i] = &published.Items[i]
	}
	own := dynamicresources.OwnDevices(all)[nodes[0].Name]
	out := map[corev1.ResourceName]bool{}
	for _, name := range lacks {
		out[name] = known.Amount(name, own) > 0
	}
	return out, nil
}

// servedByPlugin reports whether a device plugin has registered a requested resource that a device class names. kube-scheduler then
// allocates no devices for it, although the plan has expected that, and their driver may never come.
func (r *Reconciler) servedByPlugin(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) (bool, error) {
	known, err := r.extendedResources(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range known.Requested(claim.Spec.Resources.Requests) {
		if q := node.Status.Allocatable[name]; !q.IsZero() {
			return true, nil
		}
	}
	return false, nil
}

func (r *Reconciler) extendedResources(ctx context.Context) (*dynamicresources.Extended, error) {
	var classes resourcev1.DeviceClassList
	if err := r.Client.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("read the device classes: %w", err)
	}
	list := make([]*resourcev1.DeviceClass, len(classes.Items))
	for i := range classes.Items {
		list[i] = &classes.Items[i]
	}
	return dynamicresources.NewExtended(list, dynamicresources.NewExpressions()), nil
}
