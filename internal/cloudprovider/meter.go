package cloudprovider

import "time"

// Meter is told what operators count of the cloud. Its methods must not block.
type Meter interface {
	// LaunchFailed counts an offering that was asked for in vain, and why.
	LaunchFailed(zone, zoneID, capacityType, reason string)
	// TerminationFailed counts a call that was to end an instance, and did not.
	TerminationFailed(zone, zoneID string)
	// Batched measures a call that served several requests: how many, and how long they were gathered for.
	Batched(batcher string, size int, gathered time.Duration)
	// UserData measures what instances of a node class are started with, in bytes before it is encoded; negative once
	// there is none any more.
	UserData(nodeClass string, bytes int)
}

// Unmeasured is a Meter that forgets.
type Unmeasured struct{}

// LaunchFailed does nothing.
func (Unmeasured) LaunchFailed(string, string, string, string) {}

// TerminationFailed does nothing.
func (Unmeasured) TerminationFailed(string, string) {}

// Batched does nothing.
func (Unmeasured) Batched(string, int, time.Duration) {}

// UserData does nothing.
func (Unmeasured) UserData(string, int) {}
