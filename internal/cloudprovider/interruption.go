package cloudprovider

import "time"

// InterruptionKind describes what happens, or will happen, to instances; the values are those of metrics.
type InterruptionKind string

// The kinds of interruption.
const (
	// SpotInterrupted: EC2 interrupts a spot instance, usually within two minutes.
	SpotInterrupted InterruptionKind = "spot_interrupted"
	// RebalanceRecommended: a spot instance is more likely than others to be interrupted.
	RebalanceRecommended InterruptionKind = "rebalance_recommendation"
	// InstanceStopped and InstanceTerminated: somebody has stopped or terminated the instance.
	InstanceStopped    InterruptionKind = "instance_stopped"
	InstanceTerminated InterruptionKind = "instance_terminated"
	// ReservationInterrupted: the owner of a capacity reservation reclaims it.
	ReservationInterrupted InterruptionKind = "capacity_reservation_interrupted"
	// ScheduledChange: AWS Health announces maintenance.
	ScheduledChange InterruptionKind = "scheduled_change"
	// NoInterruption is a message that requires no action.
	NoInterruption InterruptionKind = "no_op"

	// InstanceStatusFailed and SystemStatusFailed: a status check has failed for some time, because of the instance or its host.
	InstanceStatusFailed InterruptionKind = "instance_status"
	SystemStatusFailed   InterruptionKind = "system_status"
	// EventScheduled: EC2 has scheduled a reboot, a stop, a retirement or maintenance for the instance.
	EventScheduled InterruptionKind = "event_status"
)

// Message is a message of an interruption queue.
type Message struct {
	Kind        InterruptionKind
	InstanceIDs []string
	// At is the time when it happened; without a time in the message, when it was sent.
	At time.Time
	// Unreadable states why the message cannot be read; nil if it can.
	Unreadable error
	// ID and Receipt are the queue's, Sent is when the queue received the message.
	ID, Receipt string
	Sent        time.Time
}

// Impairment is an impairment of an instance, as EC2 reports it.
type Impairment struct {
	InstanceID string
	// Kinds are the distinct kinds of impairment: InstanceStatusFailed, SystemStatusFailed, EventScheduled, in that order.
	Kinds []InterruptionKind
	// Seen describes it in a few words.
	Seen string
	// Failing is true while a status check fails, also if it has not failed long enough to be among Kinds.
	Failing bool
}

// UnavailableError means that a resource of the cloud cannot be used until a person changes something: it does not exist, or a
// permission is missing.
type UnavailableError struct {
	// Reason is CamelCase, for example QueueDoesNotExist.
	Reason string
	// Message has everything that an operator needs.
	Message string
	Err     error
}

func (e *UnavailableError) Error() string { return e.Reason + ": " + e.Message }
func (e *UnavailableError) Unwrap() error { return e.Err }
