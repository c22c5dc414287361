// Package discoveredmemory remembers how much memory nodes were seen to have, by instance type and images: hypervisor, firmware and
// kernel keep a share that EC2 does not tell of.
//
// The least that was seen counts, so that no pod is planned onto memory that some nodes of the type lack. Other images make
// other nodes: what was seen of old ones does not count for them.
package discoveredmemory

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// For is how long an observation counts after it was made, or made again.
const For = 60 * 24 * time.Hour

// Memory holds the observations. It is safe for concurrent use.
type Memory struct {
	now func() time.Time

	mu      sync.Mutex
	seen    map[kind]sight
	version uint64
}

// kind is what nodes have in common that have the same memory.
type kind struct{ instanceType, images string }

type sight struct {
	memory resource.Quantity
	until  time.Time
}

// New returns a Memory that has seen nothing.
func New(now func() time.Time) *Memory { return &Memory{now: now, seen: map[kind]sight{}} }

// Images are the images of a node class as observations are kept by.
func Images(amis []awsv1.AMI) string {
	ids := make([]string, len(amis))
	for i, ami := range amis {
		ids[i] = ami.ID
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

// Note says that a node of the type, of a class with the images, has been seen with so much memory.
func (m *Memory) Note(instanceType, images string, memory resource.Quantity) {
	if memory.Sign() <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	key := kind{instanceType, images}
	known, ok := m.seen[key]
	switch {
	case ok && memory.Cmp(known.memory) > 0:
		return
	case !ok || memory.Cmp(known.memory) < 0:
		m.version++
	}
	m.seen[key] = sight{memory: memory.DeepCopy(), until: m.now().Add(For)}
}

// Of returns the least memory that nodes of the type, of a class with the images, were seen with.
func (m *Memory) Of(instanceType, images string) (resource.Quantity, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.seen[kind{instanceType, images}]
	if !ok || !m.now().Before(known.until) {
		return resource.Quantity{}, false
	}
	return known.memory, true
}

// Version changes with what Of returns.
func (m *Memory) Version() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	return m.version
}

// forget drops what does not count any more.
func (m *Memory) forget() {
	now := m.now()
	for key, s := range m.seen {
		if !now.Before(s.until) {
			delete(m.seen, key)
			m.version++
		}
	}
}
