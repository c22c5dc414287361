package disrupt

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// PoolCosts keeps what the nodes of pools cost. An offering that is no longer in the catalog keeps its last price for
// the nodes that were launched from it. The zero value is empty. A copy is independent of the original.
type PoolCosts struct {
	// prices is replaced by each Update, and never changed.
	prices map[poolOffering]float64
}

// poolOffering is an offering as one pool pays for it: NodeOverlays change prices per pool.
type poolOffering struct {
	pool string
	catalog.OfferingKey
}

// Update records the prices of a view and adds up the pools, in $/h. unknown counts the nodes without a price, by
// pool. Nodes without one of the labels that identify their offering are left out.
func (l *PoolCosts) Update(v *View) (totals map[string]float64, unknown map[string]int) {
	prices := map[poolOffering]float64{}
	totals, unknown = map[string]float64{}, map[string]int{}
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		o := poolOffering{n.Pool, offeringOf(n)}
		if n.Claim == "" || o.pool == "" || o.InstanceType == "" || o.Zone == "" || o.CapacityType == "" {
			continue
		}
		known, seen := prices[o]
		if !seen {
			known, seen = l.prices[o], true
			if now, priced := v.prices.Price(o.pool, o.OfferingKey); priced {
				known = now
			}
			prices[o] = known
		}
		if known == 0 {
			unknown[o.pool]++
		}
		totals[o.pool] += known
	}
	l.prices = prices
	return totals, unknown
}

// pricedOffering is the price of an offering as one pool pays for it, as plain data.
type pricedOffering struct {
	NodePool     string          `json:"nodePool"`
	InstanceType string          `json:"instanceType"`
	Zone         string          `json:"zone"`
	CapacityType string          `json:"capacityType"`
	Price        quantity.Number `json:"price"` // $/h
}

// MarshalJSON implements json.Marshaler. The prices are sorted.
func (l PoolCosts) MarshalJSON() ([]byte, error) {
	out := make([]pricedOffering, 0, len(l.prices))
	for o, price := range l.prices {
		out = append(out, pricedOffering{o.pool, o.InstanceType, o.Zone, o.CapacityType, quantity.Number(price)})
	}
	slices.SortFunc(out, func(a, b pricedOffering) int {
		return cmp.Or(cmp.Compare(a.NodePool, b.NodePool), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone),
			cmp.Compare(a.CapacityType, b.CapacityType))
	})
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *PoolCosts) UnmarshalJSON(data []byte) error {
	var list []pricedOffering
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	l.prices = make(map[poolOffering]float64, len(list))
	for _, o := range list {
		l.prices[poolOffering{o.NodePool, catalog.OfferingKey{
			InstanceType: o.InstanceType, Zone: o.Zone, CapacityType: o.CapacityType,
		}}] = float64(o.Price)
	}
	return nil
}

// PriceOf is what a node of a NodePool costs, in $/h.
func (v *View) PriceOf(n *snapshot.Node) (hourly float64, known bool) {
	if n.Claim == "" || n.Pool == "" {
		return 0, false
	}
	return v.prices.Price(n.Pool, offeringOf(n))
}
