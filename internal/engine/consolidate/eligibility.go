package consolidate

import (
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// ineligible returns the first reason why consolidation does not consider the candidate; the zero value if it does.
func ineligible(c *disrupt.Candidate) disrupt.Why {
	d := &c.Pool.Spec.Disruption
	switch {
	case c.Pool.Spec.Replicas != nil:
		return disrupt.Because(disrupt.StaticPool, "NodePool %q keeps a fixed number of nodes", c.Pool.Name)
	case c.PoolClosed:
		return disrupt.Because(disrupt.PoolClosed, "NodePool %q is not ready, so it can launch no replacement", c.Pool.Name)
	case c.Type == nil:
		return disrupt.Because(disrupt.UnknownType, "Instance Type %q not found", c.Node.Labels[corev1.LabelInstanceTypeStable])
	case c.CapacityType == "":
		return disrupt.Because(disrupt.NoCapacityType, "Node does not have label %q", karpv1.LabelCapacityType)
	case c.Zone == "":
		return disrupt.Because(disrupt.NoZone, "Node does not have label %q", corev1.LabelTopologyZone)
	case d.ConsolidateAfter.IsNever():
		return disrupt.Because(disrupt.ConsolidationDisabled, "NodePool %q has consolidation disabled", c.Pool.Name)
	case c.Cost <= 1: // emptiness is a disruption method of its own
		return disrupt.Because(disrupt.NodeEmpty, "Node is empty")
	case d.ConsolidationPolicy == karpv1.ConsolidationWhenEmpty:
		return disrupt.Because(disrupt.WhenEmptyPolicy, "NodePool %q has consolidation policy WhenEmpty, but node is not empty", c.Pool.Name)
	}
	return unsettled(c)
}

// StillEligible reports whether a candidate of a command that was found earlier may still be removed. If not, message states
// why, and lately is true if the only reason is that pods have come or gone since. A node that has lost its last pod since may be removed
// like any other, once it has been as it is for as long as its pool wants.
func StillEligible(c *disrupt.Candidate) (message string, lately bool) {
	why := ineligible(c)
	if why.Reason == disrupt.NodeEmpty {
		why = unsettled(c)
	}
	return why.Message, why.Reason == disrupt.NotConsolidatable
}

// unsettled is the reason why a node is not disrupted to save money so soon after a change of its pods; the zero value if there was none.
func unsettled(c *disrupt.Candidate) disrupt.Why {
	if c.Node.Consolidatable {
		return disrupt.Why{}
	}
	return disrupt.Because(disrupt.NotConsolidatable, "Pods came or went too lately")
}
