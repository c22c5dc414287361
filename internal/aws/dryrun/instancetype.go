package dryrun

import (
	"cmp"
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// defaultTypes are used if nothing else decides: almost every zone offers them, and they boot every image of their
// architecture.
var defaultTypes = []string{"m5.large", "m6g.large"}

// ChooseInstanceType picks the instance type for the dry run: one that a NodePool of the class would launch, else a
// default type, else any. Among those it prefers types that boot a standard image (one without accelerator support),
// then types that are available in more zones. It returns false if no type is available.
func ChooseInstanceType(
	types []*catalog.InstanceType,
	pools []requirement.Set,
	standard func(*catalog.InstanceType) bool,
) (*catalog.InstanceType, bool) {
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

// trueFirst sorts true before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// availableZones returns in how many zones a type is available at the moment.
func availableZones(t *catalog.InstanceType) int {
	found := map[string]bool{}
	for _, o := range t.Offerings {
		if o.Available {
			found[o.Zone] = true
		}
	}
	return len(found)
}

// Tenancy returns dedicated if a NodePool allows it explicitly: a role that may launch dedicated instances may launch
// shared ones too.
func Tenancy(pools []requirement.Set) string {
	for _, pool := range pools {
		if pool.Defines(awsv1.LabelInstanceTenancy) && pool.Get(awsv1.LabelInstanceTenancy).Has(awsv1.TenancyDedicated) {
			return awsv1.TenancyDedicated
		}
	}
	return awsv1.TenancyDefault
}
