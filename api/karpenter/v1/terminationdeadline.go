package v1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TightenTerminationDeadline sets the deadline unless an earlier one stands. One that cannot be parsed is replaced.
func (c *NodeClaim) TightenTerminationDeadline(at time.Time) {
	if have, err := c.TerminationDeadline(); err == nil && have != nil && !have.After(at) {
		return
	}
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, AnnotationTerminationTimestamp, at.UTC().Format(time.RFC3339))
}
