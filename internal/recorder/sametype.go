package recorder

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// sameType reports whether two instance types have the same record. It may be false for types that have; those are encoded again.
func sameType(a, b *catalog.InstanceType) bool {
	return a == b || a.Name == b.Name && a.CapacityOverlaid == b.CapacityOverlaid && a.LocalStorage == b.LocalStorage &&
		a.Requirements.Equal(b.Requirements) &&
		sameResources(a.Capacity, b.Capacity) && sameResources(a.Allocatable, b.Allocatable) && maps.Equal(a.VolumeLimits, b.VolumeLimits) &&
		slices.EqualFunc(a.Offerings, b.Offerings, sameOffering) && sameDevices(a, b)
}

// sameDevices reports whether the devices are the same; most types have none.
func sameDevices(a, b *catalog.InstanceType) bool {
	return slices.Equal(a.DRAResources, b.DRAResources) &&
		(len(a.DeviceSlices)+len(b.DeviceSlices) == 0 || reflect.DeepEqual(a.DeviceSlices, b.DeviceSlices))
}

func sameOffering(a, b catalog.Offering) bool {
	return a.Zone == b.Zone && a.CapacityType == b.CapacityType && a.Price == b.Price && a.PriceOverlaid == b.PriceOverlaid &&
		a.PriceDerived == b.PriceDerived && a.Available == b.Available && a.UnavailableMessage == b.UnavailableMessage &&
		a.UnavailableReason == b.UnavailableReason && a.ReservationID == b.ReservationID && a.Remaining == b.Remaining &&
		sameResources(a.Capacity, b.Capacity) && sameResources(a.Allocatable, b.Allocatable) && a.Requirements.Equal(b.Requirements)
}

func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}
