package validate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// reservations: whichever offering each launch is bought from, and each claim of earlier plans, no capacity reservation is
// asked for more instances than any pool says it has.
func (c *check) reservations() {
	left := map[string]int{}
	for _, pool := range c.s.Pools {
		for _, it := range pool.InstanceTypes {
			for i := range it.Offerings {
				o := &it.Offerings[i]
				if n, known := left[o.ReservationID]; o.ReservationID != "" && (!known || o.Remaining < n) {
					left[o.ReservationID] = max(0, o.Remaining)
				}
			}
		}
	}
	for i := range c.s.Nodes {
		n := &c.s.Nodes[i]
		for _, r := range n.Requirements {
			if n.Claim == "" || n.Launched || r.Key != c.s.Labels.ReservationID || r.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			for _, id := range r.Values {
				left[id] = max(0, left[id]-1)
			}
		}
	}
	askers := map[string][]*place{}
	for _, pl := range c.places {
		for _, out := range pl.outcomes {
			if id := out.o.ReservationID; id != "" && out.o.Available && !slices.Contains(askers[id], pl) {
				askers[id] = append(askers[id], pl)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(askers)) {
		if n := len(askers[id]); n > left[id] {
			c.failAt(askers[id], "reservation %s has %d instances left, %d launches may take one", id, left[id], n)
		}
	}
}
