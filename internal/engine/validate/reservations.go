package validate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// reservations: whichever offerings the launches and the claims of earlier plans use, no capacity reservation needs
// more instances than it has left.
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
	users := map[string][]*host{}
	for _, pl := range c.hosts {
		for _, out := range pl.outcomes {
			if id := out.o.ReservationID; id != "" && out.o.Available && !slices.Contains(users[id], pl) {
				users[id] = append(users[id], pl)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(users)) {
		if n := len(users[id]); n > left[id] {
			c.failAt(users[id], "reservation %s has %d instances left, %d launches may take one", id, left[id], n)
		}
	}
}
