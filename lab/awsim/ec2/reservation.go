package ec2

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Market types of a launch besides spot and on-demand.
const (
	capacityBlock = "capacity-block"
	interruptible = "interruptible-capacity-reservation"
)

// States of a capacity reservation.
const (
	reservationActive    = "active"
	reservationScheduled = "scheduled"
	reservationExpired   = "expired"
	reservationCancelled = "cancelled"
)

// CapacityReservation is capacity that an account has put aside.
type CapacityReservation struct {
	ID           string // assigned by AddCapacityReservation
	InstanceType string
	Zone         string // name
	// Total is how many instances it holds.
	Total int
	// Available is how many more it takes; read only.
	Available int
	// Targeted reservations take only instances that name them, others (open) all that match.
	Targeted bool
	// Block makes it a capacity block for ML, Interruptible one with instances that its owner may reclaim. Both are
	// targeted.
	Block, Interruptible bool
	// Start and End bound when it can be used; zero = since ever, without end.
	Start, End time.Time
	// OwnerID is the account that shares it; empty = the account itself.
	OwnerID string
	Tags    map[string]string
	// State is active, scheduled, expired or canceled; read only.
	State string
}

// reservation is one with its present use. The lock of EC2 must be held.
type reservation struct {
	CapacityReservation
	created   time.Time
	used      int
	cancelled bool
	// ended reports that what follows from the end has been done.
	ended bool
}

// blockNotice is how long before a capacity block's end EC2 begins to terminate its instances.
const blockNotice = 30 * time.Minute

// AddCapacityReservation reserves capacity, and returns the reservation's ID.
func (e *EC2) AddCapacityReservation(r CapacityReservation) (string, error) {
	t := e.market.byName[r.InstanceType]
	switch {
	case t == nil || !e.market.sold(t, r.Zone):
		return "", fmt.Errorf("capacity reservation: %s is not sold in zone %q", r.InstanceType, r.Zone)
	case r.Total < 1:
		return "", fmt.Errorf("capacity reservation for %d instances", r.Total)
	case r.Block && (r.Interruptible || r.End.IsZero()):
		return "", fmt.Errorf("capacity block %+v: a capacity block must have an end, and cannot be interruptible", r)
	}
	r.Targeted = r.Targeted || r.Block || r.Interruptible
	r.Tags = maps.Clone(r.Tags)
	r.OwnerID = cmp.Or(r.OwnerID, e.cfg.AccountID)
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	r.ID = e.newID("cr")
	e.reservations = append(e.reservations, &reservation{CapacityReservation: r, created: now})
	return r.ID, nil
}

// CancelCapacityReservation gives reserved capacity back. Instances in it run on as any others.
func (e *EC2) CancelCapacityReservation(id string) error {
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.reservation(id)
	if r == nil {
		return reservationIDs().absent(id)
	}
	r.cancelled = true
	e.endReservation(r, now)
	return nil
}

// CapacityReservations returns all reservations, finished ones included, in the order in which they were added.
func (e *EC2) CapacityReservations() []CapacityReservation {
	now := e.applyDueTransitions()
	e.mu.RLock()
	defer e.mu.RUnlock()
	out := make([]CapacityReservation, len(e.reservations))
	for i, r := range e.reservations {
		out[i] = r.at(now)
	}
	return out
}

func (e *EC2) reservation(id string) *reservation {
	return find(e.reservations, func(r *reservation) bool { return r.ID == id })
}

// at is the reservation as it is shown.
func (r *reservation) at(now time.Time) CapacityReservation {
	out := r.CapacityReservation
	out.Tags = maps.Clone(r.Tags)
	if out.State = r.state(now); out.State == reservationActive {
		out.Available = max(0, r.Total-r.used) // while reclaimed instances run on, it is full
	}
	return out
}

func (r *reservation) state(now time.Time) string {
	switch {
	case r.cancelled:
		return reservationCancelled
	case !r.End.IsZero() && !now.Before(r.End):
		return reservationExpired
	case now.Before(r.Start):
		return reservationScheduled
	}
	return reservationActive
}

// ends is when the reservation's instances lose it; zero = never, or already done.
func (r *reservation) ends() time.Time {
	switch {
	case r.ended || r.End.IsZero():
		return time.Time{}
	case r.Block:
		return r.End.Add(-blockNotice)
	}
	return r.End
}

// dueReservations are those that have finished since somebody last looked. The lock must be held.
func (e *EC2) dueReservations(now time.Time) []*reservation {
	var due []*reservation
	for _, r := range e.reservations {
		if at := r.ends(); !at.IsZero() && !now.Before(at) {
			due = append(due, r)
		}
	}
	return due
}

// endReservation lets the instances of a reservation go: those of a capacity block are terminated, others stay. The
// lock must be held.
func (e *EC2) endReservation(r *reservation, now time.Time) {
	r.ended = true
	for _, i := range e.fleet.list() {
		switch {
		case i.CapacityReservationID != r.ID:
		case !r.Block:
			e.leave(i)
		case i.State != ShuttingDown:
			e.end(i, ShuttingDown, now)
		}
	}
	e.setTimer()
}

// leave takes an instance out of its reservation and returns its new record. The lock must be held.
func (e *EC2) leave(i *instanceRecord) *instanceRecord {
	if i.CapacityReservationID == "" {
		return i
	}
	if r := e.reservation(i.CapacityReservationID); r != nil {
		r.used--
	}
	return e.fleet.put(i, func(i *instanceRecord) { i.CapacityReservationID = "" })
}

// reservationPreference returns the capacity reservation options of a launch plan.
func (o *launchPlan) reservationPreference() (preference, target string) {
	preference = "open"
	if r := o.data.Reservation; r != nil {
		preference = cmp.Or(r.Preference, "open")
		if r.Target != nil {
			target = r.Target.ID
		}
	}
	return preference, target
}

// marketType is the purchase option of the launch: "" unless its template sets one.
func (o *launchPlan) marketType() string {
	if o.data.Market == nil {
		return ""
	}
	return o.data.Market.Type
}

// resolveReservation rejects a reservation that does not exist, and a market type that needs one without an ID.
func (e *EC2) resolveReservation(o *launchPlan, _ launchRequest) error {
	_, target := o.reservationPreference()
	if r := o.data.Reservation; r != nil && r.Target != nil && r.Target.Group != "" {
		return protocol.Errorf("UnsupportedOperation", "The simulator has no groups of capacity reservations")
	}
	if target != "" {
		if err := reservationIDs().check(target); err != nil {
			return err
		}
		if e.reservation(target) == nil {
			return reservationIDs().absent(target)
		}
	}
	if market := o.marketType(); (market == capacityBlock || market == interruptible) && target == "" {
		return combination("The market type %s requires a capacity reservation target", market)
	}
	return nil
}

func notReserved() error {
	return protocol.Errorf("ReservationCapacityExceeded",
		"The requested reservation does not have sufficient compatible and available capacity for this request.")
}

// reserve finds the reservation that n instances of a launch plan go into, nil if they go into none. The lock must be
// held.
func (e *EC2) reserve(o *launchPlan, n int, now time.Time) (*reservation, error) {
	preference, target := o.reservationPreference()
	if o.lifecycle == spotLifecycle || preference == "none" {
		return nil, nil
	}
	fits := func(r *reservation) bool { return r.takes(o, now) && r.Total-r.used >= n }
	if target != "" {
		if r := e.reservation(target); fits(r) {
			return r, nil
		}
		return nil, notReserved()
	}
	r := find(e.reservations, func(r *reservation) bool { return !r.Targeted && fits(r) })
	if r == nil && preference == "capacity-reservations-only" {
		return nil, notReserved()
	}
	return r, nil
}

// takes reports whether the instances of a launch plan match the reservation.
func (r *reservation) takes(o *launchPlan, now time.Time) bool {
	market := ""
	switch {
	case r.Block:
		market = capacityBlock
	case r.Interruptible:
		market = interruptible
	}
	dedicated := o.data.Placement != nil && o.data.Placement.Tenancy == "dedicated"
	return r.state(now) == reservationActive && !r.ended && r.InstanceType == o.instanceType.Name && r.Zone == o.subnet.Zone &&
		o.marketType() == market && !dedicated && o.image.Platform == ""
}

// settleReservations makes happen what follows from the end of reservations. The lock must be held.
func (e *EC2) settleReservations(now time.Time) {
	due := e.dueReservations(now)
	slices.SortStableFunc(due, func(a, b *reservation) int { return a.ends().Compare(b.ends()) })
	for _, r := range due {
		e.endReservation(r, r.ends())
	}
}
