package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

//go:embed families.txt
var familiesText string

// newcomers describes the types of families.txt, which explains itself, that the price list does not
// have. What else EC2 would say of them (clock, network performance, EBS bandwidth, EFA) stays unknown.
func newcomers(list []instance, known map[string]limits) ([]instance, error) {
	families, err := parseFamilies(familiesText)
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for _, in := range list {
		listed[in.Name] = true
	}
	zones := usualZones(list)
	var found []instance
	for _, name := range slices.Sorted(maps.Keys(known)) {
		family, size, _ := strings.Cut(name, ".")
		f, ok := families[family]
		if !ok || listed[name] {
			continue
		}
		in, err := f.instance(size)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		in.Name, in.ZoneIDs = name, zones
		found = append(found, in)
	}
	return found, nil
}

type family struct {
	manufacturer, architecture string
	gibPerVCPU, perLarge       float64
	prices                     map[string]float64 // of sizes with a price of their own
}

func parseFamilies(text string) (map[string]family, error) {
	families := map[string]family{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 4 {
			return nil, fmt.Errorf("families.txt: %q", line)
		}
		f := family{manufacturer: fields[0], architecture: fields[1], prices: map[string]float64{}}
		var err error
		if f.gibPerVCPU, err = strconv.ParseFloat(fields[2], 64); err != nil {
			return nil, fmt.Errorf("families.txt: %s: %w", name, err)
		}
		if f.perLarge, err = strconv.ParseFloat(fields[3], 64); err != nil {
			return nil, fmt.Errorf("families.txt: %s: %w", name, err)
		}
		for _, exception := range fields[4:] {
			size, price, _ := strings.Cut(exception, "=")
			if f.prices[size], err = strconv.ParseFloat(price, 64); err != nil {
				return nil, fmt.Errorf("families.txt: %s: %w", name, err)
			}
		}
		families[name] = f
	}
	return families, nil
}

// instance is the family's type of that size.
func (f family) instance(size string) (instance, error) {
	vcpus, err := vcpusOf(size)
	if err != nil {
		return instance{}, err
	}
	price, ok := f.prices[size]
	if !ok {
		price = f.perLarge * float64(vcpus) / 2
	}
	in := instance{
		VCPUs:       vcpus,
		MemoryGiB:   f.gibPerVCPU * float64(vcpus),
		Arch:        []string{f.architecture},
		Processor:   f.manufacturer,
		Generation:  "current",
		IPv6:        true,
		alsoForSpot: true,
		Pricing:     map[string]regionPrices{},
	}
	for _, region := range sameAsEast {
		p := regionPrices{}
		p.Linux.OnDemand = dollars(round(price))
		in.Pricing[region] = p
	}
	return in, nil
}

// round keeps seven decimals, more than any price has.
func round(price float64) float64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(price, 'f', 7, 64), 64)
	return f
}

// vcpusOf reads a size: medium, large, xlarge, 12xlarge, metal-24xl.
func vcpusOf(size string) (int, error) {
	switch size {
	case "medium":
		return 1, nil
	case "large":
		return 2, nil
	case "xlarge":
		return 4, nil
	}
	n, ok := strings.CutSuffix(size, "xlarge")
	if !ok {
		if n, ok = strings.CutPrefix(size, "metal-"); ok {
			n, ok = strings.CutSuffix(n, "xl")
		}
	}
	times, err := strconv.Atoi(n)
	if !ok || err != nil {
		return 0, fmt.Errorf("size %q", size)
	}
	return 4 * times, nil
}

// usualZones are those of each region that offer at least three quarters of the listed types.
func usualZones(list []instance) map[string][]string {
	zones := map[string][]string{}
	for region, ids := range zonesOf(list) {
		for _, id := range ids {
			offered := 0
			for _, in := range list {
				if slices.Contains(in.ZoneIDs[region], id) {
					offered++
				}
			}
			if slices.Contains(sameAsEast, region) && 4*offered >= 3*len(list) {
				zones[region] = append(zones[region], id)
			}
		}
	}
	return zones
}
