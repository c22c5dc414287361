package v1

import "encoding/json"

// AnnotationDeletionCause states on a NodeClaim why the controller deletes it. It is written before the deletion.
const AnnotationDeletionCause = "dovetail.sh/deletion-cause"

// Annotations of a NodePool that limit deletions.
const (
	// AnnotationBlastRadius is the share of its capacity that may be deleted in an hour for the reasons of one kind, such as "20%".
	AnnotationBlastRadius = "dovetail.sh/blast-radius"
	// AnnotationResumeDeletions resumes deletions that are paused: any new value does. `dovetail resume` sets it to the time.
	AnnotationResumeDeletions = "dovetail.sh/resume-deletions"
)

// ConditionBlastRadiusExceeded of a NodePool is True while the controller deletes nothing of it, because more would have been deleted than
// its limit allows.
const ConditionBlastRadiusExceeded = "BlastRadiusExceeded"

// DeletionCause is why the controller deletes a NodeClaim.
type DeletionCause struct {
	// Kind groups reasons with one limit: planned, fault, expired or interrupted.
	Kind string `json:"kind"`
	// Reason is as on metrics and conditions: Drifted, expired, garbage_collected.
	Reason string `json:"reason"`
	// Decision is the ID of a disruption command.
	Decision string `json:"decision,omitempty"`
	// Empty is true if the node had no pod that would have to move.
	Empty bool `json:"empty,omitempty"`
}

// DeletionCause returns why the controller deletes the claim; found is false if it has not decided to, or states so in a form that cannot
// be read.
func (c *NodeClaim) DeletionCause() (cause DeletionCause, found bool) {
	text, found := c.Annotations[AnnotationDeletionCause]
	if !found || json.Unmarshal([]byte(text), &cause) != nil {
		return DeletionCause{}, false
	}
	return cause, true
}

// SetDeletionCause annotates the claim with why the controller deletes it.
func (c *NodeClaim) SetDeletionCause(cause DeletionCause) error {
	text, err := json.Marshal(cause)
	if err != nil {
		return err
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[AnnotationDeletionCause] = string(text)
	return nil
}
