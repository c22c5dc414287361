package catalog

import (
	"math"
	"testing"
)

// A NodePool pays its own price for an offering; what it does not have costs what others state, and what is no price is unknown.
func TestIndexPrices(t *testing.T) {
	types := func(prices ...float64) []*InstanceType {
		it := &InstanceType{Name: "m5.large"}
		for _, p := range prices {
			it.Offerings = append(it.Offerings, Offering{Zone: "z-a", CapacityType: "spot", Price: p})
		}
		return []*InstanceType{it}
	}
	x := NewIndex()
	for pool, list := range map[string][]*InstanceType{
		"two": types(0.2, 0.3), "nan": types(math.NaN(), 0.3), "infinite": types(math.Inf(1)), "free": types(0), "negative": types(-1), "none": nil,
	} {
		x.Add(pool, list)
	}
	key := OfferingKey{InstanceType: "m5.large", Zone: "z-a", CapacityType: "spot"}
	expect := func(pool string, want float64) {
		t.Helper()
		if got, known := x.Price(pool, key); got != want || known != (want > 0) {
			t.Errorf("NodePool %q pays %v, %v", pool, got, known)
		}
	}
	expect("two", 0.2)
	for _, pool := range []string{"nan", "infinite", "free", "negative", "none", "another", ""} {
		expect(pool, 0)
	}
	x.AddOthers(func() [][]*InstanceType { return [][]*InstanceType{types(), types(0.5), types(0.7)} })
	expect("two", 0.2)
	for _, pool := range []string{"nan", "none", "another", ""} {
		expect(pool, 0.5)
	}
}
