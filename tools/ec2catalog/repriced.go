package main

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed repriced.txt
var repricedText string

// sameAsEast are the regions in which every type of the price list costs what it costs in us-east-1.
var sameAsEast = []string{"us-east-1", "us-west-2"}

// reprice puts the prices of repriced.txt into the list.
func reprice(list []instance, text string) error {
	prices := map[string]dollars{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		price, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return fmt.Errorf("repriced.txt: %s: %w", name, err)
		}
		prices[name] = dollars(price)
	}
	for _, in := range list {
		price, ok := prices[in.Name]
		if !ok {
			continue
		}
		delete(prices, in.Name)
		for _, region := range sameAsEast {
			if p := in.Pricing[region]; p.Linux.OnDemand > 0 {
				p.Linux.OnDemand = price
				in.Pricing[region] = p
			}
		}
	}
	for name := range prices {
		return fmt.Errorf("repriced.txt: the price list has no %s", name)
	}
	return nil
}
