package cloudprovider

import "time"

// ShiftState says whether it is known from which zones a cluster is shifted away.
type ShiftState struct {
	// Read is when the cloud last reported the shifts; zero if it never has.
	Read time.Time
	// Err is why the last attempt to read them failed, nil if it did not.
	Err error
}
