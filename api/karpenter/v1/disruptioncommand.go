package v1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// AnnotationDisruptionCommand holds the DisruptionCommand that a claim is a candidate of. It is written before the
	// command acts, and goes with the claim or after the command has been rolled back.
	AnnotationDisruptionCommand = "dovetail.sh/disruption-command"
	// AnnotationDecision is, on a claim, the ID of the decision that launched it: recordings, logs and events have the same. For a
	// replacement it is the ID of the DisruptionCommand.
	AnnotationDecision = "dovetail.sh/decision"
	// AnnotationReplacementOf is, on a claim launched to replace nodes, the ID of their DisruptionCommand.
	AnnotationReplacementOf = "dovetail.sh/replacement-of"
)

// DisruptionCommand is the record of a disruption command on its candidates, from which this process or the next can
// complete the command or roll it back.
//
// +kubebuilder:object:generate=false
type DisruptionCommand struct {
	// ID is the same on all claims of a command.
	ID     string           `json:"id"`
	Reason DisruptionReason `json:"reason"`
	// Kind is the consolidation_type of metrics, empty for drift.
	Kind    string    `json:"kind,omitempty"`
	Started time.Time `json:"started"`
	// Candidates are the names of all claims that the command deletes.
	Candidates []string `json:"candidates"`
	// Replacements are the names of the claims that must be initialized first. They are created only after all
	// candidates have the annotation.
	Replacements []string `json:"replacements,omitempty"`
	// Bound of the drain from the deletion of a candidate on, unless its own terminationGracePeriod is shorter.
	Bound *metav1.Duration `json:"bound,omitempty"`
	// Surges are the Deployments with pods on the candidate's node that are restarted before it is deleted. They differ among candidates.
	Surges []Surge `json:"surges,omitempty"`
}

// DisruptionCommand returns the command that the claim is a candidate of; false if there is none. An annotation that
// cannot be parsed is an error.
func (c *NodeClaim) DisruptionCommand() (DisruptionCommand, bool, error) {
	text, ok := c.Annotations[AnnotationDisruptionCommand]
	if !ok {
		return DisruptionCommand{}, false, nil
	}
	var d DisruptionCommand
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.ID == "" {
		return DisruptionCommand{}, true, fmt.Errorf(
			"annotation %s of node claim %q is not a disruption command: %q",
			AnnotationDisruptionCommand,
			c.Name,
			text,
		)
	}
	return d, true, nil
}

// SetDisruptionCommand records d on the claim; nil removes the record.
func (c *NodeClaim) SetDisruptionCommand(d *DisruptionCommand) error {
	if d == nil {
		delete(c.Annotations, AnnotationDisruptionCommand)
		return nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode the disruption command of node claim %q: %w", c.Name, err)
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[AnnotationDisruptionCommand] = string(text)
	return nil
}

// Replaces returns the names of the claims that the claim was launched to replace; nil if it replaces none.
func (c *NodeClaim) Replaces() []string {
	return slices.DeleteFunc(strings.Split(c.Annotations[AnnotationReplaces], ","), func(name string) bool { return name == "" })
}
