package cluster

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// nodeKind are nodes that publish equal devices: the pods of a DRA driver may run on the nodes of one pool alone.
type nodeKind struct{ pool, instanceType string }

// learnDevices adds to instance types the devices that nodes of the type and pool have published, of drivers with
// devices that the catalog does not have for the type. The newest node counts: it is the most like the next.
func (w *snapshotBuilder) learnDevices(own map[string][]resourcev1.ResourceSliceSpec) {
	newest := map[nodeKind]*snapshot.Node{}
	published := map[nodeKind][]resourcev1.ResourceSliceSpec{}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if n.Claim == "" || n.Pool == "" || !n.Initialized || n.Deleting || len(own[n.Name]) == 0 {
			continue
		}
		kind := nodeKind{n.Pool, n.Labels[corev1.LabelInstanceTypeStable]}
		if last := newest[kind]; last == nil || cmp.Or(n.CreatedAt.Compare(last.CreatedAt), cmp.Compare(last.Name, n.Name)) > 0 {
			newest[kind], published[kind] = n, own[n.Name]
		}
	}
	for i := range w.snap.Pools {
		p := &w.snap.Pools[i]
		types := p.InstanceTypes
		for k, it := range p.InstanceTypes {
			seen := published[nodeKind{p.NodePool.Name, it.Name}]
			more := slices.DeleteFunc(dynamicresources.Learned(seen), func(s resourcev1.ResourceSliceSpec) bool {
				return slices.ContainsFunc(it.DeviceSlices, func(known resourcev1.ResourceSliceSpec) bool { return known.Driver == s.Driver })
			})
			if len(more) == 0 {
				continue
			}
			if &types[0] == &p.InstanceTypes[0] { // shared with other snapshots
				types = slices.Clone(types)
			}
			learned := *it
			learned.DeviceSlices = slices.Concat(it.DeviceSlices, more)
			types[k] = &learned
		}
		p.InstanceTypes = types
	}
}

// ExpectedDevices are the devices that plans expect of a claim's node, by the catalog alone.
func (s *State) ExpectedDevices(ctx context.Context, claim *karpv1.NodeClaim) ([]resourcev1.ResourceSliceSpec, error) {
	class := &awsv1.EC2NodeClass{}
	if err := s.cfg.Cache.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, class, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	types, err := s.cfg.Types.InstanceTypes(ctx, class)
	if err != nil {
		return nil, err
	}
	name := claim.Labels[corev1.LabelInstanceTypeStable]
	if i := slices.IndexFunc(types, func(it *catalog.InstanceType) bool { return it.Name == name }); i >= 0 {
		return types[i].DeviceSlices, nil
	}
	return nil, nil
}
