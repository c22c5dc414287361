// Package offline knows the EC2 instance types without asking AWS.
//
// It serves whatever must work far from an account: the offline planner, the simulated AWS of the
// lab, benchmarks, and prices until the first answer of the Pricing API. The data is one embedded
// file, ec2.tsv.gz, which tools/ec2catalog generates; see the format in decode.go. It is a picture
// of the day it was taken on (Catalog.Sources names its origins), and no substitute for
// DescribeInstanceTypes where that can be called.
package offline

import (
	"cmp"
	_ "embed"
	"slices"
	"sort"
)

//go:embed ec2.tsv.gz
var embedded []byte

// Catalog is the decoded data. It is immutable and safe for concurrent use.
type Catalog struct {
	types   []Type
	regions map[string]*market
	names   []string // of regions, sorted
	sources []string
}

// market is what one region sells, index by index of Catalog.types.
type market struct {
	onDemand, spot []float64 // $/h, 0 = not sold
	zoneIDs        []string  // sorted
	zones          []uint64  // bit i: sold in zoneIDs[i]
}

// Load decodes the embedded catalog, anew on each call. An error means that the build is broken.
func Load() (*Catalog, error) { return decode(embedded) }

// Types returns every type, sorted by name. The slice and what it refers to are shared: do not modify them.
func (c *Catalog) Types() []Type { return c.types }

// Type returns the type of that name.
func (c *Catalog) Type(name string) (Type, bool) {
	i, ok := c.index(name)
	if !ok {
		return Type{}, false
	}
	return c.types[i], true
}

// Regions returns the regions with prices, sorted.
func (c *Catalog) Regions() []string { return slices.Clone(c.names) }

// Sources says where the data comes from, one line per source, in the order of precedence.
func (c *Catalog) Sources() []string { return slices.Clone(c.sources) }

// OnDemand returns the price of Linux with shared tenancy in $/h, and false where the type is not
// sold on demand in that region.
func (c *Catalog) OnDemand(region, typ string) (float64, bool) {
	return c.price(region, typ, func(m *market) []float64 { return m.onDemand })
}

// Spot returns the average over the region's zones of the spot price in $/h, and false where the
// type was not sold as spot in that region.
func (c *Catalog) Spot(region, typ string) (float64, bool) {
	return c.price(region, typ, func(m *market) []float64 { return m.spot })
}

// ZoneIDs returns the IDs (use1-az1, ...) of the zones of a region that offer the type, sorted.
// Nil when the type is not sold there.
func (c *Catalog) ZoneIDs(region, typ string) []string {
	m, ok := c.regions[region]
	i, found := c.index(typ)
	if !ok || !found {
		return nil
	}
	var ids []string
	for bit, id := range m.zoneIDs {
		if m.zones[i]&(1<<bit) != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (c *Catalog) price(region, typ string, column func(*market) []float64) (float64, bool) {
	m, ok := c.regions[region]
	i, found := c.index(typ)
	if !ok || !found {
		return 0, false
	}
	p := column(m)[i]
	return p, p > 0
}

func (c *Catalog) index(name string) (int, bool) {
	// By index, since types are large to hand over.
	return sort.Find(len(c.types), func(i int) int { return cmp.Compare(name, c.types[i].Name) })
}
