package disrupt

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// PoolCosts keeps what the nodes of pools cost. An offering that is no longer in the catalog keeps its last price for
// the nodes that were launched from it. The zero value is empty.
type PoolCosts struct {
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
