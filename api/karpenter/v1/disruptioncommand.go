package v1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// AnnotationDisruptionCommand is, on a claim whose node is about to be ended, the Ending that it is part of. It is written
	// before anything else is done and goes when the claim does, or after everything has been taken back.
	AnnotationDisruptionCommand = "dovetail.sh/ending"
	// AnnotationReplacementOf is, on a claim that was bought to replace nodes, the ID of their Ending.
	AnnotationReplacementOf = "dovetail.sh/replacement-of"
)

// Ending is what a claim remembers of the command that ends it, so that whoever reads it, this process or the
// next, can carry the command through or take it back.
//
// +kubebuilder:object:generate=false
type DisruptionCommand struct {
	// ID is the same on all claims of a command.
	ID     string           `json:"id"`
	Reason DisruptionReason `json:"reason"`
	// Kind is the consolidation_type of metrics, empty for drift.
	Kind    string    `json:"kind,omitempty"`
	Started time.Time `json:"started"`
	// Candidates are the names of all claims that the command ends.
	Candidates []string `json:"candidates"`
	// Replacements are the names of the claims that must be initialized before; none are created before all candidates
	// remember them.
	Replacements []string `json:"replacements,omitempty"`
}

// Ending returns what the claim remembers; false if it is not part of a disruption. What cannot be read is an error.
func (c *NodeClaim) DisruptionCommand() (DisruptionCommand, bool, error) {
	text, ok := c.Annotations[AnnotationDisruptionCommand]
	if !ok {
		return DisruptionCommand{}, false, nil
	}
	var d DisruptionCommand
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.ID == "" {
		return DisruptionCommand{}, true, fmt.Errorf("annotation %s of node claim %q cannot be read: %q", AnnotationDisruptionCommand, c.Name, text)
	}
	return d, true, nil
}

// SetDisruptionCommand makes the claim remember d; nil makes it forget.
func (c *NodeClaim) SetDisruptionCommand(d *DisruptionCommand) error {
	if d == nil {
		delete(c.Annotations, AnnotationDisruptionCommand)
		return nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write the disruption of node claim %q: %w", c.Name, err)
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[AnnotationDisruptionCommand] = string(text)
	return nil
}

// Replaces are the names of the claims that the claim was bought to replace; nil if it was bought otherwise.
func (c *NodeClaim) Replaces() []string {
	return slices.DeleteFunc(strings.Split(c.Annotations[AnnotationReplaces], ","), func(name string) bool { return name == "" })
}

// TerminationDeadline is the time by which the claim's node must be gone; nil if there is none. A deadline that cannot be read
// is none, and an error that says so.
func (c *NodeClaim) TerminationDeadline() (*time.Time, error) {
	text := c.Annotations[AnnotationTerminationTimestamp]
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fmt.Errorf("annotation %s is ignored: %q is not a time such as 2026-01-31T12:00:00Z; correct or remove it",
			AnnotationTerminationTimestamp, text)
	}
	return &at, nil
}
