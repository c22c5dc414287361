package catalog_test

import (
	"fmt"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// The cheapest offering of a type depends on what a NodePool and its pods require.
func ExampleInstanceType_Cheapest() {
	it := WithOfferings(
		Type("m.large", 0.20, "cpu", "4"),
		Offering(
			"z1",
			karpv1.CapacityTypeOnDemand,
			0.20,
		),
		Offering("z1", karpv1.CapacityTypeSpot, 0.08),
		Offering("z2", karpv1.CapacityTypeSpot, 0.07),
	)
	for _, set := range []requirement.Set{
		requirement.NewSet(),
		requirement.NewSet(requirement.In(Zone, "z1")),
		requirement.NewSet(requirement.In(Capacity, karpv1.CapacityTypeOnDemand)),
		requirement.NewSet(requirement.In(Zone, "z3")),
	} {
		if o, ok := it.Cheapest(set); ok {
			fmt.Printf("%s: $%.2f/h\n", o.Key(it.Name), o.Price)
		} else {
			fmt.Println("not offered")
		}
	}
	// Output:
	// spot m.large in z2: $0.07/h
	// spot m.large in z1: $0.08/h
	// on-demand m.large in z1: $0.20/h
	// not offered
}

// Allocatable is what the reservations of kubelet and system leave for pods.
func ExampleAllocatable() {
	left := catalog.Allocatable(
		Resources("cpu", "2", "memory", "8Gi"),
		Resources("cpu", "80m", "memory", "500Mi"),
		Resources("memory", "100Mi"),
	)
	fmt.Println(left.Cpu(), left.Memory())
	// Output: 1920m 7592Mi
}
