// Package ttlcache is a TTL cache for answers of AWS. The clock is a parameter, and nothing runs in the background.
package ttlcache

import (
	"maps"
	"sync"
	"time"
)

// Cache maps keys to values that expire. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
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

// New returns a Cache with the default TTL of its entries.
func New[K comparable, V any](ttl time.Duration, now func() time.Time) *Cache[K, V] {
	return &Cache[K, V]{ttl: ttl, now: now, entries: map[K]entry[V]{}}
}

// Get returns the value of a key that has not expired.
func (m *Cache[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok || !m.now().Before(e.expiresAt) {
		var none V
		return none, false
	}
	return e.value, true
}

// Set stores a value with the default TTL, which starts again for an existing key.
func (m *Cache[K, V]) Set(key K, value V) { m.SetWithTTL(key, value, m.ttl) }

// SetWithTTL is Set with another TTL.
func (m *Cache[K, V]) SetWithTTL(key K, value V, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.sweep(now)
	m.entries[key] = entry[V]{value: value, expiresAt: now.Add(ttl)}
}

// Delete removes a key.
func (m *Cache[K, V]) Delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// DeleteFunc removes the keys for which del returns true.
func (m *Cache[K, V]) DeleteFunc(del func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.entries, func(key K, _ entry[V]) bool { return del(key) })
}

// Clear removes everything.
func (m *Cache[K, V]) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries)
}

// Values returns all values that have not expired, in no order.
func (m *Cache[K, V]) Values() []V {
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

// sweep removes expired entries, at most once per TTL. Cost: amortized over the TTL, one pass over the entries.
func (m *Cache[K, V]) sweep(now time.Time) {
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
