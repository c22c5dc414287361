package cloudprovider

import "time"

// PriceState states where the prices of a capacity type come from.
type PriceState struct {
	CapacityType string
	// Read is the time when they were last read from the cloud; zero if never, and those that ship with the program are used.
	Read time.Time
	// Err states why the last attempt to read them failed, nil if it did not.
	Err error
	// NotReadReason states why they are not read from the cloud; empty if they are.
	NotReadReason string
	// Basis describes the prices that ship with the program: their region and month, and how missing ones are derived.
	Basis string
	// RefreshDue is true when prices of a platform are needed that were not read with the others.
	RefreshDue bool
}

// BuiltIn reports whether the prices that ship with the program are used because there are no others.
func (s PriceState) BuiltIn() bool { return s.Read.IsZero() && (s.Err != nil || s.NotReadReason != "") }
