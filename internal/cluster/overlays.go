package cluster

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
)

// Overlays are the NodeOverlays that hold at the moment, and the pools that they were judged for. It is safe for
// concurrent use. Readers see one whole judgement or the next, never a mixture.
type Overlays struct {
	mu     sync.Mutex
	book   overlay.Book
	prices map[string]float64
	// version counts the judgements that differ in prices.
	version int
	judged  map[types.UID]bool
	laid    map[types.UID]laid
}

// laid is what Lay has returned for a pool: the next pass asks for the same, most of the time.
type laid struct {
	pool     *karpv1.NodePool
	from, to []*catalog.InstanceType
}

// Set replaces the overlays by those of book, which were judged over the types of the pools.
func (o *Overlays) Set(book overlay.Book, pools []types.UID) {
	prices := book.Prices()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !maps.Equal(prices, o.prices) {
		o.prices = prices
		o.version++
	}
	o.book, o.laid, o.judged = book, map[types.UID]laid{}, map[types.UID]bool{}
	for _, uid := range pools {
		o.judged[uid] = true
	}
}

// Lay returns what a pool's types become. It is false for a pool that was not judged yet: what it costs is not known.
func (o *Overlays) Lay(pool *karpv1.NodePool, from []*catalog.InstanceType) ([]*catalog.InstanceType, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.judged[pool.UID] {
		return nil, false
	}
	if known := o.laid[pool.UID]; known.pool != nil && known.pool.Generation == pool.Generation && same(known.from, from) {
		return known.to, true
	}
	to := o.book.Lay(pool, from)
	o.laid[pool.UID] = laid{pool, from, to}
	return to, true
}

// same tells whether two lists are one. A cloud hands out the same list until something about it changes.
func same(a, b []*catalog.InstanceType) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Prices are those that overlays give to types by their names, in $/h, for types that the cloud has no price of. The
// version changes with them.
func (o *Overlays) Prices() (prices map[string]float64, version int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.prices, o.version
}
