// Package unavailableofferings caches for a few minutes what EC2 could not launch: an offering, an offering within a
// placement group or one partition of it, a whole zone, a whole capacity type, or a subnet without free addresses.
//
// Sequence numbers show when results that depend on the cache are outdated: the number of an instance type changes with
// each mark that concerns it, and again when the mark expires.
package unavailableofferings

import (
	"maps"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// TTL sets how long a mark lasts, the same as in Karpenter.
const TTL = 3 * time.Minute

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

// Cache holds the marks. It is safe for concurrent use; nothing runs in the background.
type Cache struct {
	now func() time.Time

	mu        sync.Mutex
	offerings map[Scope]time.Time // expiry
	subnets   map[string]time.Time
	// nextExpiry is the time when the first mark expires, zero if there is none.
	nextExpiry time.Time
	// typeChanges counts new and expired marks that concern one type, globalChanges those that concern every type.
	typeChanges   map[string]uint64
	globalChanges uint64
	// changes counts them all.
	changes uint64
	marks   uint64
}

// New returns a Cache without marks.
func New(now func() time.Time) *Cache {
	return &Cache{now: now, offerings: map[Scope]time.Time{}, subnets: map[string]time.Time{}, typeChanges: map[string]uint64{}}
}

// Marks counts the marks made so far.
func (m *Cache) Marks() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks
}

// Version returns a number that changes whenever Sequence may return another result for any type.
func (m *Cache) Version() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.changes
}

// Sequence returns a number that changes whenever IsUnavailable may return another result for offerings of the type.
func (m *Cache) Sequence(instanceType string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.globalChanges + m.typeChanges[instanceType] // both only grow
}

// MarkOffering marks an offering as unavailable, in every placement group.
func (m *Cache) MarkOffering(o catalog.OfferingKey) { m.Mark(Scope{OfferingKey: o}) }

// Mark marks the offerings of a scope as unavailable. Marking again extends the mark.
func (m *Cache) Mark(o Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	m.offerings[o] = m.expiry()
	m.changed(o)
}

// MarkCapacityType marks a whole capacity type as unavailable.
func (m *Cache) MarkCapacityType(capacityType string) {
	m.MarkOffering(catalog.OfferingKey{CapacityType: capacityType})
}

// MarkZone marks a whole zone as unavailable.
func (m *Cache) MarkZone(zone string) { m.MarkOffering(catalog.OfferingKey{Zone: zone}) }

// MarkSubnet marks a subnet that has no free address.
func (m *Cache) MarkSubnet(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	m.subnets[id] = m.expiry()
	m.changed(Scope{})
}

// expiry returns when a new mark expires.
func (m *Cache) expiry() time.Time {
	m.marks++
	until := m.now().Add(TTL)
	if m.nextExpiry.IsZero() || until.Before(m.nextExpiry) {
		m.nextExpiry = until
	}
	return until
}

func (m *Cache) changed(o Scope) {
	m.changes++
	if o.InstanceType == "" {
		m.globalChanges++
		return
	}
	m.typeChanges[o.InstanceType]++
}

// expire removes expired marks, which is a change as well.
func (m *Cache) expire() {
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

// IsUnavailable reports whether an offering is unavailable: it is marked, or its zone or capacity type is, or every
// subnet that the node class has in its zone. Without subnets the last rule does not apply.
//
// Cost: at most 24 map lookups.
func (m *Cache) IsUnavailable(o Scope, subnets []string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.marked(o) || m.allSubnetsFull(subnets)
}

// marked looks up every scope that covers the offering.
func (m *Cache) marked(o Scope) bool {
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

// groups returns the placement groups with marks that cover the offering.
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

func (m *Cache) allSubnetsFull(subnets []string) bool {
	for _, id := range subnets {
		if _, marked := m.subnets[id]; !marked {
			return false
		}
	}
	return len(subnets) > 0
}
