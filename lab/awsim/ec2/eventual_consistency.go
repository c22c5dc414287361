package ec2

import (
	"fmt"
	"time"
)

// visibleAfter is how long after its launch the next instance becomes known to calls that describe or change it. The
// lock must be held.
func (e *EC2) visibleAfter() time.Duration {
	spread := e.cfg.Timing.VisibleSpread
	if spread <= 0 {
		return e.cfg.Timing.Visible
	}
	return e.cfg.Timing.Visible + time.Duration(e.market.roll("visible", fmt.Sprint(e.counter))%uint64(spread))
}
