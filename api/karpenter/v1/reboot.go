package v1

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ConditionRebooting is True on a NodeClaim from the decision to reboot its instance until that has finished, with the
	// reasons below. It is not part of Ready.
	ConditionRebooting = "Rebooting"

	RebootRequested = "RebootRequested"
	RebootIssued    = "RebootIssued"
	RebootSucceeded = "RebootSucceeded"
	RebootFailed    = "RebootFailed"

	// AnnotationRebootPreBootID is the boot ID of the Node before the reboot was first issued.
	AnnotationRebootPreBootID = Group + "/reboot-pre-boot-id"
	// AnnotationRebootTerminationGracePeriod bounds the drain before the reboot: a duration, 0 for no drain.
	AnnotationRebootTerminationGracePeriod = Group + "/reboot-termination-grace-period"
	// AnnotationReboot is the RebootRecord of a NodeClaim.
	AnnotationReboot = "dovetail.sh/reboot"

	// TaintKeyRebooting is on a Node from the decision to reboot until the new boot is seen.
	TaintKeyRebooting = Group + "/rebooting"
)

// TaintRebooting returns the taint that keeps new pods off a node that is about to reboot.
func TaintRebooting() corev1.Taint {
	return corev1.Taint{Key: TaintKeyRebooting, Effect: corev1.TaintEffectNoSchedule}
}

// RebootRecord is the history of a NodeClaim's reboots, and the deadlines of the one in progress. It is on the object, so
// that neither a restart of the controller nor a change of its leader grants another reboot or more time.
type RebootRecord struct {
	// Started are the times when reboots were decided, the oldest first.
	Started []metav1.Time `json:"started"`
	// DrainBy is the time when the drain finishes and the instance is rebooted with the pods that are left.
	DrainBy metav1.Time `json:"drainBy"`
	// IssueBy is the time when the attempt finishes if EC2 has not accepted it.
	IssueBy *metav1.Time `json:"issueBy,omitempty"`
	// CalledAt is the time when EC2 was called last, if it has not rejected that call: the instance may boot anew because of it.
	CalledAt *metav1.Time `json:"calledAt,omitempty"`
	// RecoverBy is by when the node must be Ready again.
	RecoverBy *metav1.Time `json:"recoverBy,omitempty"`
}

// Reboots returns the record; empty if there was no reboot. An annotation that cannot be parsed is an error.
func (in *NodeClaim) Reboots() (RebootRecord, error) {
	text, ok := in.Annotations[AnnotationReboot]
	if !ok {
		return RebootRecord{}, nil
	}
	var r RebootRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return RebootRecord{}, fmt.Errorf("annotation %s of node claim %q is no record of reboots: %w", AnnotationReboot, in.Name, err)
	}
	return r, nil
}

// SetReboots writes the record.
func (in *NodeClaim) SetReboots(r *RebootRecord) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record of reboots: %w", err)
	}
	metav1.SetMetaDataAnnotation(&in.ObjectMeta, AnnotationReboot, string(text))
	return nil
}

// RebootDrainBound is the bound of the drain before a reboot; nil if there is none. A bound that is negative or cannot be
// parsed is an error.
func (in *NodeClaim) RebootDrainBound() (*time.Duration, error) {
	text, ok := in.Annotations[AnnotationRebootTerminationGracePeriod]
	if !ok {
		return nil, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return nil, fmt.Errorf("annotation %s: %q is not a duration of zero or more", AnnotationRebootTerminationGracePeriod, text)
	}
	return &d, nil
}
