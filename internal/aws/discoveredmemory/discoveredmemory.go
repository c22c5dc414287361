// Package discoveredmemory caches how much memory nodes report, by instance type and images: hypervisor, firmware and kernel use a
// part of the memory that EC2 reports for the type.
//
// The smallest observation counts, so that no pod is planned onto memory that some nodes of the type lack. Nodes with other images
// have other memory: observations of old images do not count for them.
package discoveredmemory

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// TTL sets how long an observation counts after it was last made: as long as in Karpenter, and longer than most nodes live.
const TTL = 60 * 24 * time.Hour

// Memory has the observations. It is safe for concurrent use.
type Memory struct {
	now func() time.Time

	mu      sync.Mutex
	seen    map[key]observation
	version uint64
}

// key describes what nodes with the same memory have in common.
type key struct{ instanceType, images string }

type observation struct {
	memory resource.Quantity
	until  time.Time
}

// New returns a Memory without observations.
func New(now func() time.Time) *Memory { return &Memory{now: now, seen: map[key]observation{}} }

// Images is the part of a cache key for the images of a node class.
func Images(amis []awsv1.AMI) string {
	ids := make([]string, len(amis))
	for i, ami := range amis {
		ids[i] = ami.ID
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

// Note records that a node of the type, of a class with the images, reports so much memory.
func (m *Memory) Note(instanceType, images string, memory resource.Quantity) {
	if memory.Sign() <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	of := key{instanceType, images}
	known, ok := m.seen[of]
	switch {
	case ok && memory.Cmp(known.memory) > 0:
		return
	case !ok || memory.Cmp(known.memory) < 0:
		m.version++
	}
	m.seen[of] = observation{memory: memory.DeepCopy(), until: m.now().Add(TTL)}
}

// Of returns the smallest memory that nodes of the type, of a class with the images, have reported.
func (m *Memory) Of(instanceType, images string) (resource.Quantity, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.seen[key{instanceType, images}]
	if !ok || !m.now().Before(known.until) {
		return resource.Quantity{}, false
	}
	return known.memory, true
}

// Version changes with what Of returns.
func (m *Memory) Version() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.version
}

// expire deletes observations that no longer count.
func (m *Memory) expire() {
	now := m.now()
	for of, o := range m.seen {
		if !now.Before(o.until) {
			delete(m.seen, of)
			m.version++
		}
	}
}
