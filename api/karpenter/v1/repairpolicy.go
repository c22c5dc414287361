package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// AnnotationDoNotRepair vetoes every repair of a Node if its value is "true"; on a NodePool, of all its Nodes.
	AnnotationDoNotRepair = "karpenter.sh/do-not-repair"
	// AnnotationRepairPolicies on a NodePool is a JSON list of RepairPolicy. For its Nodes they replace the policies of
	// the cloud provider that have the same condition and status.
	AnnotationRepairPolicies = "dovetail.sh/repair-policies"
)

// MaxRepairPriority is the largest priority of a RepairPolicy. It is Karpenter's.
const MaxRepairPriority = 100

// RepairAction describes what a RepairPolicy does to a Node.
type RepairAction string

// The actions, the least disruptive first.
const (
	// RepairIgnore does nothing. It is for NodePools that want no repair of a fault.
	RepairIgnore RepairAction = "Ignore"
	// RepairReboot reboots the instance.
	RepairReboot RepairAction = "RebootNode"
	// RepairReplace replaces the Node.
	RepairReplace RepairAction = "ReplaceNode"
)

// RepairPolicy describes what to do with a Node that has had a condition for too long.
type RepairPolicy struct {
	// Condition and Status of the Node.
	Condition corev1.NodeConditionType `json:"condition"`
	Status    corev1.ConditionStatus   `json:"status"`
	// Reason is a regular expression that the reason of the condition must contain a match of. The policy without one is the
	// fallback for reasons that no other policy of their condition and status matches.
	Reason string `json:"reason,omitempty"`
	// Toleration states how long the condition must last.
	Toleration metav1.Duration `json:"toleration"`
	// TerminationGracePeriod bounds the drain of the Node; 0 is no drain, nil is the NodeClaim's own bound.
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
	// Priority orders Nodes that are due at once, 0 to MaxRepairPriority, the highest first.
	Priority int          `json:"priority,omitempty"`
	Action   RepairAction `json:"action"`
}

// Validate returns an error that names the first invalid field.
func (p *RepairPolicy) Validate() error {
	switch {
	case p.Condition == "":
		return fmt.Errorf("condition is required")
	case p.Status != corev1.ConditionTrue && p.Status != corev1.ConditionFalse && p.Status != corev1.ConditionUnknown:
		return fmt.Errorf("status %q is none of True, False, Unknown", p.Status)
	case p.Toleration.Duration < 0:
		return fmt.Errorf("toleration %s is negative", p.Toleration.Duration)
	case p.TerminationGracePeriod != nil && p.TerminationGracePeriod.Duration < 0:
		return fmt.Errorf("terminationGracePeriod %s is negative", p.TerminationGracePeriod.Duration)
	case p.Priority < 0 || p.Priority > MaxRepairPriority:
		return fmt.Errorf("priority %d is not within 0 and %d", p.Priority, MaxRepairPriority)
	case p.Action != RepairIgnore && p.Action != RepairReboot && p.Action != RepairReplace:
		return fmt.Errorf("action %q is none of %s, %s, %s", p.Action, RepairIgnore, RepairReboot, RepairReplace)
	}
	if _, err := regexp.Compile(p.Reason); err != nil {
		return fmt.Errorf("reason: %w", err)
	}
	return nil
}

// Bound is the TerminationGracePeriod as a duration; nil if the policy sets none.
func (p *RepairPolicy) Bound() *time.Duration {
	if p.TerminationGracePeriod == nil {
		return nil
	}
	return &p.TerminationGracePeriod.Duration
}

// RepairPolicies parses the annotation AnnotationRepairPolicies; nil without it. An error names the entry and the field.
func (in *NodePool) RepairPolicies() ([]RepairPolicy, error) {
	text, ok := in.Annotations[AnnotationRepairPolicies]
	if !ok {
		return nil, nil
	}
	var out []RepairPolicy
	d := json.NewDecoder(bytes.NewBufferString(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("annotation %s is not a JSON list of repair policies: %w", AnnotationRepairPolicies, err)
	}
	for i := range out {
		err := out[i].Validate()
		if err == nil && out[i].Reason == "" {
			err = fmt.Errorf("reason is required: use %q for every reason", ".*")
		}
		if err != nil {
			return nil, fmt.Errorf("annotation %s, entry %d: %w", AnnotationRepairPolicies, i, err)
		}
	}
	return out, nil
}
