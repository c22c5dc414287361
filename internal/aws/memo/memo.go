// Package memo remembers answers of AWS for a while. The clock is a parameter, and nothing runs in the background.
package memo

import (
	"sync"
	"time"
)

// Memo maps keys to values that are forgotten after a time. It is safe for concurrent use.
type Memo[K comparable, V any] struct {
	ttl time.Duration
	now func() time.Time

	mu      sync.Mutex
	entries map[K]entry[V]
	sweptAt time.Time
}

type entry[V any] struct {
	value     V
	expiresAt time.Time
}

// New returns a Memo whose entries live for ttl.
func New[K comparable, V any](ttl time.Duration, now func() time.Time) *Memo[K, V] {
	return &Memo[K, V]{ttl: ttl, now: now, entries: map[K]entry[V]{}}
}

// Get returns the value of a key that is not older than the time to live.
func (m *Memo[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok || !m.now().Before(e.expiresAt) {
		var none V
		return none, false
	}
	return e.value, true
}

// Put stores a value; one that is there lives anew.
func (m *Memo[K, V]) Put(key K, value V) { m.SetWithTTL(key, value, m.ttl) }

// SetWithTTL is Put with a time to live of its own.
func (m *Memo[K, V]) SetWithTTL(key K, value V, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.sweep(now)
	m.entries[key] = entry[V]{value: value, expiresAt: now.Add(ttl)}
}

// Drop forgets a key.
func (m *Memo[K, V]) Drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// Clear forgets everything.
func (m *Memo[K, V]) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries)
}

// Values returns all values that still live, in no order.
func (m *Memo[K, V]) Values() []V {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	values := make([]V, 0, len(m.entries))
	for _, e := range m.entries {
		if now.Before(e.expiresAt) {
			values = append(values, e.value)
		}
	}
	return values
}

// sweep frees what is out of date, at most once per time to live.
func (m *Memo[K, V]) sweep(now time.Time) {
	if now.Sub(m.sweptAt) < m.ttl {
		return
	}
	m.sweptAt = now
	for key, e := range m.entries {
		if !now.Before(e.expiresAt) {
			delete(m.entries, key)
		}
	}
}
