package disrupt

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestExceededLimit(t *testing.T) {
	small, large := enginetest.Type("small", 1, "cpu", "2"), enginetest.Type("large", 4, "cpu", "8")
	pool := func(name string, limits, used corev1.ResourceList) snapshot.Pool {
		np := &karpv1.NodePool{}
		np.Name, np.Spec.Limits = name, limits
		return snapshot.Pool{NodePool: np, Used: used}
	}
	bound := pool("bound", enginetest.Resources("cpu", "10", "nodes", "3"), enginetest.Resources("cpu", "4", "nodes", "1"))
	free := pool("free", nil, enginetest.Resources("cpu", "1000"))
	s := &snapshot.Snapshot{Pools: []snapshot.Pool{bound, free}}
	of := func(p snapshot.Pool, types ...*catalog.InstanceType) schedule.Launch {
		return schedule.Launch{Pool: p.NodePool, InstanceTypes: types}
	}
	missing := pool("missing", nil, nil)
	tests := []struct {
		name     string
		launches []schedule.Launch
		want     string
	}{
		{"up to the limit", []schedule.Launch{of(bound, small), of(bound, small)}, ""},
		{"the largest type counts", []schedule.Launch{of(bound, small, large)}, `NodePool "bound" would have 12 of cpu, its limit is 10`},
		{
			"nodes count",
			[]schedule.Launch{of(bound, small), of(bound, small), of(bound, small)},
			`NodePool "bound" would have 4 of nodes, its limit is 3`,
		},
		{"no limit", []schedule.Launch{of(free, large)}, ""},
		{"the pool is not in the snapshot", []schedule.Launch{of(missing, small)}, `NodePool "missing" launches nothing now`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ExceededLimit(s, tt.launches); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
