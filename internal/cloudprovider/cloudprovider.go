// Package cloudprovider has the types that controllers and a cloud adapter share: instances, results of launches, and errors that
// decide the next step. Controllers declare the one or two methods that they call as interfaces of their own; packages below
// internal/aws implement them.
package cloudprovider

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Instance is an instance as the cloud reports it.
type Instance struct {
	// ProviderID as on Node.spec.providerID, for example aws:///us-east-1a/i-0123456789abcdef0.
	ProviderID   string
	ID           string
	Type         string
	Zone         string
	ZoneID       string
	CapacityType string
	// Reservation is the one that it runs in; zero unless the capacity type is reserved.
	Reservation Reservation
	// Placement is its position in a placement group; zero without one.
	Placement Placement
	// Tenancy is default or dedicated.
	Tenancy  string
	ImageID  string
	SubnetID string
	// SecurityGroupIDs are sorted.
	SecurityGroupIDs []string
	State            State
	LaunchedAt       time.Time
	Tags             map[string]string
	// NodeClaim is the claim that the instance was launched for, from its tags; empty without such a tag.
	NodeClaim string
	// NodeClaimUID is that claim's UID; empty for instances that Dovetail did not launch.
	NodeClaimUID string
	// Launch is the ID of the batch launch that it comes from, see BatchSlot; empty if it was launched alone.
	Launch string
	// UnusedSlots are the slots of that launch with claims that were not part of it in the end, ascending.
	UnusedSlots []int
	Owner       Ownership
}

// Reservation is a capacity reservation.
type Reservation struct {
	ID string
	// Type is default or capacity-block.
	Type string
	// Interruptible reservations may be reclaimed by their owner.
	Interruptible bool
}

// Placement is the position of an instance in a placement group.
type Placement struct {
	GroupID string
	// Partition counts from 1; 0 where there are none, or it is not known yet.
	Partition int
}

// State is the state of an instance.
type State string

// The states of an EC2 instance.
const (
	Pending      State = "pending"
	Running      State = "running"
	Stopping     State = "stopping"
	Stopped      State = "stopped"
	ShuttingDown State = "shutting-down"
	Terminated   State = "terminated"
)

// Ownership is which cluster an instance belongs to. Only Ours may be terminated or tagged.
type Ownership string

// Instances are this cluster's, another cluster's, of an earlier autoscaler with a Node and a NodeClaim here, or undecidable.
const (
	Ours      Ownership = "ours"
	Foreign   Ownership = "foreign"
	Adoptable Ownership = "adoptable"
	Unknown   Ownership = "unknown"
)

// Launched is the result of a launch, to be merged into the NodeClaim.
type Launched struct {
	ProviderID  string
	ImageID     string
	Labels      map[string]string
	Annotations map[string]string
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
}

// ErrNotFound means that the instance is gone for good: terminated, or never launched.
var ErrNotFound = errors.New("instance not found")

// ErrRebootRefused means that the cloud will not reboot the instance, however often it is queried.
var ErrRebootRefused = errors.New("the cloud refuses to reboot the instance")

// ErrOutcomeUnknown states that a call may have had its effect: no answer came, or the cloud failed.
var ErrOutcomeUnknown = errors.New("it is unknown whether the call has had an effect")

// ErrIdentityMismatch means that the API server in use is not that of the configured cluster. Nothing may be written then.
var ErrIdentityMismatch = errors.New("IdentityMismatch")

// ErrNotKnownYet means that the process waits for what it reads of the cloud after its start. The same call succeeds once that is known.
var ErrNotKnownYet = errors.New("waiting for AWS")

// InsufficientCapacityError means that none of the claim's offerings is available at the moment.
type InsufficientCapacityError struct {
	Err error
	// NoClass is true if there is no node class to launch from, which Karpenter counts as insufficient capacity: AWS was not called.
	NoClass bool
}

func (e *InsufficientCapacityError) Error() string {
	if e.NoClass {
		return e.Err.Error()
	}
	return fmt.Sprintf("insufficient capacity: %v", e.Err)
}
func (e *InsufficientCapacityError) Unwrap() error { return e.Err }

// NodeClassNotReadyError means that the claim's node class cannot launch until it is changed.
type NodeClassNotReadyError struct{ Err error }

func (e *NodeClassNotReadyError) Error() string {
	return fmt.Sprintf("node class not ready: %v", e.Err)
}
func (e *NodeClassNotReadyError) Unwrap() error { return e.Err }

// CreateError is a failed launch, with reason and message for the condition Launched.
type CreateError struct {
	// Reason is CamelCase, for example Unauthorized.
	Reason string
	// Message has everything that an operator needs; Err is its cause, if there is another error.
	Message string
	Err     error
}

func (e *CreateError) Error() string { return e.Reason + ": " + e.Message }
func (e *CreateError) Unwrap() error { return e.Err }
