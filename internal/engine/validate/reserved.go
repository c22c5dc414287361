package validate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// reservations: whichever offering each launch is bought from, and each claim of earlier plans, no capacity reservation is
// asked for more instances than any pool says it has.
func (c *check) reservations() {
	has := map[string]int{}
	for _, pool := range c.s.Pools {
		for _, it := range pool.InstanceTypes {
			for i := range it.Offerings {
				o := &it.Offerings[i]
				if n, known := has[o.ReservationID]; o.ReservationID != "" && (!known || o.Remaining < n) {
					has[o.ReservationID] = max(0, o.Remaining)
				}
			}
		}
	}
	asked, promised := map[string]int{}, map[string]int{}
	for i := range c.p.Launches {
		for id := range c.mayTake(&c.p.Launches[i]) {
			asked[id]++
		}
	}
	for i := range c.s.Nodes {
		n := &c.s.Nodes[i]
		for _, r := range n.Requirements {
			if n.Claim == "" || n.Launched || r.Key != c.s.Labels.ReservationID || r.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			for _, id := range r.Values {
				promised[id]++
			}
		}
	}
	for id, n := range asked {
		if left := max(0, has[id]-promised[id]); n > left {
			c.fail("reservation %s has %d instances left, %d launches may take one", id, left, n)
		}
	}
}

// mayTake are the reservations that a launch can be bought from.
func (c *check) mayTake(l *schedule.Launch) map[string]bool {
	out := map[string]bool{}
	for _, it := range l.InstanceTypes {
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.ReservationID != "" && o.Available && admits(l, o) {
				out[o.ReservationID] = true
			}
		}
	}
	return out
}

// admits tells whether every label of the offering is one that the launch allows.
func admits(l *schedule.Launch, o *catalog.Offering) bool {
	for _, r := range o.Requirements.All() {
		have := l.Requirements.Get(r.Key())
		if value, ok := r.Single(); ok && !have.Has(value) || !ok && !have.AllowsAbsent() && l.Requirements.Defines(r.Key()) {
			return false
		}
	}
	return true
}
