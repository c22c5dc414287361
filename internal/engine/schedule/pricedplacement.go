package schedule

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// placePriced is placePodFrom where preferences are priced. Room that is paid for is used at the first relaxation level
// that fits it: it costs nothing. Else the pod needs a node, or a part of one, that is not paid for. Then the first level
// counts at which this costs no more than without preferences, but for the share of the pod's own price.
//
// Cost: one walk through nodes and bins per level; for a new node, up to three sizes per level.
func (r *run) placePriced(q *queuedPod, began int) bool {
	c := q.class
	bare := c.Bare()
	if c.ManyTerms() || r.budget.LookaheadSteps > 0 && r.steps >= r.budget.LookaheadSteps {
		return r.placeFrom(q, bare, began)
	}
	if r.placeInPaidRoom(q, bare) {
		return true
	}
	var base *offer
	for i := bare; i < len(c.Levels()) && base == nil; i++ {
		base = r.cheapestOffer(q, i, fillBare)
	}
	if base == nil {
		return r.placeFrom(q, 0, began) // which keeps what can be met
	}
	excess := make([]float64, 0, bare) // what each level costs above the base, in $/h for this pod
	for i := range bare {
		o, rate := r.bestOffer(q, i, base)
		if rate <= r.pricing.share*(1+1e-9) {
			r.pricing.expected[c], r.weighing.record(c).pays[c] = i, excess
			r.accept(q, o)
			r.weighing.rates[r.bins.Last()] = max(rate, r.weighing.rates[r.bins.Last()])
			r.recordPlaced(q, i, rate, excess)
			return true
		}
		excess = append(excess, rate*r.ownPrice(c))
	}
	r.pricing.expected[c], r.weighing.record(c).pays[c] = base.level, excess
	r.accept(q, base)
	r.recordPlaced(q, base.level, 0, excess)
	return true
}

// placeInPaidRoom puts the pod on an existing node or into a bin that does not cost more with it, at the first level that
// fits. It does not ignore taints of effect PreferNoSchedule.
func (r *run) placeInPaidRoom(q *queuedPod, bare int) bool {
	c := q.class
	end := len(c.Levels())
	if r.softTaints {
		end = bare + 1
	}
	for i := range end {
		onExisting := r.placeOnExisting(q, i)
		if !onExisting && (!r.hasDomain(c, i) || !r.placeInPaidBin(q, i)) {
			continue
		}
		rate := 0.0
		if !onExisting {
			rate = r.weighing.rates[r.bins.Last()]
		}
		r.recordPlaced(q, i, rate, r.knownExcess(q, i))
		return true
	}
	return false
}

// hasDomain reports whether a new node could be in a domain that the level allows.
func (sv *solver) hasDomain(c *class, i int) bool {
	return !sv.topology.NoDomainLeft(c.Views(c.Levels()[i]), c.Levels()[i].Full(), sv.pools.RequiresAbsent)
}

// placeInPaidBin puts the pod into a bin that was sized for more than it holds, or has room at its price.
func (r *run) placeInPaidBin(q *queuedPod, i int) bool {
	if !r.how.plain() {
		return r.placeInBin(q, i, bin.AtItsPrice)
	}
	for _, b := range r.bins.All() {
		if g, why := r.bins.Grow(b, q.class.Class, q.class.Levels()[i], bin.BelowCeiling); why == nil && b.Rise(g) == 0 {
			r.bins.Add(b, q.class.Class, q.pod, g)
			return true
		}
	}
	return false
}

// placePlannedAtAnyLevel puts the pod in a bin that was enlarged for it, at the first level that fits.
func (r *run) placePlannedAtAnyLevel(q *queuedPod, b *bin.Bin) bool {
	for i, level := range q.class.Levels()[:q.class.Bare()+1] {
		if g, why := r.bins.Grow(b, q.class.Class, level, bin.BelowCeiling); why == nil {
			r.bins.Add(b, q.class.Class, q.pod, g)
			r.recordPlaced(q, i, r.weighing.rates[b], r.knownExcess(q, i))
			return true
		}
	}
	return false
}

// offer is a way to place a pod at a relaxation level where no room is paid for: a new node, or one that grows.
type offer struct {
	level int
	// fresh is the new node; nil if bin grows as g instead. scope is what it is filled with.
	fresh *newBinOption
	scope fillScope
	bin   *bin.Bin
	g     bin.Growth
	// price is that of the new node, or by how much the bin's rises, in $/h.
	price float64
	// value is what the new node would hold, own the own prices of the pods in it that keep preferences, both in $/h.
	// They are zero where the node has no size.
	value, own float64
}

// bestOffer is the offer at a level with the least rate: what the node costs above the base, as a share of the own prices
// of the pods that it keeps preferences for. It is nil, and the rate infinite, if the level cannot be met.
//
// A node that other pods fill costs more for all of them. Where that is too much, the node is sized without pods that
// prefer nothing.
func (r *run) bestOffer(q *queuedPod, i int, base *offer) (*offer, float64) {
	best, least := (*offer)(nil), math.Inf(1)
	for _, scope := range [...]fillScope{fillWithAll, fillPreferring} {
		o := r.cheapestOffer(q, i, scope)
		if o == nil {
			break
		}
		if rate := r.rate(q.class, o, base); rate < least {
			best, least = o, rate
		}
		if o.value == 0 || least <= r.pricing.share {
			break
		}
	}
	return best, least
}

// rate is what an offer costs above the base, as a share of the own prices of the pods that keep preferences by it.
func (r *run) rate(c *class, o, base *offer) float64 {
	own := r.ownPrice(c)
	excess := r.pays(c, o) - r.pays(c, base)
	switch {
	case o.value > 0 && base.value > 0:
		own, excess = o.own, o.price-base.price/base.value*o.value
	case o.fresh != nil && base.fresh != nil && o.value == 0 && base.value == 0 && base.price > 0:
		excess = own * (o.price/base.price - 1) // the pod pays its share of both nodes
	}
	switch {
	case excess <= 1e-9*o.price:
		return 0
	case own <= 0:
		return math.Inf(1)
	}
	return excess / own
}

// pays is what a pod of the class pays of the offer's price: of a new node in proportion to its value.
func (r *run) pays(c *class, o *offer) float64 {
	if o.value > 0 {
		return o.price * c.Value() / o.value
	}
	return o.price
}

// cheapestOffer is a new node for the pod at a level, filled with the scope. Without a linear program the first bin that
// takes the pod comes before a new node, else the first that takes it above its ceiling comes after. It is nil if the
// level cannot be met.
func (r *run) cheapestOffer(q *queuedPod, i int, scope fillScope) *offer {
	c := q.class
	if !r.hasDomain(c, i) || i < c.Bare() && !c.LaunchableAt(c.Levels()[i], r.pools) {
		return nil
	}
	if r.how.plain() {
		if o := r.growthOffer(q, i, bin.BelowCeiling); o != nil {
			return o
		}
	}
	var out *offer
	r.scoped(scope, c, i, func() {
		if fresh := r.newBinOffer(c, i); fresh != nil {
			out = r.freshOffer(q, i, fresh)
			out.scope = scope
		}
	})
	if out == nil {
		out = r.growthOffer(q, i, bin.AnyPrice)
	}
	return out
}

// growthOffer is the first bin that grows to take the pod.
func (r *run) growthOffer(q *queuedPod, i int, mode bin.Mode) *offer {
	for _, b := range r.bins.All() {
		if g, why := r.bins.Grow(b, q.class.Class, q.class.Levels()[i], mode); why == nil {
			return &offer{level: i, bin: b, g: g, price: b.Rise(g)}
		}
	}
	return nil
}

// newBinOffer is the cheapest new node in the heaviest pools that take the pod. Where a preferred spread over zones leaves
// several, each of them is tried: other pods that the node could hold may be tied to one.
func (r *run) newBinOffer(c *class, i int) *newBinOption {
	try, level := &c.attempts[i], c.Levels()[i]
	if try.noNewBin {
		return nil
	}
	hopeless := true
	for from := 0; from < len(r.pools.All()); {
		to := r.equalWeight(from)
		pools := r.pools.All()[from:to]
		best, final := r.cheapestNewBin(c, level, pools)
		if best == nil {
			hopeless, from = hopeless && final, to
			continue
		}
		if level.Preferences() > 0 {
			for _, zone := range spreadZones(c, level) {
				if o := r.cheapestInZone(c, level, zone, pools); o != nil && o.cheaperThan(best) {
					best = o
				}
			}
		}
		return best
	}
	try.noNewBin = hopeless
	return nil
}

// spreadZones are the zones of the level's spreads over zones.
func spreadZones(c *class, level *podclass.Level) []string {
	for _, v := range c.Views(level) {
		if v.Type() == topology.Spread && v.Key() == corev1.LabelTopologyZone {
			return v.Group().Universe()
		}
	}
	return nil
}

// cheapestInZone is cheapestNewBin for nodes in one zone.
func (r *run) cheapestInZone(c *class, level *podclass.Level, zone string, pools []*nodepool.Template) (best *newBinOption) {
	in := requirement.In(corev1.LabelTopologyZone, zone)
	for _, t := range pools {
		if t.Unusable().Code != "" {
			continue
		}
		o := &newBinOption{Opening: sizing.Opening{Bin: r.bins.Fresh(t), First: &c.Pods}}
		reqs := t.Requirements().With(in)
		if reqs.Get(corev1.LabelTopologyZone).Impossible() {
			continue
		}
		o.Bin.Narrow(t.Candidates(reqs))
		if why := r.size(o, level); why != nil {
			continue
		}
		if best == nil || o.cheaperThan(best) {
			best = o
		}
	}
	return best
}

// freshOffer is the offer of a new node, with what it would hold.
func (r *run) freshOffer(q *queuedPod, i int, fresh *newBinOption) *offer {
	c := q.class
	o := &offer{level: i, fresh: fresh, price: fresh.Growth.Cheapest().Price}
	if fresh.size.None() {
		return o
	}
	if c.Levels()[i].Preferences() > 0 {
		o.own = r.ownPrice(c)
	}
	o.price, o.value = r.sizer.Preview(&fresh.Opening, fresh.size, func(p *sizing.Pods, n int) {
		other := r.classOf(p.Class)
		if open := r.firstOpenLevel(other); open >= 0 && other.Levels()[open].Preferences() > 0 {
			o.own += r.ownPrice(other) * float64(n)
		}
	})
	return o
}

// accept places the pod as offered.
func (r *run) accept(q *queuedPod, o *offer) {
	if o.fresh == nil {
		r.bins.AddAbove(o.bin, q.at(o.level, bin.AnyPrice), o.g)
		return
	}
	r.scoped(o.scope, q.class, o.level, func() { r.openBin(q, o.level, o.fresh) })
}
