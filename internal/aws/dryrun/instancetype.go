package dryrun

import (
	"cmp"
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// usual are the types to ask about where nothing else decides: they are sold everywhere, and boot every image of their architecture.
var defaultTypes = []string{"m5.large", "m6g.large"}

// Choose picks the instance type to ask about: one that a pool of the class would launch, else a usual one, else any. Of those that
// suit it prefers types that boot a standard image, that is one for machines without accelerator, then types that are sold in
// more zones. False if there is no type at all that can be had.
func Choose(types []*catalog.InstanceType, pools []requirement.Set, standard func(*catalog.InstanceType) bool) (*catalog.InstanceType, bool) {
	var sold []*catalog.InstanceType
	for _, t := range types {
		if availableZones(t) > 0 {
			sold = append(sold, t)
		}
	}
	for _, suits := range []func(*catalog.InstanceType) bool{
		func(t *catalog.InstanceType) bool {
			return slices.ContainsFunc(pools, func(pool requirement.Set) bool { return pool.Overlaps(t.Requirements) })
		},
		func(t *catalog.InstanceType) bool { return slices.Contains(defaultTypes, t.Name) },
		func(*catalog.InstanceType) bool { return true },
	} {
		var found []*catalog.InstanceType
		for _, t := range sold {
			if suits(t) {
				found = append(found, t)
			}
		}
		if len(found) > 0 {
			return slices.MinFunc(found, func(a, b *catalog.InstanceType) int {
				return cmp.Or(
					trueFirst(standard(a), standard(b)), trueFirst(slices.Contains(defaultTypes, a.Name), slices.Contains(defaultTypes, b.Name)),
					cmp.Compare(availableZones(b), availableZones(a)), cmp.Compare(a.Name, b.Name),
				)
			}), true
		}
	}
	return nil, false
}

// first sorts what is true before what is not.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// zones is in how many zones a type can be had at the moment.
func availableZones(t *catalog.InstanceType) int {
	found := map[string]bool{}
	for _, o := range t.Offerings {
		if o.Available {
			found[o.Zone] = true
		}
	}
	return len(found)
}

// Tenancy is dedicated if a pool asks for a tenancy and allows that one: who may launch on dedicated hardware may do so on shared.
func Tenancy(pools []requirement.Set) string {
	for _, pool := range pools {
		if pool.Defines(awsv1.LabelInstanceTenancy) && pool.Get(awsv1.LabelInstanceTenancy).Has(awsv1.TenancyDedicated) {
			return awsv1.TenancyDedicated
		}
	}
	return awsv1.TenancyDefault
}
