package cloudprovider

import "time"

// Meter records metrics of the cloud. Its methods must not block.
type Meter interface {
	// LaunchFailed counts an offering that could not be launched, and why.
	LaunchFailed(zone, zoneID, capacityType, reason string)
	// TerminationFailed counts a failed call to terminate an instance.
	TerminationFailed(zone, zoneID string)
	// Batched measures a call for several requests: how many, and how long they were gathered.
	Batched(batcher string, size int, gathered time.Duration)
	// UserData measures the user data of a node class, in bytes before encoding; negative once the class is deleted.
	UserData(nodeClass string, bytes int)
}

// NoMeter is a Meter that records nothing.
type NoMeter struct{}

// LaunchFailed does nothing.
func (NoMeter) LaunchFailed(string, string, string, string) {}

// TerminationFailed does nothing.
func (NoMeter) TerminationFailed(string, string) {}

// Batched does nothing.
func (NoMeter) Batched(string, int, time.Duration) {}

// UserData does nothing.
func (NoMeter) UserData(string, int) {}
