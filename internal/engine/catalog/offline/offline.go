// Package offline has the EC2 instance types and their prices without calling AWS.
//
// It serves whatever must work without an account: the offline planner, the AWS API simulator of the lab, benchmarks,
// and prices until the first response of the Pricing API. The data is embedded, a file of types, one of the devices of
// DRA drivers and one of prices per region, which tools/ec2catalog generates; see the formats in decode.go, devices.go
// and markets.go. It is as of the day it was
// generated (see Catalog.Sources), and no substitute for DescribeInstanceTypes where that can be called.
package offline

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"sort"
	"strings"
)

//go:embed data/*.tsv.gz
var embedded embed.FS

const suffix = ".tsv.gz"

// Catalog is the decoded data. It is immutable and safe for concurrent use.
type Catalog struct {
	types   []Type
	windows []priceFigure // what Windows costs in addition to Linux, in $/h, parallel to types; 0 = the type does not run it
	markets map[string]*market
	sources []string
}

// Regions returns the regions in the data, sorted.
func Regions() []string {
	entries, _ := embedded.ReadDir("data") // cannot fail: it is embedded
	var names []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), suffix); name != "types" && name != "devices" {
			names = append(names, name)
		}
	}
	return names // ReadDir sorts
}

// Load decodes the embedded catalog, anew on each call: every type, and the prices of the named regions, or of all if
// none is named. Unknown regions are skipped. An error means that the build is broken.
func Load(regions ...string) (*Catalog, error) {
	known := Regions()
	if len(regions) == 0 {
		regions = known
	}
	c := &Catalog{markets: map[string]*market{}}
	if err := c.open("types", c.parseTypes); err != nil {
		return nil, err
	}
	for _, name := range append([]string{Base}, regions...) {
		if c.markets[name] != nil || !slices.Contains(known, name) {
			continue
		}
		if err := c.open(name, c.parseMarket); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Catalog) open(name string, parse func([]byte) error) error {
	file, err := embedded.ReadFile("data/" + name + suffix)
	if err == nil {
		err = unpack(file, parse)
	}
	if err != nil {
		return fmt.Errorf("offline catalog: %s: %w", name, err)
	}
	return nil
}

// Types returns every type, sorted by name. The slice and what it refers to are shared: do not modify them.
func (c *Catalog) Types() []Type { return c.types }

// Type returns the type with that name.
func (c *Catalog) Type(name string) (Type, bool) {
	i, ok := c.index(name)
	if !ok {
		return Type{}, false
	}
	return c.types[i], true
}

// Regions returns the regions that were loaded, sorted.
func (c *Catalog) Regions() []string {
	var names []string
	for name := range c.markets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Sources are the sources of the data, one line per source, in the order of precedence.
func (c *Catalog) Sources() []string { return slices.Clone(c.sources) }

// ZoneIDs returns the IDs (use1-az1, ...) of the zones of a region that offer the type, sorted. Nil if none does.
func (c *Catalog) ZoneIDs(region, typ string) []string {
	m, ok := c.markets[region]
	if !ok {
		return nil
	}
	var ids []string
	for bit, id := range m.zoneIDs {
		if m.offers[typ].zones&(1<<bit) != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (c *Catalog) index(name string) (int, bool) {
	// By index, since types are large to copy.
	return sort.Find(len(c.types), func(i int) int { return cmp.Compare(name, c.types[i].Name) })
}
