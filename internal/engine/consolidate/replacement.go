package consolidate

import (
	"cmp"
	"math"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// worstPrice is the highest price of a node of the type under the requirements: EC2 Fleet launches the first
// available of reserved, spot, and on-demand, in any zone. It is +Inf if none is available.
func worstPrice(it *catalog.InstanceType, reqs requirement.Set) float64 {
	for _, capacityType := range [...]string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand} {
		most, found := 0.0, false
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.Available && o.CapacityType == capacityType && reqs.Overlaps(o.Requirements) {
				most, found = max(most, o.Price), true
			}
		}
		if found {
			return most
		}
	}
	return math.Inf(1)
}

// lowestPrice is the lowest price of a node of the type under the requirements; +Inf if none is available.
func lowestPrice(it *catalog.InstanceType, reqs requirement.Set) float64 {
	if o, ok := it.Cheapest(reqs); ok {
		return o.Price
	}
	return math.Inf(1)
}

// sortedByPrice sorts types by their lowest price under the requirements. It looks up each price once.
func sortedByPrice(types []*catalog.InstanceType, reqs requirement.Set) []*catalog.InstanceType {
	type priced struct {
		it    *catalog.InstanceType
		price float64
	}
	order := make([]priced, 0, len(types))
	for _, it := range types {
		order = append(order, priced{it, lowestPrice(it, reqs)})
	}
	slices.SortStableFunc(order, func(a, b priced) int { return cmp.Compare(a.price, b.price) })
	out := make([]*catalog.InstanceType, 0, len(types))
	for _, o := range order {
		out = append(out, o.it)
	}
	return out
}

// minValuesPrefix is the length of the shortest prefix of types that satisfies all minValues of the requirements; ok
// is false if not even all types do.
func minValuesPrefix(types []*catalog.InstanceType, reqs requirement.Set) (n int, ok bool) {
	for _, r := range reqs.All() {
		if r.MinValues() == 0 {
			continue
		}
		seen := map[string]bool{}
		need := len(types) + 1
		for k, it := range types {
			for _, v := range it.Requirements.Get(r.Key()).Values() {
				if r.Has(v) {
					seen[v] = true
				}
			}
			if len(seen) >= r.MinValues() {
				need = k + 1
				break
			}
		}
		if need > len(types) {
			return 0, false
		}
		n = max(n, need)
	}
	return n, true
}

// cheaperThan keeps the types with a worst price below limit.
func cheaperThan(types []*catalog.InstanceType, reqs requirement.Set, limit float64) []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for _, it := range types {
		if worstPrice(it, reqs) < limit {
			out = append(out, it)
		}
	}
	return out
}

// replacement is a launch that the rules of price narrow.
type replacement struct {
	launch *schedule.Launch
	reqs   requirement.Set
	types  []*catalog.InstanceType
}

func newReplacement(l *schedule.Launch) *replacement {
	return &replacement{launch: l, reqs: l.Requirements, types: sortedByPrice(l.InstanceTypes, l.Requirements)}
}

func (r *replacement) allows(capacityType string) bool {
	return r.reqs.Get(karpv1.LabelCapacityType).Has(capacityType)
}

// spotOnly excludes other capacity types, if any type has spot offerings.
func (r *replacement) spotOnly() {
	reqs := r.reqs.With(requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeSpot))
	var types []*catalog.InstanceType
	for _, it := range r.types {
		if !math.IsInf(lowestPrice(it, reqs), 1) {
			types = append(types, it)
		}
	}
	if len(types) > 0 {
		r.reqs, r.types = reqs, sortedByPrice(types, reqs)
	}
}

// lowestWorstPrice is the lowest worst price of the types.
func (r *replacement) lowestWorstPrice() float64 {
	least := math.Inf(1)
	for _, it := range r.types {
		least = min(least, worstPrice(it, r.reqs))
	}
	return least
}

// result is the narrowed launch, with the offering that savings are counted by.
func (r *replacement) result() schedule.Launch {
	l := *r.launch
	l.Requirements, l.InstanceTypes = r.reqs, r.types
	if o, ok := r.types[0].Cheapest(r.reqs); ok {
		l.Offering = o
	}
	return l
}

// minSpotTypes sets how many cheaper types a single spot node needs to be replaced, and how many its replacement names:
// with fewer, each replacement would be followed by another, down the price list and toward interruptions. The number
// is Karpenter's.
const minSpotTypes = 15

// narrowLaunches applies the rules of price to the launches that replace the nodes. It returns the launches, or the
// reason why they are no replacement; equal are nodes that would be replaced by equal ones.
//
// Invariant of the result: each launch costs less than its share of the removed nodes' price, even at its worst
// price. The cost is one scan of the offerings per launch and rule.
func (x *search) narrowLaunches(removed []*node, launches []schedule.Launch) (out []schedule.Launch, equal []*node, why disrupt.Why) {
	price, allSpot := 0.0, true
	for _, n := range removed {
		price += n.Price
		allSpot = allSpot && n.CapacityType == karpv1.CapacityTypeSpot
	}
	all := make([]*replacement, len(launches))
	total := 0.0
	for i := range launches {
		total += launches[i].Offering.Price
		if allSpot && !x.settings.SpotToSpot && launches[i].Requirements.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeSpot) {
			return nil, nil, spotToSpotDisabled()
		}
	}
	if total >= price {
		return nil, nil, notCheaper() // the lowest price of a type is at most its worst
	}
	total = 0
	for i := range launches {
		if launches[i].MinValuesRelaxed {
			return nil, nil, disrupt.Because(disrupt.TooFewValues, "Filtering by price: minValues would be relaxed")
		}
		r := newReplacement(&launches[i])
		all[i] = r
		if allSpot && r.allows(karpv1.CapacityTypeSpot) {
			r.spotOnly()
		}
		total += r.lowestWorstPrice()
	}
	for _, r := range all {
		// Each may cost at most its share of the price of the removed nodes; all of it, if it is the only one.
		limit := price
		if len(all) > 1 {
			limit = r.lowestWorstPrice() * price / total
		}
		if why := r.limitPrice(limit); why.Reason != "" {
			return nil, nil, why
		}
		if r.allows(karpv1.CapacityTypeSpot) && r.allows(karpv1.CapacityTypeOnDemand) {
			r.spotOnly()
		}
		if allSpot && len(removed) == 1 && r.allows(karpv1.CapacityTypeSpot) {
			if why := r.requireSpotFlexibility(); why.Reason != "" {
				return nil, nil, why
			}
		}
	}
	if len(removed) > 1 {
		if equal, why := excludeSameTypes(removed, all); why.Reason != "" {
			return nil, equal, why
		}
	}
	for _, r := range all {
		out = append(out, r.result())
	}
	return out, nil, disrupt.Why{}
}

// limitPrice keeps the types that cost less than limit however they are launched.
func (r *replacement) limitPrice(limit float64) disrupt.Why {
	r.types = cheaperThan(r.types, r.reqs, limit)
	switch _, ok := minValuesPrefix(r.types, r.reqs); {
	case len(r.types) == 0:
		return notCheaper()
	case !ok:
		return tooFewValues(r.reqs, r.types)
	}
	return disrupt.Why{}
}

// requireSpotFlexibility applies the rule for a single spot node that is replaced by another.
func (r *replacement) requireSpotFlexibility() disrupt.Why {
	if len(r.types) < minSpotTypes {
		return tooFewSpotTypes(len(r.types))
	}
	need, _ := minValuesPrefix(r.types, r.reqs)
	r.types = r.types[:max(minSpotTypes, need)]
	return disrupt.Why{}
}

// excludeSameTypes keeps the types for which no removed node could simply have stayed. A single launch must cost less
// than every removed node of a type that it may become; of several launches, none may be of the type of a removed
// node at its price or more. It returns the nodes that should stay instead.
func excludeSameTypes(removed []*node, all []*replacement) ([]*node, disrupt.Why) {
	lowest := map[string]float64{}
	for _, n := range removed {
		if p, ok := lowest[n.Type.Name]; !ok || n.Price < p {
			lowest[n.Type.Name] = n.Price
		}
	}
	var equal []*node
	taken := map[*node]bool{}
	var why disrupt.Why
	for _, r := range all {
		others := slices.DeleteFunc(slices.Clone(r.types), func(it *catalog.InstanceType) bool {
			p, same := lowest[it.Name]
			return same && worstPrice(it, r.reqs) >= p
		})
		if len(all) == 1 {
			limit := math.Inf(1)
			for _, it := range r.types {
				if p, same := lowest[it.Name]; same {
					limit = min(limit, p)
				}
			}
			others = cheaperThan(r.types, r.reqs, limit)
		}
		first := r.types[0]
		if _, ok := minValuesPrefix(others, r.reqs); len(others) == 0 || !ok || len(all) > 1 && others[0] != first {
			why = sameType()
			if n := mostDisruptive(removed, taken, first); n != nil {
				taken[n] = true
				equal = append(equal, n)
			}
			continue
		}
		r.types = others
	}
	return equal, why
}

// mostDisruptive finds the node of the type with the highest disruption cost.
func mostDisruptive(removed []*node, taken map[*node]bool, it *catalog.InstanceType) *node {
	var best *node
	for _, n := range removed {
		if !taken[n] && n.Type.Name == it.Name && (best == nil || n.Cost > best.Cost) {
			best = n
		}
	}
	return best
}
