package ec2

import (
	"cmp"
	"slices"
)

// Allocation strategies of a fleet.
const (
	lowestPrice         = "lowest-price"
	prioritized         = "prioritized"
	capacityOptimized   = "capacity-optimized"
	capacityPrioritized = "capacity-optimized-prioritized"
	priceCapacity       = "price-capacity-optimized"
)

// shallow is the depth below which price-capacity-optimized avoids a pool, and up to which the prioritized variant of
// capacity-optimized ranks by capacity before priority.
const shallow = 4

// strategy returns how the fleet orders the pools of a lifecycle.
func (f *fleetLaunch) strategy(lifecycle string) string {
	switch {
	case lifecycle == spotLifecycle && f.in.Spot != nil:
		return cmp.Or(f.in.Spot.Strategy, lowestPrice)
	case lifecycle == onDemandLifecycle && f.in.OnDemand != nil:
		return cmp.Or(f.in.OnDemand.Strategy, lowestPrice)
	}
	return lowestPrice
}

// ranked is a candidate with what the strategies look at.
type ranked struct {
	*candidate
	price    float64 // per unit of weight; of what is not sold, the highest
	depth    int
	priority float64
	tie      uint64
}

// rank returns the candidates in the order in which the fleet tries them.
//
// EC2 does not publish how it weighs spare capacity against price. Here a spot pool has a depth from 1 to 10
// (market.depth); price-capacity-optimized takes the cheapest of the pools that are not shallow, capacity-optimized the
// deepest, its prioritized variant the first by priority of those that are not shallow. Equals are shuffled, so that
// zones of one price share the instances, as they do in EC2.
func (f *fleetLaunch) rank(lifecycle string, candidates []*candidate) []*candidate {
	list := make([]ranked, len(candidates))
	for i, c := range candidates {
		list[i] = f.appraise(c, lifecycle)
	}
	order := comparison(f.strategy(lifecycle))
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Or(order(a, b), cmp.Compare(a.tie, b.tie)) })
	sorted := make([]*candidate, len(list))
	for i, r := range list {
		sorted[i] = r.candidate
	}
	return sorted
}

func (f *fleetLaunch) appraise(c *candidate, lifecycle string) ranked {
	zone := c.request.zone
	if s := f.e.network.subnet(c.request.subnetID); s != nil {
		zone = s.Zone
	}
	if lifecycle != spotLifecycle {
		lifecycle = onDemandLifecycle // reservations are billed at its price
	}
	pool := Pool{InstanceType: c.request.typ, Zone: zone, Lifecycle: lifecycle}
	r := ranked{candidate: c, price: f.e.market.price(pool) / c.weight, depth: f.e.market.depth(pool), priority: unprioritized}
	r.tie = f.e.market.roll("tie", f.batch.reservation, pool.InstanceType, pool.Zone)
	if r.price == 0 {
		r.price = unsold
	}
	if p := c.choice.Overrides.Priority; p != nil {
		r.priority = *p
	}
	return r
}

const (
	unsold        = 1e12 // $/h
	unprioritized = 1e12
)

func comparison(strategy string) func(a, b ranked) int {
	price := func(a, b ranked) int { return cmp.Compare(a.price, b.price) }
	deep := func(a, b ranked) int { return cmp.Compare(b2i(a.depth < shallow), b2i(b.depth < shallow)) }
	priority := func(a, b ranked) int { return cmp.Compare(a.priority, b.priority) }
	switch strategy {
	case prioritized:
		return priority
	case capacityOptimized:
		return func(a, b ranked) int { return cmp.Or(cmp.Compare(b.depth, a.depth), price(a, b)) }
	case capacityPrioritized:
		return func(a, b ranked) int { return cmp.Or(deep(a, b), priority(a, b), price(a, b)) }
	case priceCapacity:
		return func(a, b ranked) int { return cmp.Or(deep(a, b), price(a, b)) }
	default: // lowest-price, diversified
		return price
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
