package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// priceLister is a Catalog that knows the source of its prices.
type priceLister interface {
	// Basis returns the source of derived prices of an operating system.
	Basis(os corev1.OSName) string
	Currency() string
}

// PriceNotes returns what a reader must know about the prices of a plan: which are in no price list, and their
// currency.
func PriceNotes(plan schedule.Plan, c Catalog) []string {
	prices, ok := c.(priceLister)
	if !ok || len(plan.Launches) == 0 {
		return nil
	}
	derived := map[corev1.OSName]map[string]bool{}
	for i := range plan.Launches {
		l := &plan.Launches[i]
		if !l.Offering.PriceDerived {
			continue
		}
		os := corev1.Linux
		if name, ok := l.InstanceTypes[0].Requirements.Get(corev1.LabelOSStable).Single(); ok {
			os = corev1.OSName(name)
		}
		if derived[os] == nil {
			derived[os] = map[string]bool{}
		}
		derived[os][l.InstanceTypes[0].Name+" "+l.Offering.CapacityType] = true
	}
	var notes []string
	for _, os := range slices.Sorted(maps.Keys(derived)) {
		notes = append(
			notes,
			fmt.Sprintf("the price lists lack the price of %s with %s, marked ~: it is derived (%s). Check it before you rely on it",
				strings.Join(slices.Sorted(maps.Keys(derived[os])), ", "), os, prices.Basis(os)),
		)
	}
	if currency := prices.Currency(); currency != "USD" {
		notes = append(notes, "prices are in "+currency+", not in dollars")
	}
	return notes
}
