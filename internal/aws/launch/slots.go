package launch

import (
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// deal says which instance of a launch of several belongs to the holder of a ticket, going only by what EC2 shows. It is how
// a process finds out that was not there when the call was made.
//
// Claims and instances are brought together by their order: the nth place that takes part has the nth instance by ID. So
// everybody who sees all instances of a launch deals alike, whatever order EC2 tells of them in; those that have ended since
// count. The answer is final once all instances can be seen, be it that as many are there as were asked for, or that the
// launch is long enough ago; since is when somebody first looked.
func assign(t cloudprovider.Ticket, found []cloudprovider.Instance, since, now time.Time) (i cloudprovider.Instance, dealt, final bool) {
	var leftOut []int
	last := since
	if len(found) > 0 {
		leftOut, last = found[0].LeftOut, found[0].LaunchedAt
	}
	for _, i := range found {
		if i.LaunchedAt.After(last) {
			last = i.LaunchedAt
		}
	}
	complete := len(found) > 0 && len(found) >= t.Of-len(leftOut)
	if !complete && now.Sub(last) < instance.VisibleWithin {
		return cloudprovider.Instance{}, false, false
	}
	if slices.Contains(leftOut, t.Place) {
		return cloudprovider.Instance{}, false, true
	}
	at := position(t.Place, leftOut)
	if at >= len(found) || !alive(found[at]) {
		return cloudprovider.Instance{}, false, true
	}
	return found[at], true, true
}

// rank is the position of a place among those that are not left out.
func position(place int, leftOut []int) int {
	at := place
	for _, p := range leftOut {
		if p < place {
			at--
		}
	}
	return at
}

func alive(i cloudprovider.Instance) bool {
	return i.State != cloudprovider.ShuttingDown && i.State != cloudprovider.Terminated
}
