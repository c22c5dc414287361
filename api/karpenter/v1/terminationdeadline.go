package v1

import (
	"fmt"
	"time"
)

// TerminationDeadline is the time by which the claim's node must be gone; nil if there is none. An annotation that cannot be
// parsed is no deadline, and an error.
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
