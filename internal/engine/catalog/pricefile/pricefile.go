// Package pricefile reads prices of instance types from a file, such as those that a company has negotiated.
package pricefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// mostExpensive is what no instance costs, in $/h: EC2's most expensive costs some hundreds in any currency. It keeps sums finite.
const mostExpensive = 100_000

// shownErrors is how many errors of a file are reported at once.
const shownErrors = 10

// Prices are those of a file, in $/h.
type Prices struct {
	onDemand map[string]float64
	spot     map[string]spotPrices
}

// spotPrices are those of an instance type: one for all zones, or one for each.
type spotPrices struct {
	all    *float64
	byZone map[string]float64
}

// file is the format.
type file struct {
	OnDemand map[string]json.RawMessage `json:"onDemand"`
	Spot     map[string]json.RawMessage `json:"spot"`
}

// Decode reads a file, which is JSON. An error names the invalid entries.
func Decode(data []byte) (*Prices, error) {
	var f file
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var mismatch *json.UnmarshalTypeError
	switch err := decoder.Decode(&f); {
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return nil, fmt.Errorf("not a file of prices: %s is %s, and not instance types with prices", mismatch.Field, mismatch.Value)
	case errors.As(err, &mismatch):
		return nil, fmt.Errorf("not a file of prices: it is %s, and not an object with onDemand and spot", mismatch.Value)
	case err != nil:
		return nil, fmt.Errorf("not a file of prices: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a file of prices: it has more than one object")
	}
	if len(f.OnDemand)+len(f.Spot) == 0 {
		return nil, errors.New("it has no prices: it needs onDemand or spot, with instance types and their prices in $/h")
	}
	p := &Prices{onDemand: map[string]float64{}, spot: map[string]spotPrices{}}
	var found problems
	for _, name := range slices.Sorted(maps.Keys(f.OnDemand)) {
		p.onDemand[name] = found.price("onDemand."+name, f.OnDemand[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.Spot)) {
		p.spot[name] = found.spot("spot."+name, f.Spot[name])
	}
	if _, unnamed := p.onDemand[""]; unnamed {
		found.add("onDemand", "has a price without an instance type")
	}
	if _, unnamed := p.spot[""]; unnamed {
		found.add("spot", "has a price without an instance type")
	}
	return p, found.err()
}

// problems are the errors of a file.
type problems struct {
	shown []error
	more  int
}

func (p *problems) add(field, format string, args ...any) {
	if len(p.shown) == shownErrors {
		p.more++
		return
	}
	p.shown = append(p.shown, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
}

func (p *problems) err() error {
	if p.more > 0 {
		return errors.Join(append(p.shown, fmt.Errorf("and %d more", p.more))...)
	}
	return errors.Join(p.shown...)
}

// price reads a price.
func (p *problems) price(field string, text json.RawMessage) float64 {
	var price float64
	switch err := json.Unmarshal(text, &price); {
	case string(text) == "null":
		p.add(field, "has no price")
	case err != nil:
		p.add(field, "%s is no price: it must be a number, in $/h", abridged(text))
	case price <= 0:
		p.add(field, "%s is no price: it must be more than 0", abridged(text))
	case price > mostExpensive:
		p.add(field, "%s is no price: it is more than %d $/h", abridged(text), mostExpensive)
	}
	return price
}

// spot reads a price, or one for each zone.
func (p *problems) spot(field string, text json.RawMessage) (out spotPrices) {
	if !strings.HasPrefix(string(text), "{") {
		price := p.price(field, text)
		out.all = &price
		return out
	}
	var zones map[string]json.RawMessage
	if err := json.Unmarshal(text, &zones); err != nil || len(zones) == 0 {
		p.add(field, "has no price of a zone")
	}
	out.byZone = make(map[string]float64, len(zones))
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		if zone == "" {
			p.add(field, "has a price without a zone")
		}
		out.byZone[zone] = p.price(field+"."+zone, zones[zone])
	}
	return out
}

// abridged is the beginning of a value.
func abridged(text json.RawMessage) string {
	const most = 40
	if runes := []rune(string(text)); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return string(text)
}

// OnDemand returns the price of an instance type as on-demand, in $/h.
func (p *Prices) OnDemand(instanceType string) (float64, bool) {
	price, known := p.onDemand[instanceType]
	return price, known
}

// Spot returns the price of an instance type as spot in a zone, in $/h.
func (p *Prices) Spot(instanceType, zone string) (float64, bool) {
	known := p.spot[instanceType]
	if known.all != nil {
		return *known.all, true
	}
	price, ok := known.byZone[zone]
	return price, ok
}

// InstanceTypes returns the names of all instance types with a price, sorted.
func (p *Prices) InstanceTypes() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(p.onDemand)), maps.Keys(p.spot))
	slices.Sort(names)
	return slices.Compact(names)
}

// Zones returns all zones that are named, sorted.
func (p *Prices) Zones() []string {
	var zones []string
	for _, of := range p.spot {
		zones = slices.AppendSeq(zones, maps.Keys(of.byZone))
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}
