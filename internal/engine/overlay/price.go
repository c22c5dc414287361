package overlay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Price is the price of an overlay, or its adjustment of a price in $/h. The zero Price changes nothing.
type Price struct {
	operation priceOperation
	value     float64
}

type priceOperation int

const (
	keep priceOperation = iota
	replace
	add
	scale // by value per cent
)

// ParsePrice parses spec.price and spec.priceAdjustment, which exclude each other: an amount, +x or -x to add or
// subtract an amount, or +x% or -x% to add or subtract a share.
func ParsePrice(price, adjustment *string) (Price, error) {
	switch {
	case price != nil && adjustment != nil:
		return Price{}, errors.New("price and priceAdjustment exclude one another")
	case price != nil:
		value, err := parseAmount(*price)
		if err != nil || strings.HasPrefix(*price, "+") || value < 0 {
			return Price{}, fmt.Errorf("price %q is not an amount in $/h", *price)
		}
		return Price{replace, value}, nil
	case adjustment == nil:
		return Price{}, nil
	}
	text, share := strings.CutSuffix(*adjustment, "%")
	value, err := parseAmount(text)
	if err != nil || !strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "-") {
		return Price{}, fmt.Errorf("priceAdjustment %q is neither +x nor -x nor +x%% nor -x%%", *adjustment)
	}
	if share {
		return Price{scale, value}, nil
	}
	return Price{add, value}, nil
}

// parseAmount parses a decimal number. Other spellings that Go accepts ("1e3", "Inf", "0x1p2", "1_0") are invalid.
func parseAmount(text string) (float64, error) {
	if strings.Trim(text, "+-.0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(text, 64)
}

// Of applies the price or adjustment to a price; at least 0.
func (p Price) Of(price float64) float64 {
	switch p.operation {
	case replace:
		return p.value
	case add:
		price += p.value
	case scale:
		price += price * p.value / 100
	}
	return max(0, price)
}
