// Package scarcity remembers for a few minutes what EC2 could not give: offerings, a whole capacity type,
// or addresses in a subnet.
package scarcity

import (
	"sync/atomic"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
)

// For is how long a mark is remembered.
const For = 3 * time.Minute

// Offering is what a mark is about.
type Offering struct {
	CapacityType string
	InstanceType string
	Zone         string
}

// Memory holds the marks. It is safe for concurrent use.
type Memory struct {
	offerings     *memo.Memo[Offering, struct{}]
	capacityTypes *memo.Memo[string, struct{}]
	subnets       *memo.Memo[string, struct{}]
	marks         atomic.Uint64
}

// Marks counts the marks made so far; what was computed from the memory is out of date once it has changed.
func (m *Memory) Marks() uint64 { return m.marks.Load() }

// New returns a Memory without marks.
func New(now func() time.Time) *Memory {
	return &Memory{
		offerings:     memo.New[Offering, struct{}](For, now),
		capacityTypes: memo.New[string, struct{}](For, now),
		subnets:       memo.New[string, struct{}](For, now),
	}
}

// MarkOffering notes that an offering cannot be had. Marking again makes the mark last longer.
func (m *Memory) MarkOffering(o Offering) {
	m.offerings.Put(o, struct{}{})
	m.marks.Add(1)
}

// MarkCapacityType notes that nothing of a capacity type can be had.
func (m *Memory) MarkCapacityType(capacityType string) {
	m.capacityTypes.Put(capacityType, struct{}{})
	m.marks.Add(1)
}

// MarkSubnet notes that a subnet has no free address.
func (m *Memory) MarkSubnet(id string) {
	m.subnets.Put(id, struct{}{})
	m.marks.Add(1)
}

// Scarce reports whether an offering cannot be had: it is marked, or its capacity type is, or every subnet
// that the node class has in its zone. A class without a subnet there is none of the latter.
func (m *Memory) Scarce(o Offering, subnets []string) bool {
	if _, marked := m.offerings.Get(o); marked {
		return true
	}
	if _, marked := m.capacityTypes.Get(o.CapacityType); marked {
		return true
	}
	for _, id := range subnets {
		if _, marked := m.subnets.Get(id); !marked {
			return false
		}
	}
	return len(subnets) > 0
}
