package pricing

import (
	"maps"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// How old prices of an earlier process may be. On-demand prices change a few times a year; those of spot follow demand over days.
const (
	OnDemandKeptFor = 7 * 24 * time.Hour
	SpotKeptFor     = 24 * time.Hour
)

// Kept are prices for a process that starts while they cannot be read.
type Kept struct {
	// OnDemandAt and SpotAt are when AWS gave them; zero if it has not.
	OnDemandAt time.Time `json:"onDemandAt"`
	SpotAt     time.Time `json:"spotAt"`
	// OnDemand are the prices per hour by instance type, Spot by zone and instance type.
	OnDemand map[offline.Platform]map[string]float64            `json:"onDemand"`
	Spot     map[offline.Platform]map[string]map[string]float64 `json:"spot"`
}

// Keep returns the prices that this process has read, and the time of the older ones; false if it has read none.
func (p *Prices) Keep() (Kept, time.Time, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := Kept{
		OnDemandAt: p.read[karpv1.CapacityTypeOnDemand].at, SpotAt: p.read[karpv1.CapacityTypeSpot].at,
		OnDemand: map[offline.Platform]map[string]float64{}, Spot: map[offline.Platform]map[string]map[string]float64{},
	}
	at := out.OnDemandAt
	if at.IsZero() || !out.SpotAt.IsZero() && out.SpotAt.Before(at) {
		at = out.SpotAt
	}
	for platform, of := range p.lists {
		if !out.OnDemandAt.IsZero() {
			out.OnDemand[platform] = maps.Clone(of.onDemand)
		}
		if out.SpotAt.IsZero() {
			continue
		}
		byZone := map[string]map[string]float64{}
		for key, price := range of.spot {
			if byZone[key.Zone] == nil {
				byZone[key.Zone] = map[string]float64{}
			}
			byZone[key.Zone][key.InstanceType] = price.price
		}
		out.Spot[platform] = byZone
	}
	return out, at, !at.IsZero()
}

// Recall has prices that AWS gave to an earlier process stand in until this one has read them, and reports whether any do: those that are
// too old do not.
func (p *Prices) Recall(k Kept) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	onDemand := p.stands(karpv1.CapacityTypeOnDemand, k.OnDemandAt)
	spot := p.stands(karpv1.CapacityTypeSpot, k.SpotAt)
	if onDemand {
		p.recalled[karpv1.CapacityTypeOnDemand] = k.OnDemandAt
		for platform, prices := range k.OnDemand {
			p.listOf(platform).onDemand = positive(prices)
		}
	}
	if spot {
		p.recalled[karpv1.CapacityTypeSpot] = k.SpotAt
		for platform, zones := range k.Spot {
			list := map[catalog.OfferingKey]spotPrice{}
			for zone, prices := range zones {
				for name, price := range positive(prices) {
					list[spotKey(name, zone)] = spotPrice{price: price, at: k.SpotAt}
				}
			}
			p.listOf(platform).spot = list
		}
	}
	if onDemand || spot {
		p.version++
	}
	return onDemand || spot
}

// stands reports whether prices of an earlier process may stand in for those of a capacity type. The caller holds the lock.
func (p *Prices) stands(capacityType string, at time.Time) bool {
	return p.read[capacityType].at.IsZero() && !at.IsZero() && p.cfg.Now().Sub(at) <= keptFor(capacityType)
}

func keptFor(capacityType string) time.Duration {
	if capacityType == karpv1.CapacityTypeSpot {
		return SpotKeptFor
	}
	return OnDemandKeptFor
}

// listOf returns the list of a platform. The caller holds the lock.
func (p *Prices) listOf(platform offline.Platform) *platformPrices {
	if p.lists[platform] == nil {
		p.lists[platform] = newList()
	}
	return p.lists[platform]
}

// positive are the prices that are one.
func positive(prices map[string]float64) map[string]float64 {
	out := maps.Clone(prices)
	maps.DeleteFunc(out, func(_ string, price float64) bool { return !(price > 0) })
	if out == nil {
		out = map[string]float64{}
	}
	return out
}

// Recalled returns when the oldest prices were given that stand in; false if none do.
func (p *Prices) Recalled() (time.Time, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var oldest time.Time
	for _, at := range p.recalled {
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest, !oldest.IsZero()
}

// Forget drops prices of an earlier process: those that ship with the program are used until this one has read them.
func (p *Prices) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(func(string, time.Time) bool { return true })
}

// expire drops prices of an earlier process that have become too old. The caller holds the lock.
func (p *Prices) expire() {
	p.drop(func(capacityType string, at time.Time) bool { return p.cfg.Now().Sub(at) > keptFor(capacityType) })
}

// drop drops the prices of an earlier process for which old returns true. The caller holds the lock.
func (p *Prices) drop(old func(capacityType string, at time.Time) bool) {
	for capacityType, at := range p.recalled {
		if !old(capacityType, at) {
			continue
		}
		delete(p.recalled, capacityType)
		p.version++
		for _, of := range p.lists {
			switch {
			case of.read[capacityType]: // of a platform that could be read
			case capacityType == karpv1.CapacityTypeSpot:
				of.spot = map[catalog.OfferingKey]spotPrice{}
			default:
				of.onDemand = map[string]float64{}
			}
		}
	}
}
