package top

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// State describes what happens to a node. A node has the first state that holds, in the order of states.
type State string

// The states.
const (
	Draining State = "draining"
	InFlight State = "in flight"
	NotReady State = "not ready"
	Planned  State = "planned"
	Cordoned State = "cordoned"
	Drifted  State = "drifted"
	Blocked  State = "blocked"
	Steady   State = "steady"
)

// states are all states in their order, with the glyph that shows a state without color, and what it means.
var states = []struct {
	State
	glyph, meaning string
}{
	{Draining, "▨", "is being deleted; its pods are evicted"},
	{InFlight, "□", "launched, and not initialized yet"},
	{NotReady, "✕", "its kubelet does not report Ready"},
	{Planned, "⊟", "consolidation would remove it"},
	{Cordoned, "◫", "takes no new pods"},
	{Drifted, "▲", "differs from its NodePool or node class"},
	{Blocked, "▣", "may not be disrupted"},
	{Steady, "■", "stays"},
}

// Glyph is one column wide.
func (s State) Glyph() string {
	for _, known := range states {
		if known.State == s {
			return known.glyph
		}
	}
	return " "
}

// observedState is the state by the objects alone, without planning.
func (n *Node) observedState() (State, string) {
	if n.node != nil && n.node.DeletionTimestamp != nil || n.claim != nil && n.claim.DeletionTimestamp != nil {
		return Draining, "it is being deleted"
	}
	if n.claim != nil && !n.initialized() {
		return InFlight, n.waitsFor()
	}
	if ready, why := n.ready(); !ready {
		return NotReady, why
	}
	if n.disrupted() {
		return Planned, "a disruption command has chosen it and waits for replacements"
	}
	if n.node.Spec.Unschedulable {
		return Cordoned, "kubectl cordon, or a drain: spec.unschedulable"
	}
	if why, drifted := n.drifted(); drifted {
		return Drifted, why
	}
	if n.node.Annotations[karpv1.AnnotationDoNotDisrupt] == "true" {
		return Blocked, "annotation " + karpv1.AnnotationDoNotDisrupt
	}
	return Steady, ""
}

func (n *Node) initialized() bool {
	return n.node != nil && (n.node.Labels[karpv1.LabelInitialized] == "true" || condition.IsTrue(n.claim, karpv1.ConditionInitialized))
}

// waitsFor is the next step of a node in flight.
func (n *Node) waitsFor() string {
	for _, step := range []struct{ condition, words string }{
		{karpv1.ConditionLaunched, "to be launched"},
		{karpv1.ConditionRegistered, "for its Node"},
		{karpv1.ConditionInitialized, "to be initialized"},
	} {
		if c, found := condition.Get(n.claim, step.condition); c.Status != metav1.ConditionTrue {
			if found && c.Message != "" && c.Reason != "AwaitingReconciliation" {
				return fmt.Sprintf("waits %s: %s", step.words, c.Message)
			}
			return "waits " + step.words
		}
	}
	return "waits to be initialized"
}

// disrupted reports whether a controller has decided to remove the node.
func (n *Node) disrupted() bool {
	for _, t := range n.node.Spec.Taints {
		if karpv1.IsTaintDisrupted(t) {
			return true
		}
	}
	return n.claim != nil && n.claim.Annotations[karpv1.AnnotationDisruptionCommand] != ""
}
