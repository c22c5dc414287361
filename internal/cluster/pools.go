package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ResourceNodes is the key under which a pool's limits count nodes.
const ResourceNodes corev1.ResourceName = "nodes"

// readPools reads our pools. One that is ready, not deleting and not of a fixed size may launch; what, its
// node class says. A class that cannot say so closes its pool, and no other.
func (w *world) readPools(ctx context.Context) error {
	var pools karpv1.NodePoolList
	if err := w.list(ctx, &pools); err != nil {
		return err
	}
	used := w.used()
	for i := range pools.Items {
		pool := &pools.Items[i]
		ref := pool.Spec.Template.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) {
			continue
		}
		instanceTypes, err := w.launchable(ctx, pool)
		if err != nil {
			return err
		}
		if instanceTypes == nil {
			w.snap.Closed = append(w.snap.Closed, pool)
			continue
		}
		w.snap.Pools = append(w.snap.Pools, snapshot.Pool{
			NodePool:       pool,
			NodeClassLabel: [2]string{awsv1.LabelNodeClass, ref.Name},
			InstanceTypes:  instanceTypes,
			Used:           w.withUnlaunched(used[pool.Name], pool.Name, instanceTypes),
		})
	}
	slices.SortFunc(w.snap.Closed, func(a, b *karpv1.NodePool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(w.snap.Pools, func(a, b snapshot.Pool) int { return cmp.Compare(a.NodePool.Name, b.NodePool.Name) })
	return nil
}

// launchable returns what the pool may launch, nil if nothing.
func (w *world) launchable(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	if pool.DeletionTimestamp != nil || pool.Spec.Replicas != nil || !condition.IsTrue(pool, condition.Ready) {
		return nil, nil
	}
	class := &awsv1.EC2NodeClass{}
	if err := w.state.cfg.Cache.Get(ctx, client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	instanceTypes, err := w.state.cfg.Types.InstanceTypes(ctx, class)
	if err != nil {
		w.state.cfg.PoolLeftOut(pool, err)
		return nil, nil
	}
	return instanceTypes, nil
}

// withUnlaunched adds to used the claims of pool that have no instance yet. Each counts as the largest,
// per resource, of the types that it may become, so that a limit holds whatever is launched.
func (w *world) withUnlaunched(used corev1.ResourceList, pool string, instanceTypes []*catalog.InstanceType) corev1.ResourceList {
	out := maps.Clone(used)
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if n.Pool != pool || n.Launched || n.Deleting {
			continue
		}
		largest := corev1.ResourceList{}
		candidates := candidateTypes(w.unlaunched[n.ClaimUID])
		for _, t := range instanceTypes {
			if !slices.Contains(candidates, t.Name) {
				continue
			}
			for name, q := range t.Capacity {
				if q.Cmp(largest[name]) > 0 {
					largest[name] = q
				}
			}
		}
		for name, q := range largest {
			add(out, name, q)
		}
	}
	return out
}

// candidateTypes are the instance types that a claim lists.
func candidateTypes(claim *karpv1.NodeClaim) []string {
	for _, r := range claim.Spec.Requirements {
		if r.Key == corev1.LabelInstanceTypeStable && r.Operator == corev1.NodeSelectorOpIn {
			return r.Values
		}
	}
	return nil
}

// used sums, per pool, what counts against its limits: every node until its end is decided. Were those that
// leave counted, a pool at its limit could not replace a node whose pods cannot be evicted before they have
// another place.
func (w *world) used() map[string]corev1.ResourceList {
	out := map[string]corev1.ResourceList{}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if n.Pool == "" || n.Deleting {
			continue
		}
		sum := out[n.Pool]
		if sum == nil {
			sum = corev1.ResourceList{}
			out[n.Pool] = sum
		}
		for name, q := range n.Capacity {
			add(sum, name, q)
		}
		add(sum, ResourceNodes, *resource.NewQuantity(1, resource.DecimalSI))
	}
	return out
}

func add(to corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	have := to[name].DeepCopy()
	have.Add(q)
	to[name] = have
}

// Usage sums, per pool, what counts against its limits now.
func (s *State) Usage(ctx context.Context) (map[string]corev1.ResourceList, error) {
	w := &world{state: s, snap: &snapshot.Snapshot{Now: s.cfg.Now()}}
	if err := w.readNodes(ctx); err != nil {
		return nil, err
	}
	return w.used(), nil
}
