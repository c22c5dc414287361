// Package launch launches an EC2 instance for a NodeClaim. It chooses the offerings to request, ensures the launch
// templates, calls CreateFleet, and interprets the response.
//
// A call may take effect although its response is lost, and the controller may be killed between any two steps.
// Nevertheless no NodeClaim ever gets two instances: see Launcher.
package launch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// MaxInstanceTypes limits how many instance types one fleet requests, as in Karpenter. More types add little spot capacity,
// and the request grows with each type and zone.
const MaxInstanceTypes = 60

// candidate is an instance type with those of its offerings that fit a NodeClaim and are available.
type candidate struct {
	*catalog.InstanceType
	offerings []catalog.Offering
}

// cheapest returns the lowest price of the offerings. There is at least one.
func (c candidate) cheapest() float64 {
	price := c.offerings[0].Price
	for i := range c.offerings { // offerings are large, and sorting reads them often
		price = min(price, c.offerings[i].Price)
	}
	return price
}

// has reports whether an offering has the capacity type.
func (c candidate) has(capacityType string) bool {
	return slices.ContainsFunc(c.offerings, func(o catalog.Offering) bool { return o.CapacityType == capacityType })
}

// Requirements returns the requirements of a NodeClaim, with normalized keys.
func Requirements(claim *karpv1.NodeClaim) (requirement.Set, error) {
	reqs, err := requirement.Labels{Vocabulary: awsv1.Vocabulary()}.FromAPI(claim.Spec.Requirements)
	if err != nil {
		return requirement.Set{}, fmt.Errorf("claim %s: %w", claim.Name, err)
	}
	return reqs, nil
}

// errNothingFits means that no offering is available, without a call to EC2.
var errNothingFits = errors.New("no instance type that fits the claim has an available offering")

// candidates returns the types to request, cheapest first: types that fit the NodeClaim and are available. It prefers
// reservations, and leaves out exotic hardware and expensive spot capacity unless the NodeClaim needs them.
func candidates(
	types []*catalog.InstanceType,
	reqs requirement.Set,
	requests corev1.ResourceList,
	strictMinValues bool,
) ([]candidate, error) {
	var found []candidate
	named := reqs.Get(corev1.LabelInstanceTypeStable)
	for _, t := range types {
		// The name decides on most types, and Overlaps would compare a dozen other labels first.
		if !named.Has(t.Name) || !reqs.Overlaps(t.Requirements) {
			continue
		}
		c := candidate{InstanceType: t}
		plain := fits(requests, t.Allocatable)
		for _, o := range t.Offerings {
			if !o.Available || !reqs.Overlaps(o.Requirements) {
				continue
			}
			if plain && len(o.Allocatable) == 0 || fits(requests, catalog.Override(t.Allocatable, o.Allocatable)) {
				c.offerings = append(c.offerings, o)
			}
		}
		if len(c.offerings) > 0 {
			found = append(found, c)
		}
	}
	found = onlyReserved(found)
	if !reqs.HasMinValues() {
		found = withoutExpensiveSpot(withoutExotic(found))
	}
	if len(found) == 0 {
		return nil, errNothingFits
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cheapest(), b.cheapest()), cmp.Compare(a.Name, b.Name))
	})
	found = found[:min(len(found), MaxInstanceTypes)]
	if strictMinValues {
		return found, checkMinValues(found, reqs)
	}
	return found, nil
}

func fits(requests, allocatable corev1.ResourceList) bool {
	for name, want := range requests {
		have := allocatable[name]
		if want.Cmp(have) > 0 {
			return false
		}
	}
	return true
}

var exoticResources = []corev1.ResourceName{
	awsv1.ResourceNVIDIAGPU, awsv1.ResourceAMDGPU, awsv1.ResourceNeuron, awsv1.ResourceNeuronCore, awsv1.ResourceHabanaGaudi,
}

func exotic(t *catalog.InstanceType) bool {
	_, size, _ := strings.Cut(t.Name, ".")
	if strings.Contains(size, "metal") {
		return true
	}
	return slices.ContainsFunc(exoticResources, func(name corev1.ResourceName) bool {
		q := t.Capacity[name]
		return !q.IsZero()
	})
}

// withoutExotic drops bare metal and accelerated types unless there is nothing else.
func withoutExotic(all []candidate) []candidate {
	var plain []candidate
	for _, c := range all {
		if !exotic(c.InstanceType) {
			plain = append(plain, c)
		}
	}
	if len(plain) == 0 {
		return all
	}
	return plain
}

// withoutExpensiveSpot drops spot offerings that cost more than the cheapest on-demand offering, if both are available.
func withoutExpensiveSpot(all []candidate) []candidate {
	limit, found := 0.0, false
	for _, c := range all {
		for _, o := range c.offerings {
			if o.CapacityType == karpv1.CapacityTypeOnDemand && (!found || o.Price < limit) {
				limit, found = o.Price, true
			}
		}
	}
	if !found {
		return all
	}
	var out []candidate
	for _, c := range all {
		kept := candidate{InstanceType: c.InstanceType}
		for _, o := range c.offerings {
			if o.CapacityType != karpv1.CapacityTypeSpot || o.Price <= limit {
				kept.offerings = append(kept.offerings, o)
			}
		}
		if len(kept.offerings) > 0 {
			out = append(out, kept)
		}
	}
	return out
}

// checkMinValues checks minValues: the minimum numbers of distinct values in the requirements.
func checkMinValues(all []candidate, reqs requirement.Set) error {
	for _, r := range reqs.All() {
		if r.MinValues() == 0 {
			continue
		}
		values := map[string]bool{}
		for _, c := range all {
			for _, v := range c.Requirements.Get(r.Key()).Values() {
				if r.Has(v) {
					values[v] = true
				}
			}
		}
		if len(values) < r.MinValues() {
			return fmt.Errorf("label %s needs %d values, %d are left", r.Key(), r.MinValues(), len(values))
		}
	}
	return nil
}

// capacityType returns the capacity type to request: reserved, else spot, if the NodeClaim allows it and it is
// available.
func capacityType(all []candidate, reqs requirement.Set) string {
	if hasReserved(all) {
		return karpv1.CapacityTypeReserved
	}
	spot := reqs.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeSpot)
	if spot && slices.ContainsFunc(all, func(c candidate) bool { return c.has(karpv1.CapacityTypeSpot) }) {
		return karpv1.CapacityTypeSpot
	}
	return karpv1.CapacityTypeOnDemand
}

// tenancy returns default wherever the NodeClaim allows it.
func tenancy(reqs requirement.Set) string {
	if reqs.Get(awsv1.LabelInstanceTenancy).Has(awsv1.TenancyDefault) {
		return awsv1.TenancyDefault
	}
	return awsv1.TenancyDedicated
}
