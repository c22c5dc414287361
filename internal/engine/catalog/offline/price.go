package offline

import (
	"fmt"
	"strconv"
)

// Base is the region that has a price of nearly every type. Missing prices of other regions are derived from its
// prices.
const Base = "us-east-1"

// WindowsFee states what Windows costs in addition to Linux, unless a price list has another price.
const WindowsFee = "$0.046 per vCPU and hour ($0.0437 on flex types)"

// Platform is the operating system that an instance is billed for.
type Platform string

// The platforms that have prices of their own, by the name of their operating system in Kubernetes.
const (
	Linux   Platform = "linux"
	Windows Platform = "windows"
)

// PriceQuery identifies a price: an hour of a type in a region, with shared tenancy.
type PriceQuery struct {
	Region, Type string
	Spot         bool     // else on-demand
	Platform     Platform // Linux if empty
}

// Price is the price of a Sale.
type Price struct {
	// PerHour is in the currency of the region.
	PerHour float64
	// Derived is true if no source has the price: it was estimated from others, as Basis describes.
	Derived bool
}

// Price returns the price of a sale, whether or not a zone of the region offers it; false if none is known. A spot
// price is the average over the region's zones.
func (c *Catalog) Price(s PriceQuery) (Price, bool) {
	m, ok := c.markets[s.Region]
	if !ok {
		return Price{}, false
	}
	linux, ok := c.onDemand(m, s.Type)
	if ok && s.Spot {
		linux, ok = c.spot(m, s.Type, linux)
	}
	if !ok || s.Platform != Windows {
		return linux, ok
	}
	i, known := c.index(s.Type)
	if !known || c.windows[i].value == 0 {
		return Price{}, false
	}
	fee := c.windows[i]
	return Price{
		PerHour: rounded(linux.PerHour + fee.value*m.dollar),
		Derived: linux.Derived || fee.derived || s.Spot || m.dollar != 1,
	}, true
}

// onDemand is the region's own price, or that of the base region times the median ratio of all others.
func (c *Catalog) onDemand(m *market, typ string) (Price, bool) {
	if own := m.offers[typ].onDemand; own.value > 0 {
		return own.price(), true
	}
	from := c.markets[Base].offers[typ].onDemand
	if from.value == 0 || m.onDemandRatio == 0 {
		return Price{}, false
	}
	return Price{PerHour: rounded(from.value * m.onDemandRatio), Derived: true}, true
}

// spot is the region's own price; else that of the base region times the median ratio of all others; else, for a type
// without a spot price in either region, its on-demand price times the usual share. It never exceeds the on-demand
// price.
func (c *Catalog) spot(m *market, typ string, onDemand Price) (Price, bool) {
	if own := m.offers[typ].spot; own.value > 0 {
		return own.price(), true
	}
	from := c.markets[Base].offers[typ]
	derived := onDemand.PerHour * m.spotShare
	switch {
	case from.spot.value > 0 && m.spotRatio > 0:
		derived = from.spot.value * m.spotRatio
	case from.spot.value > 0 && from.onDemand.value > 0:
		derived = onDemand.PerHour * from.spot.value / from.onDemand.value
	}
	return Price{PerHour: rounded(min(derived, onDemand.PerHour)), Derived: true}, derived > 0
}

// rounded rounds a derived price to as many digits as AWS publishes.
func rounded(price float64) float64 {
	value, _ := strconv.ParseFloat(strconv.FormatFloat(price, 'f', 5, 64), 64)
	return value
}

// OnDemand returns the on-demand price of Linux.
func (c *Catalog) OnDemand(region, typ string) (float64, bool) {
	p, ok := c.Price(PriceQuery{Region: region, Type: typ})
	return p.PerHour, ok
}

// Spot returns the spot price of Linux.
func (c *Catalog) Spot(region, typ string) (float64, bool) {
	p, ok := c.Price(PriceQuery{Region: region, Type: typ, Spot: true})
	return p.PerHour, ok
}

// Currency is the currency of a region's prices: USD, or CNY in China.
func (c *Catalog) Currency(region string) string {
	if m, ok := c.markets[region]; ok {
		return m.currency
	}
	return "USD"
}

// Month is that of a region's own prices, such as July 2026; empty for an unknown region.
func (c *Catalog) Month(region string) string {
	if m, ok := c.markets[region]; ok {
		return m.month
	}
	return ""
}

// Basis describes the month of a region's own prices, and how derived ones are estimated.
func (c *Catalog) Basis(region string) string {
	m, ok := c.markets[region]
	if !ok {
		return ""
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	spot := fmt.Sprintf("spot: times %s, or %s of the on-demand price", number(m.spotRatio), number(m.spotShare))
	if m.spotRatio == 0 || region == Base {
		spot = fmt.Sprintf("spot: the share of its on-demand price that it costs in %s, or %s", Base, number(m.spotShare))
	}
	switch {
	case m.note != "":
		return fmt.Sprintf("%s, of %s; %s", m.note, m.month, spot)
	case region == Base:
		return fmt.Sprintf("prices of %s; one that is not listed is that of other regions, divided by their ratio; %s", m.month, spot)
	}
	return fmt.Sprintf("prices of %s; one that is not listed is %s's times %s, the median of the types that both have; %s",
		m.month, Base, number(m.onDemandRatio), spot)
}
