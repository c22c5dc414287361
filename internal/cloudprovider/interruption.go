package cloudprovider

import "time"

// InterruptionKind is what happens, or is going to happen, to instances; in the words of metrics.
type InterruptionKind string

// The kinds of interruption.
const (
	// SpotInterrupted: EC2 takes a spot instance back, in two minutes as a rule.
	SpotInterrupted InterruptionKind = "spot_interrupted"
	// RebalanceRecommended: a spot instance is more likely than others to be taken back.
	RebalanceRecommended InterruptionKind = "rebalance_recommendation"
	// InstanceStopped and InstanceTerminated: somebody has ended the instance.
	InstanceStopped    InterruptionKind = "instance_stopped"
	InstanceTerminated InterruptionKind = "instance_terminated"
	// ReservationInterrupted: the owner of a capacity reservation takes it back.
	ReservationInterrupted InterruptionKind = "capacity_reservation_interrupted"
	// ScheduledChange: AWS Health tells of maintenance.
	ScheduledChange InterruptionKind = "scheduled_change"
	// NoInterruption is a message that asks for nothing.
	NoInterruption InterruptionKind = "no_op"

	// InstanceStatusFailed and SystemStatusFailed: a status check has failed for some time, for a cause on the instance or
	// below it.
	InstanceStatusFailed InterruptionKind = "instance_status"
	SystemStatusFailed   InterruptionKind = "system_status"
	// EventScheduled: EC2 lists a reboot, a stop, a retirement or maintenance for the instance.
	EventScheduled InterruptionKind = "event_status"
)

// Message is what a queue has told of instances.
type Message struct {
	Kind        InterruptionKind
	InstanceIDs []string
	// At is when it happened; when the message was sent, if it does not say.
	At time.Time
	// Unreadable is why the message cannot be read; nil if it can.
	Unreadable error
	// ID and Receipt are the queue's, Sent is when it got the message.
	ID, Receipt string
	Sent        time.Time
}

// Ailment is what EC2 says is wrong with an instance.
type Ailment struct {
	InstanceID string
	// Kinds of what is wrong, none twice: InstanceStatusFailed, SystemStatusFailed, EventScheduled, in that order.
	Kinds []InterruptionKind
	// Seen says it in a few words.
	Seen string
	// Failing is true while a status check fails, also when it has not done so for long enough to be among Kinds.
	Failing bool
}

// UnavailableError means that something of the cloud cannot be used until a person has changed something: it is not there, or
// not allowed.
type UnavailableError struct {
	// Reason is CamelCase, for example QueueDoesNotExist.
	Reason string
	// Message says all that people need.
	Message string
	Err     error
}

func (e *UnavailableError) Error() string { return e.Reason + ": " + e.Message }
func (e *UnavailableError) Unwrap() error { return e.Err }
