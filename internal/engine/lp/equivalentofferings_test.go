package lp

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Offerings with the same room and classes: a program that knows only the cheapest of them has the prices of one that has all.
func TestAnOfferingThatStandsForOthersChangesNoPrice(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 11))
		all := randomInput(r)
		for range 10 { // others alike, some as cheap
			o := all.Offerings[r.IntN(len(all.Offerings))]
			o.Price *= []float64{1, 1.25, 0.8}[r.IntN(3)]
			all.Offerings = append(all.Offerings, o)
		}
		few := all
		few.Offerings, few.RepresentedBy = nil, make([]int32, len(all.Offerings))
		cheapest := func(i, k int) bool {
			a, b := all.Offerings[i], all.Offerings[k]
			return &a.Room[0] == &b.Room[0] && a.Classes == b.Classes && (b.Price < a.Price || b.Price == a.Price && k < i)
		}
		for i := range all.Offerings {
			if best(all.Offerings, i, cheapest) == i {
				few.RepresentedBy[i] = int32(len(few.Offerings))
				few.Offerings = append(few.Offerings, all.Offerings[i])
			}
		}
		for i := range all.Offerings {
			if few.RepresentedBy[i] = few.RepresentedBy[best(all.Offerings, i, cheapest)]; all.Offerings[i].Classes == 0 {
				few.RepresentedBy[i] = -1
			}
		}
		want, got := New(all), New(few)
		for k := range all.Pods {
			if got.Value(k) != want.Value(k) || got.CheapestNode(k) != want.CheapestNode(k) {
				t.Errorf("seed %d: pod %d is worth %v, and %v with all offerings", seed, k, got.Value(k), want.Value(k))
			}
		}
		for i := range all.Offerings {
			if !slices.Equal(got.Duals(i), want.Duals(i)) {
				t.Errorf("seed %d: offering %d has duals %v, and %v with all offerings", seed, i, got.Duals(i), want.Duals(i))
			}
		}
	}
}

// best follows better offerings to the best one.
func best(all []Offering, i int, better func(i, k int) bool) int {
	for k := range all {
		if better(i, k) {
			return best(all, k, better)
		}
	}
	return i
}
