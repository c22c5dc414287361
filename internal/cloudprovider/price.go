package cloudprovider

import "time"

// PriceState says where the prices of a capacity type come from.
type PriceState struct {
	CapacityType string
	// Read is when the cloud has last told them; zero if it never has, and those that ship with the program are used.
	Read time.Time
	// Err is why the last attempt to read them has failed, nil if it has not.
	Err error
	// Unasked says why nobody asks the cloud for them; empty if it is asked.
	Unasked string
	// Basis says what the prices that ship with the program are: of which region and month, and how those come about that the
	// program does not have.
	Basis string
	// Due is true when prices of a platform are needed that were not read with the others.
	Due bool
}

// BuiltIn tells whether the prices that ship with the program are used, for want of any other.
func (s PriceState) BuiltIn() bool { return s.Read.IsZero() && (s.Err != nil || s.Unasked != "") }
