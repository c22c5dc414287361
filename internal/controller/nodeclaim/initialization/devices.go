package initialization

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
)

// waitsForDrivers returns what a claim launched for devices waits for: each driver must have published them.
func (r *Reconciler) waitsForDrivers(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	node *corev1.Node,
) (reason, message string, err error) {
	drivers := karpv1.RequestedDRADrivers(claim)
	if len(drivers) == 0 {
		return "", "", nil
	}
	if plugin, err := r.servedByPlugin(ctx, claim, node); err != nil || plugin {
		return "", "", err
	}
	var published resourcev1.ResourceSliceList
	if err := r.Client.List(ctx, &published); err != nil {
		return "", "", fmt.Errorf("read the devices of node %q: %w", node.Name, err)
	}
	if missing := unpublished(drivers, node.Name, published.Items); missing != "" {
		return "DRADriverPoolsNotPublished", fmt.Sprintf(
			"DRA driver %q has not published a complete pool of devices of Node %s",
			missing,
			node.Name,
		), nil
	}
	return "", "", nil
}

// unpublished returns the first of the drivers that has no complete pool on the node; empty if all have one.
func unpublished(drivers []string, node string, published []resourcev1.ResourceSlice) string {
	complete := map[string]bool{}
	for _, p := range poolsOn(node, published) {
		complete[p.driver] = complete[p.driver] || p.declared > 0 && p.seen == p.declared
	}
	for _, driver := range drivers {
		if !complete[driver] {
			return driver
		}
	}
	return ""
}

// devicePool is the highest generation of a driver's pool on a node.
type devicePool struct {
	driver, name   string
	generation     int64
	seen, declared int64
}

// poolsOn counts the slices of the node's own devices.
func poolsOn(node string, published []resourcev1.ResourceSlice) []devicePool {
	var out []devicePool
	for i := range published {
		s := &published[i]
		if dynamicresources.NodeOf(s) != node || s.Spec.AllNodes != nil && *s.Spec.AllNodes {
			continue
		}
		k := slices.IndexFunc(out, func(p devicePool) bool { return p.driver == s.Spec.Driver && p.name == s.Spec.Pool.Name })
		if k < 0 {
			k, out = len(out), append(out, devicePool{driver: s.Spec.Driver, name: s.Spec.Pool.Name, generation: -1})
		}
		p := &out[k]
		if s.Spec.Pool.Generation > p.generation {
			p.generation, p.seen, p.declared = s.Spec.Pool.Generation, 0, s.Spec.Pool.ResourceSliceCount
		}
		if s.Spec.Pool.Generation == p.generation {
			p.seen++
		}
	}
	return out
}

// claimRequests maps a slice to the claim of its node.
func claimRequests(r client.Reader) func(context.Context, client.Object) []reconcile.Request {
	claims := cluster.ClaimRequests(r)
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		name := dynamicresources.NodeOf(o.(*resourcev1.ResourceSlice))
		node := &corev1.Node{}
		if name == "" || r.Get(ctx, client.ObjectKey{Name: name}, node) != nil {
			return nil
		}
		return claims(ctx, node)
	}
}
