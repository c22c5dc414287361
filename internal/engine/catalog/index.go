package catalog

import (
	"math"
	"sync"
)

// Index finds instance types and prices by name. NodeOverlays change prices per NodePool, so each pool has its own.
// Readers share it once it is filled.
type Index struct {
	pools  map[string]map[string]*InstanceType
	others func() []map[string]*InstanceType
}

// NewIndex returns an Index without types.
func NewIndex() *Index {
	return &Index{pools: map[string]map[string]*InstanceType{}, others: func() []map[string]*InstanceType { return nil }}
}

// Add adds the types of a NodePool. Of several with one name, the first counts. It costs O(types).
func (x *Index) Add(pool string, types []*InstanceType) { x.pools[pool] = byName(types) }

// Has reports whether the types of a NodePool were added.
func (x *Index) Has(pool string) bool { return x.pools[pool] != nil }

// AddOthers states where the prices of nodes are that no NodePool knows: in the first of the lists that has the offering.
// They are read when the first such node is.
func (x *Index) AddOthers(lists func() [][]*InstanceType) {
	x.others = sync.OnceValue(func() (out []map[string]*InstanceType) {
		for _, types := range lists() {
			out = append(out, byName(types))
		}
		return out
	})
}

func byName(types []*InstanceType) map[string]*InstanceType {
	out := make(map[string]*InstanceType, len(types))
	for _, t := range types {
		if out[t.Name] == nil {
			out[t.Name] = t
		}
	}
	return out
}

// Type is the instance type of a NodePool; nil if it has none of this name.
func (x *Index) Type(pool, name string) *InstanceType { return x.pools[pool][name] }

// Price returns what an offering costs a NodePool in $/h, available or not; an empty pool is for nodes without one. A price that is
// not a positive number is unknown, and 0.
func (x *Index) Price(pool string, k OfferingKey) (hourly float64, known bool) {
	if hourly, known = x.pools[pool][k.InstanceType].price(k); known {
		return hourly, true
	}
	for _, types := range x.others() {
		if hourly, known = types[k.InstanceType].price(k); known {
			return hourly, true
		}
	}
	return 0, false
}

// price is that of the first offering with the key. t may be nil.
func (t *InstanceType) price(k OfferingKey) (hourly float64, known bool) {
	if t == nil {
		return 0, false
	}
	for i := range t.Offerings {
		if o := &t.Offerings[i]; o.Zone == k.Zone && o.CapacityType == k.CapacityType {
			if !(o.Price > 0) || math.IsInf(o.Price, 0) { // NaN, too
				return 0, false
			}
			return o.Price, true
		}
	}
	return 0, false
}
