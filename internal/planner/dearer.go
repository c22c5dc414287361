package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// same is equal for groups of nodes of one pool and capacity type with as many pods of the same workloads.
func (l *launchGroup) same() string {
	return strings.Join(slices.Concat([]string{l.Pool.Name, l.Offering.CapacityType}, l.who), "\t")
}

// cheapestOfSame returns the cheapest of the groups that are the same.
func cheapestOfSame(groups []*launchGroup) map[string]*launchGroup {
	out := make(map[string]*launchGroup, len(groups))
	for _, l := range groups {
		if least := out[l.same()]; least == nil || l.Offering.Price < least.Offering.Price {
			out[l.same()] = l
		}
	}
	return out
}

// dearerThan states why nodes for the same pods are of another type in another zone and cost more: their pods must be there, and the
// cheaper type cannot. It is empty where something else is the reason.
func (l *launchGroup) dearerThan(cheaper *launchGroup) string {
	zone, fixed := l.Requirements.Get(corev1.LabelTopologyZone).Single()
	its := cheaper.InstanceTypes[0]
	if !fixed || zone == cheaper.Offering.Zone || its.Name == l.InstanceTypes[0].Name || cheaper.Offering.Price >= l.Offering.Price {
		return ""
	}
	there := cannotIn(its, zone, l.Offering)
	if there == "" {
		return ""
	}
	return fmt.Sprintf("must be in %s; %s (%s): %s", zone, its.Name, report.Price(cheaper.Offering.Price), there)
}

// cannotIn states why a type is not the cheaper choice in a zone; empty if it would be.
func cannotIn(it *catalog.InstanceType, zone string, chosen catalog.Offering) string {
	for i := range it.Offerings {
		switch o := &it.Offerings[i]; {
		case o.Zone != zone || o.CapacityType != chosen.CapacityType:
		case !o.Available:
			return cmp.Or(o.UnavailableMessage, "not available")
		case o.Price >= chosen.Price:
			return "costs " + report.Price(o.Price) + " there"
		default:
			return ""
		}
	}
	return "not offered there"
}
