package main

import (
	"maps"
	"math"
	"slices"
)

// base is the region that has a price of nearly every type, and that prices of other regions are derived from.
const base = "us-east-1"

// Months of the prices.
const (
	listMonth, recentMonth, chinaMonth = "May 2025", "July 2026", "November 2024"
)

// unlisted are the regions without a listing of offerings. A type with a price there counts as offered in every zone.
var unlisted = map[string][]string{
	"us-gov-east-1":  {"usge1-az1", "usge1-az2", "usge1-az3"},
	"us-gov-west-1":  {"usgw1-az1", "usgw1-az2", "usgw1-az3"},
	"cn-north-1":     {"cnn1-az1", "cnn1-az2", "cnn1-az4"},
	"cn-northwest-1": {"cnnw1-az1", "cnnw1-az2", "cnnw1-az3"},
}

// samePrices are regions without prices in any source, with the region that they copy.
var samePrices = map[string]string{"cn-northwest-1": "cn-north-1"}

// yuan converts a price that is only known in dollars. Prices in China differ by more than its error.
const yuan = 7

// market is what the file of a region holds.
type market struct {
	name, currency string
	// month of the on-demand prices, and a note on their source if the region has no list of its own.
	month, note string
	zones       []string
	// dollar is the factor of Windows' fee.
	dollar float64
	// onDemand and spot are ratios to us-east-1, medians over the types that both have. 0 if no type is in both.
	onDemandRatio, spotRatio float64
	// spotShare is the median share of its on-demand price that a type costs as spot.
	spotShare      float64
	onDemand, spot map[string]quote
	offered        map[string][]string // zone IDs by type
	names          []string            // of what has a price or is offered, sorted
}

// quote is a price of a type.
type quote struct {
	price   float64
	derived bool
}

// markets are all regions by name.
func markets(known facts, p prices) []market {
	described := map[string]bool{}
	for _, t := range known.types {
		described[t.Name] = true
	}
	east := map[string]quote{} // every price of the base, completed below
	for name, price := range p.recent[base] {
		east[name] = quote{price: price}
	}
	var all []market
	for _, region := range slices.Sorted(maps.Keys(known.zones)) {
		all = append(all, listedMarket(region, known, p))
	}
	for _, region := range slices.Sorted(maps.Keys(unlisted)) {
		all = append(all, unlistedMarket(region, described, p))
	}
	complete(east, all)
	share := 0.0
	for i := range all {
		m := &all[i]
		if m.name == base {
			m.onDemand, share = east, m.spotShare
			maps.DeleteFunc(m.onDemand, func(name string, _ quote) bool { return !described[name] })
		}
	}
	for i := range all {
		m := &all[i]
		if m.spotShare == 0 {
			m.spotShare = share
		}
		m.names = slices.Sorted(maps.Keys(keys(m.onDemand, m.spot, m.offered)))
	}
	slices.SortFunc(all, func(a, b market) int { return slices.Compare([]string{a.name}, []string{b.name}) })
	return all
}

// listedMarket is a region with a listing of its offerings. Its prices are those of the list. If us-east-1's has
// changed since, the region's is assumed to have changed by the same factor.
func listedMarket(region string, known facts, p prices) market {
	m := market{
		name: region, currency: "USD", month: listMonth, zones: known.zones[region], dollar: 1, offered: known.offered[region],
		onDemand: map[string]quote{}, spot: map[string]quote{},
		onDemandRatio: ratio(p.list[region], p.list[base]), spotRatio: ratio(p.spot[region], p.spot[base]),
		spotShare: ratio(p.spot[region], p.list[region]),
	}
	if region == base {
		m.month = recentMonth
	}
	for name := range m.offered {
		if price := p.list[region][name]; price > 0 {
			now := since(p.list[base][name], p.recent[base][name])
			m.onDemand[name] = quote{round(price * now), now != 1}
		}
		// A spot price above the list's is from a shortage, not the usual price.
		if price := p.spot[region][name]; price > 0 && price <= m.onDemand[name].price {
			m.spot[name] = quote{price: price}
		}
	}
	return m
}

// since is the factor by which a price has changed; 1 for less than the rounding of its sources.
func since(before, now float64) float64 {
	const rounding = 0.002
	if before == 0 || now == 0 || math.Abs(now/before-1) < rounding {
		return 1
	}
	return now / before
}

// unlistedMarket is a region of another partition.
func unlistedMarket(region string, described map[string]bool, p prices) market {
	source := region
	if samePrices[region] != "" {
		source = samePrices[region]
	}
	m := market{
		name: region, currency: "USD", month: recentMonth, zones: unlisted[region], dollar: 1,
		onDemand: map[string]quote{}, spot: map[string]quote{}, offered: map[string][]string{},
		onDemandRatio: ratio(p.recent[source], p.recent[base]),
	}
	if region[:3] == "cn-" {
		m.currency, m.month, m.dollar = "CNY", chinaMonth, yuan
	}
	if source != region {
		m.note = "no price of the region is known: those of " + source + " are taken"
	}
	for name, price := range p.recent[source] {
		m.onDemand[name] = quote{price, source != region}
		if described[name] {
			m.offered[name] = m.zones
		}
	}
	return m
}

// complete adds to the base the types that only other regions offer, at the median of the prices derived from these.
func complete(east map[string]quote, all []market) {
	elsewhere := map[string][]float64{}
	for _, m := range all {
		for name, q := range m.onDemand {
			if _, known := east[name]; !known && !q.derived && m.onDemandRatio > 0 {
				elsewhere[name] = append(elsewhere[name], q.price/m.onDemandRatio)
			}
		}
	}
	for name, found := range elsewhere {
		east[name] = quote{round(median(found)), true}
	}
}

// ratio is the median of a's prices to b's, over the types that both have; 0 if there is none.
func ratio(a, b map[string]float64) float64 {
	var ratios []float64
	for name, price := range a {
		if other := b[name]; other > 0 {
			ratios = append(ratios, price/other)
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	const digits = 1e4
	return math.Round(median(ratios)*digits) / digits
}

// median is the middle of the values, of an even number of them the lower one.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

func keys(prices, spot map[string]quote, offered map[string][]string) map[string]bool {
	all := map[string]bool{}
	for _, m := range []map[string]quote{prices, spot} {
		for name := range m {
			all[name] = true
		}
	}
	for name := range offered {
		all[name] = true
	}
	return all
}
