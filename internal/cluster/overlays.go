package cluster

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
)

// Overlays are the valid NodeOverlays, and the pools that they were evaluated for. It is safe for concurrent use.
// Readers see one complete evaluation or the next, never a mixture.
type Overlays struct {
	mu     sync.Mutex
	book   overlay.Overlays
	prices map[string]float64
	// version counts the evaluations that changed prices.
	version   int
	evaluated map[types.UID]bool
	applied   map[types.UID]appliedOverlays
}

// appliedOverlays caches a result for a pool: most passes have the same input.
type appliedOverlays struct {
	pool     *karpv1.NodePool
	from, to []*catalog.InstanceType
}

// Set replaces the overlays by those of book, which were evaluated for the instance types of the pools.
func (o *Overlays) Set(book overlay.Overlays, pools []types.UID) {
	prices := book.Prices()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !maps.Equal(prices, o.prices) {
		o.prices = prices
		o.version++
	}
	o.book, o.applied, o.evaluated = book, map[types.UID]appliedOverlays{}, map[types.UID]bool{}
	for _, uid := range pools {
		o.evaluated[uid] = true
	}
}

// Apply returns a pool's instance types with the overlays applied. It returns false for a pool that was not evaluated
// yet: its prices are unknown.
func (o *Overlays) Apply(pool *karpv1.NodePool, from []*catalog.InstanceType) ([]*catalog.InstanceType, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.evaluated[pool.UID] {
		return nil, false
	}
	if known := o.applied[pool.UID]; known.pool != nil && known.pool.Generation == pool.Generation && sameList(known.from, from) {
		return known.to, true
	}
	to := o.book.Apply(pool, from)
	o.applied[pool.UID] = appliedOverlays{pool, from, to}
	return to, true
}

// sameList reports whether two slices are the same slice. A cloud returns the same slice until its content changes.
func sameList(a, b []*catalog.InstanceType) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Prices are the prices that overlays set, in $/h by instance type, for types without a price from the cloud. The
// version changes with them.
func (o *Overlays) Prices() (prices map[string]float64, version int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.prices, o.version
}
