package plan

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Node returns the node that a launch becomes: of its cheapest type and offering, launched at the snapshot's time, and in flight.
// The name is that of the node and of its claim. No pod is on it.
func (l *Launch) Node(name string, s *snapshot.Snapshot) snapshot.Node {
	it, o := l.InstanceTypes[0], l.Offering
	labels := l.ClaimLabels(s.Labels)
	for _, set := range [...]requirement.Set{l.Requirements, it.Requirements, o.Requirements} {
		for _, r := range set.All() {
			if value, ok := r.Single(); ok {
				labels[r.Key()] = value
			}
		}
	}
	for i := range s.Pools {
		if p := &s.Pools[i]; p.NodePool.Name == l.Pool.Name && p.NodeClassLabel[0] != "" {
			labels[p.NodeClassLabel[0]] = p.NodeClassLabel[1]
		}
	}
	maps.Copy(labels, map[string]string{
		corev1.LabelInstanceTypeStable: it.Name, corev1.LabelTopologyZone: o.Zone, karpv1.LabelCapacityType: o.CapacityType,
		corev1.LabelHostname: name,
	})
	n := snapshot.Node{
		Name: name, Claim: name, ClaimUID: types.UID(name), Pool: l.Pool.Name, Labels: labels, Taints: l.Pool.Spec.Template.Spec.Taints,
		Allocatable: overlaid(it.Allocatable, o.Allocatable), Capacity: overlaid(it.Capacity, o.Capacity), CreatedAt: s.Now,
		Price: o.Price, Launched: true, VolumeLimits: volumeLimits(it),
	}
	if expire := l.Pool.Spec.Template.Spec.ExpireAfter.Duration; expire != nil {
		n.ExpireAfter = *expire
	}
	return n
}

// overlaid returns amounts with some of them replaced.
func overlaid(amounts, by corev1.ResourceList) corev1.ResourceList {
	if len(by) == 0 {
		return amounts
	}
	out := maps.Clone(amounts)
	maps.Copy(out, by)
	return out
}

func volumeLimits(it *catalog.InstanceType) map[string]int32 {
	out := make(map[string]int32, len(it.VolumeLimits))
	for driver, n := range it.VolumeLimits {
		out[driver] = int32(min(n, 1<<30)) //nolint:gosec // an instance attaches some dozens
	}
	return out
}
