// Package backoff states how long to wait after failures in a row.
package backoff

import "time"

// Doubling is a pause that doubles with each failure in a row, from First up to Max.
type Doubling struct{ First, Max time.Duration }

// After is the pause after so many failures in a row before the last one: First after none.
func (d Doubling) After(earlier int) time.Duration {
	pause := d.First
	for range earlier {
		if pause >= d.Max/2 {
			return d.Max // it never overflows, however many failures there were
		}
		pause *= 2
	}
	return min(pause, d.Max)
}
