package reservation

import (
	"maps"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TemplateRoom states how much room capacity reservations have for nodes of a NodePool's template.
type TemplateRoom struct {
	// Only is true if everything that the template admits is in reservations: no node is launched beside them.
	Only bool
	// Free counts how many instances the reservations still take.
	Free int
	// Full are the IDs, sorted, of the reservations that are healthy and have no free instance.
	Full []string
}

// Exhausted reports whether no node of the template can be launched before an instance in a reservation expires.
func (r TemplateRoom) Exhausted() bool { return r.Only && r.Free == 0 }

// RoomFor returns the room for a pool's template. An offering that the zone or the class does not have, or that has no
// price, is none; one without capacity at the moment is one: its lack passes without an end of any instance.
//
// Cost: linear in the offerings of the pool's types.
func RoomFor(pool *snapshot.Pool, labels requirement.Labels) (TemplateRoom, error) {
	reqs, err := labels.FromPool(pool.NodePool, pool.NodeClassLabel)
	if err != nil {
		return TemplateRoom{}, err
	}
	free, full, others, reserved := map[string]int{}, map[string]bool{}, false, false
	for _, it := range pool.InstanceTypes {
		if !reqs.Overlaps(it.Requirements) {
			continue
		}
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if !reqs.Overlaps(o.Requirements) {
				continue
			}
			reserved = reserved || o.ReservationID != ""
			switch {
			case o.ReservationID == "":
				lacking := o.UnavailableReason == catalog.ReasonNotOffered || o.UnavailableReason == catalog.ReasonNoPrice
				others = others || !lacking
			case o.Available:
				free[o.ReservationID] = max(free[o.ReservationID], o.Remaining)
			case o.UnavailableReason == catalog.ReasonFull:
				full[o.ReservationID] = true
			}
		}
	}
	out := TemplateRoom{Only: reserved && !others, Full: slices.Sorted(maps.Keys(full))}
	for _, n := range free {
		out.Free += n
	}
	return out, nil
}

// WithFreedSlot is the snapshot as if one more instance were free in a reservation. It is false if no pool can launch
// into the reservation even then: it is unknown, about to end, or EC2 launches nothing there at the moment.
func WithFreedSlot(s *snapshot.Snapshot, id string) (*snapshot.Snapshot, bool) {
	out := *s
	out.Pools = slices.Clone(s.Pools)
	freed := map[*catalog.InstanceType]*catalog.InstanceType{} // pools share types
	found := false
	for i := range out.Pools {
		p := &out.Pools[i]
		p.InstanceTypes = slices.Clone(p.InstanceTypes)
		for k, it := range p.InstanceTypes {
			if _, known := freed[it]; !known {
				freed[it] = typeWithFreedSlot(it, id)
			}
			found = found || freed[it] != it
			p.InstanceTypes[k] = freed[it]
		}
	}
	return &out, found
}

// typeWithFreedSlot is the type itself if it has no offering in the reservation that could be launched.
func typeWithFreedSlot(it *catalog.InstanceType, id string) *catalog.InstanceType {
	takes := func(o catalog.Offering) bool {
		return o.ReservationID == id && (o.Available || o.UnavailableReason == catalog.ReasonFull)
	}
	if id == "" || !slices.ContainsFunc(it.Offerings, takes) {
		return it
	}
	out := *it
	out.Offerings = slices.Clone(it.Offerings)
	for i := range out.Offerings {
		if o := &out.Offerings[i]; takes(*o) {
			o.Remaining++
			o.Available, o.UnavailableReason, o.UnavailableMessage = true, "", ""
		}
	}
	return &out
}
