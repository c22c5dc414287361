package disrupt

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ExceededLimit returns which limit of a pool the launches would exceed in the snapshot, which may be newer than the one
// they were planned for; empty if none. Each launch counts as the largest of its instance types, resource by
// resource. A pool that is not in the snapshot can launch nothing.
func ExceededLimit(s *snapshot.Snapshot, launches []plan.Launch) string {
	byPool := map[string][]*plan.Launch{}
	for i := range launches {
		name := launches[i].Pool.Name
		byPool[name] = append(byPool[name], &launches[i])
	}
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		at := slices.IndexFunc(s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == name })
		if at < 0 {
			return fmt.Sprintf("NodePool %q launches nothing now", name)
		}
		pool := &s.Pools[at]
		for _, r := range slices.Sorted(maps.Keys(pool.NodePool.Spec.Limits)) {
			limit, sum := quantity.Clamp(pool.NodePool.Spec.Limits[r]), pool.Used[r].DeepCopy()
			for _, l := range byPool[name] {
				sum.Add(largestCapacity(l, r))
			}
			if sum.Cmp(limit) > 0 {
				return fmt.Sprintf("NodePool %q would have %s of %s, its limit is %s", name, sum.String(), r, limit.String())
			}
		}
	}
	return ""
}

// largestCapacity is the largest amount that a launch may count against a limit.
func largestCapacity(l *plan.Launch, name corev1.ResourceName) resource.Quantity {
	if name == karpv1.ResourceNodes {
		return *resource.NewQuantity(1, resource.DecimalSI)
	}
	var out resource.Quantity
	for _, t := range l.InstanceTypes {
		if q := t.Capacity[name]; q.Cmp(out) > 0 {
			out = q
		}
	}
	return out.DeepCopy()
}
