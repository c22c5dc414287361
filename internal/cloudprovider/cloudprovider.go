// Package cloudprovider holds the words that controllers and a cloud adapter share: what an instance is, what a
// launch yields, and which errors lead to which next step. Controllers declare the one or two methods
// they call as interfaces of their own; internal/aws has a type that satisfies them all.
package cloudprovider

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Instance is a machine as the cloud reports it.
type Instance struct {
	// ProviderID as on Node.spec.providerID, for example aws:///us-east-1a/i-0123456789abcdef0.
	ProviderID   string
	ID           string
	Type         string
	Zone         string
	ZoneID       string
	CapacityType string
	// Reservation that it runs in; zero unless the capacity type is reserved.
	Reservation Reservation
	// Placement is where in a placement group it is; zero without one.
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
	// NodeClaim is the claim the instance was launched for, from its tags; empty if they do not say.
	NodeClaim string
	// NodeClaimUID is that claim's UID; empty for instances that Dovetail did not launch.
	NodeClaimUID string
	// Launch is the ID of the launch of several that it comes from, see Ticket; empty if it was launched alone.
	Launch string
	// LeftOut are the places of that launch whose claims were not part of it after all, ascending.
	LeftOut []int
	Owner   Ownership
}

// Reservation is a capacity reservation.
type Reservation struct {
	ID string
	// Type is default or capacity-block.
	Type string
	// Interruptible reservations may be taken back by their owner.
	Interruptible bool
}

// Placement is an instance's place in a placement group.
type Placement struct {
	GroupID string
	// Partition counts from 1; 0 where there are none, or it is not known yet.
	Partition int
}

// State is an instance's place in its life.
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

// Ownership says whose an instance is. Only Ours may be terminated or tagged.
type Ownership string

// The four answers to "whose is it?".
const (
	Ours      Ownership = "ours"
	Foreign   Ownership = "foreign"
	Adoptable Ownership = "adoptable"
	Unknown   Ownership = "unknown"
)

// Launched is what a launch yields, to be merged into the NodeClaim.
type Launched struct {
	ProviderID  string
	ImageID     string
	Labels      map[string]string
	Annotations map[string]string
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
}

// ErrNotFound means that the instance is gone for good: terminated, or never there.
var ErrNotFound = errors.New("instance not found")

// ErrIdentityMismatch means that the API server talked to is not that of the cluster that is configured.
// Nothing may be written then.
var ErrIdentityMismatch = errors.New("IdentityMismatch")

// InsufficientCapacityError means that none of the claim's offerings can be had at the moment.
type InsufficientCapacityError struct{ Err error }

func (e *InsufficientCapacityError) Error() string {
	return fmt.Sprintf("insufficient capacity: %v", e.Err)
}
func (e *InsufficientCapacityError) Unwrap() error { return e.Err }

// NodeClassNotReadyError means that the claim's node class cannot launch as it stands.
type NodeClassNotReadyError struct{ Err error }

func (e *NodeClassNotReadyError) Error() string {
	return fmt.Sprintf("node class not ready: %v", e.Err)
}
func (e *NodeClassNotReadyError) Unwrap() error { return e.Err }

// CreateError is a launch that failed for a reason fit for the condition Launched.
type CreateError struct {
	// Reason is CamelCase, for example Unauthorized.
	Reason string
	// Message says all that people need; Err is its cause, if another error is.
	Message string
	Err     error
}

func (e *CreateError) Error() string { return e.Reason + ": " + e.Message }
func (e *CreateError) Unwrap() error { return e.Err }
