package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ResourceNodes is the key under which a pool's limits count nodes.
const ResourceNodes corev1.ResourceName = "nodes"

// LaunchesForPods reports whether a pool launches nodes for pods: it is neither deleting nor static.
func LaunchesForPods(pool *karpv1.NodePool) bool {
	return pool.DeletionTimestamp == nil && pool.Spec.Replicas == nil
}

func (w *snapshotBuilder) addPools() {
	used := w.usageByPool()
	for _, pool := range w.Pools {
		if pool.InstanceTypes == nil {
			w.snap.Closed = append(w.snap.Closed, pool.NodePool)
			continue
		}
		w.snap.Pools = append(w.snap.Pools, snapshot.Pool{
			NodePool:       pool.NodePool,
			NodeClassLabel: pool.NodeClassLabel,
			InstanceTypes:  pool.InstanceTypes,
			Used:           w.addUnlaunched(used[pool.Name], pool.Name, pool.InstanceTypes),

			KubeletFeatures: pool.KubeletFeatures,
		})
	}
	slices.SortFunc(w.snap.Closed, func(a, b *karpv1.NodePool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(w.snap.Pools, func(a, b snapshot.Pool) int { return cmp.Compare(a.NodePool.Name, b.NodePool.Name) })
}

// addUnlaunched adds the claims of pool without an instance to used. Each counts as the maximum, per resource, of the
// types that it may become, so that a limit holds whatever is launched.
func (w *snapshotBuilder) addUnlaunched(used corev1.ResourceList, pool string, instanceTypes []*catalog.InstanceType) corev1.ResourceList {
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

// usageByPool sums, per pool, what counts against its limits: every node that is not deleting. If deleting nodes
// counted, a pool at its limit could not replace a node with pods that can be evicted only after another node is ready
// for them.
func (w *snapshotBuilder) usageByPool() map[string]corev1.ResourceList {
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
	w, err := s.nodesOnly(ctx)
	if err != nil {
		return nil, err
	}
	return w.usageByPool(), nil
}

// NodeCount counts the nodes that exist or are in flight, managed and unmanaged.
func (s *State) NodeCount(ctx context.Context) (int, error) {
	objects := &Objects{}
	if err := s.readNodes(ctx, objects); err != nil {
		return 0, err
	}
	return len(objects.NodeClaims) + len(objects.unmanagedNodes()), nil
}

// Nodes is a Snapshot with nothing but the nodes, without their pods.
func (s *State) Nodes(ctx context.Context) (*snapshot.Snapshot, error) {
	w, err := s.nodesOnly(ctx)
	if err != nil {
		return nil, err
	}
	return w.snap, nil
}

// nodesOnly returns a builder with nothing but the nodes.
func (s *State) nodesOnly(ctx context.Context) (*snapshotBuilder, error) {
	objects, facts := &Objects{}, s.facts()
	if err := s.readNodes(ctx, objects); err != nil {
		return nil, err
	}
	s.addMarks(&facts)
	w := &snapshotBuilder{Objects: *objects, facts: facts, snap: &snapshot.Snapshot{Now: facts.Now}}
	w.addNodes()
	return w, nil
}
