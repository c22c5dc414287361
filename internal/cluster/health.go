package cluster

import (
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// poolHealth is how the nodes of a NodePool are repaired.
type poolHealth struct {
	policies *repair.Policies
	vetoed   bool
}

// addHealth adds which conditions of the node a repair policy covers, and what to do about them.
func (w *snapshotBuilder) addHealth(out *snapshot.Node, node *corev1.Node) {
	if w.facts.Repair == nil || node == nil || !out.Registered {
		return
	}
	pool := w.healthOf(out.Pool)
	faults := pool.policies.Faults(node)
	if len(faults) == 0 {
		return
	}
	out.Unhealthy = true
	if d, due := repair.Decide(faults, &repair.Reboots{}, w.facts.Now); due {
		out.Repair = &d
	}
	switch {
	case node.Annotations[karpv1.AnnotationDoNotRepair] == "true":
		out.DoNotRepair = "Node " + node.Name
	case pool.vetoed:
		out.DoNotRepair = "NodePool " + out.Pool
	}
}

// healthOf returns how the nodes of a pool are repaired. Policies of the pool that are invalid are ignored: the loop
// that repairs reports them.
func (w *snapshotBuilder) healthOf(name string) poolHealth {
	if w.health == nil {
		w.health = make(map[string]poolHealth, len(w.Pools))
		for i := range w.Pools {
			w.health[w.Pools[i].Name] = w.poolHealth(w.Pools[i].NodePool)
		}
	}
	if h, known := w.health[name]; known {
		return h
	}
	return poolHealth{policies: w.facts.Repair}
}

func (w *snapshotBuilder) poolHealth(pool *karpv1.NodePool) poolHealth {
	out := poolHealth{policies: w.facts.Repair, vetoed: pool.Annotations[karpv1.AnnotationDoNotRepair] == "true"}
	if own, err := pool.RepairPolicies(); err == nil && len(own) > 0 {
		if set, err := w.facts.Repair.With(own); err == nil {
			out.policies = set
		}
	}
	return out
}
