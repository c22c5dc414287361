package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// lister is a Catalog that knows where its prices come from.
type lister interface {
	// Basis says what derived prices of an operating system come from.
	Basis(os corev1.OSName) string
	Currency() string
}

// PriceNotes say what a reader must know of the prices of a plan: which are not of any list, and in what currency they are.
func PriceNotes(plan schedule.Plan, c Catalog) []string {
	prices, ok := c.(lister)
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
		notes = append(notes, fmt.Sprintf("no price list has the price of %s with %s, marked ~: it is derived (%s). Check it before you rely on it",
			strings.Join(slices.Sorted(maps.Keys(derived[os])), ", "), os, prices.Basis(os)))
	}
	if currency := prices.Currency(); currency != "USD" {
		notes = append(notes, "prices are in "+currency+", not in dollars")
	}
	return notes
}
