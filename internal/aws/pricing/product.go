package pricing

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// product is the part of an item of the Pricing API's price list that is used here.
type product struct {
	Product struct {
		Attributes struct {
			InstanceType string `json:"instanceType"`
		} `json:"attributes"`
	} `json:"product"`
	Terms struct {
		OnDemand map[string]struct {
			PriceDimensions map[string]struct {
				PricePerUnit map[string]string `json:"pricePerUnit"`
			} `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

// ParseProduct parses an item of the Pricing API's price list. It returns false for an item without a type, or without
// a price above zero in the currency.
func ParseProduct(item, currency string) (instanceType string, price float64, ok bool) {
	var p product
	if err := json.Unmarshal([]byte(item), &p); err != nil || p.Product.Attributes.InstanceType == "" {
		return "", 0, false
	}
	for _, term := range slices.Sorted(maps.Keys(p.Terms.OnDemand)) {
		dimensions := p.Terms.OnDemand[term].PriceDimensions
		for _, d := range slices.Sorted(maps.Keys(dimensions)) {
			price, err := strconv.ParseFloat(dimensions[d].PricePerUnit[currency], 64)
			if err == nil && price > 0 {
				return p.Product.Attributes.InstanceType, price, true
			}
		}
	}
	return "", 0, false
}
