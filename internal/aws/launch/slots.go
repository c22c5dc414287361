package launch

import (
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// assign returns the instance in a slot of a batch launch, from what EC2 shows alone. A process uses it that did not
// make the call.
//
// Slots and instances are matched by their order: the nth slot that is not empty has the nth instance by ID. So every
// process that sees all instances of a launch assigns them alike, in whatever order EC2 lists them; terminated
// instances count. The result is final once all instances are visible: either their number is complete, or the launch
// is older than VisibleWithin. since is when this process first looked.
func assign(
	t cloudprovider.BatchSlot,
	found []cloudprovider.Instance,
	since, now time.Time,
) (i cloudprovider.Instance, assigned, final bool) {
	var leftOut []int
	last := since
	if len(found) > 0 {
		leftOut, last = found[0].UnusedSlots, found[0].LaunchedAt
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
	if slices.Contains(leftOut, t.Index) {
		return cloudprovider.Instance{}, false, true
	}
	at := position(t.Index, leftOut)
	if at >= len(found) || !alive(found[at]) {
		return cloudprovider.Instance{}, false, true
	}
	return found[at], true, true
}

// position returns the position of a slot among those that are not left out.
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
