// Package unavailableofferings remembers for a few minutes what EC2 could not give: an offering, an offering within a placement
// group or one partition of it, a whole zone, a whole capacity type, or addresses in a subnet.
//
// What was worked out from the memory is told by sequence numbers when to work it out anew: the number of an instance
// type changes with each mark that concerns it, and again when the mark has run out.
package unavailableofferings

import (
	"maps"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// For is how long a mark is remembered.
const For = 3 * time.Minute

// Offering identifies an offering.
type Offering = catalog.OfferingKey

// Scope is the offerings that a mark covers, or the offering that a caller checks. In a mark an empty field matches
// everything: a mark without an InstanceType covers a whole zone or capacity type.
type Scope struct {
	catalog.OfferingKey
	// PlacementGroup is the ID of the placement group of the launch, empty for none. A mark without a group covers
	// launches into every group and into none; a mark with a group covers only launches into that group.
	PlacementGroup string
	// Partition of the placement group. A mark without a partition covers the whole group.
	Partition string
}

// Memory holds the marks. It is safe for concurrent use; nothing runs in the background.
type Memory struct {
	now func() time.Time

	mu        sync.Mutex
	offerings map[Scope]time.Time // expiry
	subnets   map[string]time.Time
	// next is when the first mark runs out, zero if there is none.
	nextExpiry time.Time
	// typeChanges counts marks and ends of marks that concern one type, all those that concern every type.
	typeChanges   map[string]uint64
	globalChanges uint64
	marks         uint64
}

// New returns a Memory without marks.
func New(now func() time.Time) *Memory {
	return &Memory{now: now, offerings: map[Scope]time.Time{}, subnets: map[string]time.Time{}, typeChanges: map[string]uint64{}}
}

// Marks counts the marks made so far.
func (m *Memory) Marks() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks
}

// Sequence is a number that changes whenever Scarce may answer otherwise for offerings of the type than before.
func (m *Memory) Sequence(instanceType string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.globalChanges + m.typeChanges[instanceType] // both only grow
}

// MarkOffering marks an offering as unavailable, in every placement group.
func (m *Memory) MarkOffering(o catalog.OfferingKey) { m.Mark(Scope{OfferingKey: o}) }

// Mark marks the offerings of a scope as unavailable. Marking again extends the mark.
func (m *Memory) Mark(o Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	m.offerings[o] = m.expiry()
	m.changed(o)
}

// MarkCapacityType notes that nothing of a capacity type can be had.
func (m *Memory) MarkCapacityType(capacityType string) {
	m.MarkOffering(catalog.OfferingKey{CapacityType: capacityType})
}

// MarkZone notes that nothing can be had in a zone.
func (m *Memory) MarkZone(zone string) { m.MarkOffering(catalog.OfferingKey{Zone: zone}) }

// MarkSubnet notes that a subnet has no free address.
func (m *Memory) MarkSubnet(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	m.subnets[id] = m.expiry()
	m.changed(Scope{})
}

// until is when a mark of now runs out.
func (m *Memory) expiry() time.Time {
	m.marks++
	until := m.now().Add(For)
	if m.nextExpiry.IsZero() || until.Before(m.nextExpiry) {
		m.nextExpiry = until
	}
	return until
}

func (m *Memory) changed(o Scope) {
	if o.InstanceType == "" {
		m.globalChanges++
		return
	}
	m.typeChanges[o.InstanceType]++
}

// expire drops the marks that have run out, which is a change as well.
func (m *Memory) expire() {
	now := m.now()
	if m.nextExpiry.IsZero() || now.Before(m.nextExpiry) {
		return
	}
	m.nextExpiry = time.Time{}
	sooner := func(until time.Time) {
		if m.nextExpiry.IsZero() || until.Before(m.nextExpiry) {
			m.nextExpiry = until
		}
	}
	maps.DeleteFunc(m.offerings, func(o Scope, until time.Time) bool {
		if now.Before(until) {
			sooner(until)
			return false
		}
		m.changed(o)
		return true
	})
	maps.DeleteFunc(m.subnets, func(_ string, until time.Time) bool {
		if now.Before(until) {
			sooner(until)
			return false
		}
		m.changed(Scope{})
		return true
	})
}

// Scarce reports whether an offering cannot be had: it is marked, or its zone or capacity type is, or every subnet
// that the node class has in its zone. A class without a subnet there is none of the latter.
func (m *Memory) IsUnavailable(o Scope, subnets []string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.marked(o) || m.allSubnetsFull(subnets)
}

// marked looks for marks about the offering itself, and for those that leave out what it is one of.
func (m *Memory) marked(o Scope) bool {
	if len(m.offerings) == 0 {
		return false
	}
	for _, group := range o.groups() {
		for _, instanceType := range []string{o.InstanceType, ""} {
			for _, capacityType := range []string{o.CapacityType, ""} {
				for _, zone := range []string{o.Zone, ""} {
					_, marked := m.offerings[Scope{
						OfferingKey:    catalog.OfferingKey{InstanceType: instanceType, Zone: zone, CapacityType: capacityType},
						PlacementGroup: group.PlacementGroup, Partition: group.Partition,
					}]
					if marked {
						return true
					}
				}
			}
		}
	}
	return false
}

// groups are the placement groups whose marks concern the offering.
func (o Scope) groups() []Scope {
	groups := append(make([]Scope, 0, 3), Scope{})
	if o.PlacementGroup != "" {
		groups = append(groups, Scope{PlacementGroup: o.PlacementGroup})
	}
	if o.Partition != "" {
		groups = append(groups, Scope{PlacementGroup: o.PlacementGroup, Partition: o.Partition})
	}
	return groups
}

func (m *Memory) allSubnetsFull(subnets []string) bool {
	for _, id := range subnets {
		if _, marked := m.subnets[id]; !marked {
			return false
		}
	}
	return len(subnets) > 0
}
