package inventory_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// everything is a source with every supported type of the catalog.
func everything(b *testing.B) *testSource {
	b.Helper()
	data, err := offline.Load()
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	for _, t := range data.Types() {
		names = append(names, t.Name)
	}
	return newTestSource(b, names...)
}

// Resolving all types: while nothing changes, and after a type has become unavailable.
func BenchmarkTypes(b *testing.B) {
	w, c := everything(b), class()
	w.list(b, c)
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			w.list(b, c)
		}
	})
	b.Run("one type unavailable", func(b *testing.B) {
		for b.Loop() {
			w.unavailable.MarkOffering(catalog.OfferingKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "us-east-1a"})
			w.list(b, c)
		}
	})
	b.Run("a subnet full", func(b *testing.B) {
		for b.Loop() {
			w.unavailable.MarkSubnet("subnet-a")
			w.list(b, c)
		}
	})
}
