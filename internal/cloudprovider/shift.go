package cloudprovider

import "time"

// ShiftState is whether it is known which zones a cluster is shifted away from.
type ShiftState struct {
	// Read is the time when the cloud last reported the shifts; zero if it never has.
	Read time.Time
	// Err states why the last attempt to read them failed, nil if it did not.
	Err error
}
