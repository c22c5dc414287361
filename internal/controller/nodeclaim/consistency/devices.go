package consistency

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
)

// missingDevices returns a message for each DRA driver that the claim was launched for, and that has published less than
// plans expect. A node that was not launched for a driver need not have its devices.
func (r *Reconciler) missingDevices(ctx context.Context, claim *karpv1.NodeClaim, node string) ([]string, error) {
	drivers := karpv1.RequestedDRADrivers(claim)
	if r.Devices == nil || len(drivers) == 0 {
		return nil, nil
	}
	expected, err := r.Devices(ctx, claim)
	if err != nil || len(expected) == 0 {
		return nil, err
	}
	var published resourcev1.ResourceSliceList
	if err := r.Client.List(ctx, &published); err != nil {
		return nil, fmt.Errorf("read the devices of node %q: %w", node, err)
	}
	all := make([]*resourcev1.ResourceSlice, len(published.Items))
	for i := range published.Items {
		all[i] = &published.Items[i]
	}
	return dynamicresources.Missing(expected, dynamicresources.OwnDevices(all)[node], drivers), nil
}
