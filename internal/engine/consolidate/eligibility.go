package consolidate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// ineligibility is why consolidation does not consider a candidate.
type ineligibility int

const (
	eligible ineligibility = iota
	staticPool
	poolClosed
	typeNotFound
	noCapacityTypeLabel
	noZoneLabel
	consolidationDisabled
	emptyNode
	whenEmptyPolicy
	notConsolidatable
)

// ineligible returns the first reason not to consider the candidate.
func ineligible(c *disrupt.Candidate) ineligibility {
	d := &c.Pool.Spec.Disruption
	switch {
	case c.Pool.Spec.Replicas != nil:
		return staticPool
	case c.PoolClosed:
		return poolClosed
	case c.Type == nil:
		return typeNotFound
	case c.CapacityType == "":
		return noCapacityTypeLabel
	case c.Zone == "":
		return noZoneLabel
	case d.ConsolidateAfter.IsNever():
		return consolidationDisabled
	case c.Cost <= 1: // emptiness is a disruption method of its own
		return emptyNode
	case d.ConsolidationPolicy == karpv1.ConsolidationWhenEmpty:
		return whenEmptyPolicy
	case !c.Node.Consolidatable:
		return notConsolidatable
	}
	return eligible
}

// message is the text of the event Unconsolidatable; empty if the candidate is eligible.
func (i ineligibility) message(c *disrupt.Candidate) string {
	switch i {
	case staticPool:
		return fmt.Sprintf("NodePool %q keeps a fixed number of nodes", c.Pool.Name)
	case poolClosed:
		return fmt.Sprintf("NodePool %q is not ready, so it can launch no replacement", c.Pool.Name)
	case typeNotFound:
		return fmt.Sprintf("Instance Type %q not found", c.Node.Labels[corev1.LabelInstanceTypeStable])
	case noCapacityTypeLabel:
		return fmt.Sprintf("Node does not have label %q", karpv1.LabelCapacityType)
	case noZoneLabel:
		return fmt.Sprintf("Node does not have label %q", corev1.LabelTopologyZone)
	case consolidationDisabled:
		return fmt.Sprintf("NodePool %q has consolidation disabled", c.Pool.Name)
	case emptyNode:
		return "Node is empty"
	case whenEmptyPolicy:
		return fmt.Sprintf("NodePool %q has consolidation policy WhenEmpty, but node is not empty", c.Pool.Name)
	case notConsolidatable:
		return "Pods came or went too lately"
	default:
		return ""
	}
}

// noEvent reports whether the reason is the usual state of such a node, of which no event is published.
func (i ineligibility) noEvent() bool {
	return i == staticPool || i == poolClosed || i == emptyNode || i == notConsolidatable
}

// StillEligible reports whether a candidate of a command that was found earlier may still be removed. If not, message says
// why, and lately is true if the only reason is that pods have come or gone since.
func StillEligible(c *disrupt.Candidate) (message string, lately bool) {
	switch reason := ineligible(c); reason {
	case emptyNode: // there is less to move than there was
		return "", false
	default:
		return reason.message(c), reason == notConsolidatable
	}
}
