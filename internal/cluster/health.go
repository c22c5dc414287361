package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// poolHealth describes how the nodes of a NodePool are repaired.
type poolHealth struct {
	policies *repair.Policies
	vetoed   bool
}

// addHealth adds which conditions of the node a repair policy covers, and what to do about them.
func (w *snapshotBuilder) addHealth(out *snapshot.Node, claim *karpv1.NodeClaim, node *corev1.Node) {
	if w.facts.Repair == nil || node == nil || !out.Registered {
		return
	}
	pool := w.healthOf(out.Pool)
	faults := pool.policies.Faults(node)
	if len(faults) == 0 {
		return
	}
	out.Unhealthy = true
	if out.Rebooting {
		return
	}
	if d, due := repair.Decide(faults, pastReboots(claim), w.facts.Now); due {
		out.Repair = &d
	}
	switch {
	case node.Annotations[karpv1.AnnotationDoNotRepair] == "true":
		out.DoNotRepair = "Node " + node.Name
	case pool.vetoed:
		out.DoNotRepair = "NodePool " + out.Pool
	}
}

// pastReboots are the reboots of a claim's instance. A record that cannot be parsed counts as none: the decision to
// reboot writes a new one.
func pastReboots(claim *karpv1.NodeClaim) *repair.Reboots {
	var out repair.Reboots
	if c, known := condition.Get(claim, karpv1.ConditionRebooting); known && c.Status == metav1.ConditionFalse {
		out.Ended = c.LastTransitionTime.Time
	}
	record, err := claim.Reboots()
	if err != nil {
		return &out
	}
	for _, at := range record.Started {
		out.Started = append(out.Started, at.Time)
	}
	return &out
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
