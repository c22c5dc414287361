package consolidate

import (
	"cmp"
	"math"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// worst is the most that a node of the type may cost under the requirements: of the capacity types that can be had, the
// first of reserved, spot and on-demand is what will be launched, in whichever zone. It is +Inf if there is none.
func worst(it *catalog.InstanceType, reqs requirement.Set) float64 {
	for _, kind := range [...]string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand} {
		most, found := 0.0, false
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.Available && o.CapacityType == kind && reqs.Overlaps(o.Requirements) {
				most, found = max(most, o.Price), true
			}
		}
		if found {
			return most
		}
	}
	return math.Inf(1)
}

// cheapest is the least that a node of the type costs under the requirements; +Inf if it cannot be had.
func cheapest(it *catalog.InstanceType, reqs requirement.Set) float64 {
	if o, ok := it.Cheapest(reqs); ok {
		return o.Price
	}
	return math.Inf(1)
}

// byPrice sorts types by what they cost least under the requirements.
func byPrice(types []*catalog.InstanceType, reqs requirement.Set) []*catalog.InstanceType {
	out := slices.Clone(types)
	slices.SortStableFunc(out, func(a, b *catalog.InstanceType) int { return cmp.Compare(cheapest(a, reqs), cheapest(b, reqs)) })
	return out
}

// enough is the length of the shortest prefix of types that reaches all minValues of the requirements; ok is false if not
// even all of them do.
func enough(types []*catalog.InstanceType, reqs requirement.Set) (n int, ok bool) {
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

// below keeps the types whose worst price is less than limit.
func below(types []*catalog.InstanceType, reqs requirement.Set, limit float64) []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for _, it := range types {
		if worst(it, reqs) < limit {
			out = append(out, it)
		}
	}
	return out
}

// replacement is a launch while rules narrow it.
type replacement struct {
	launch *schedule.Launch
	reqs   requirement.Set
	types  []*catalog.InstanceType
}

func newReplacement(l *schedule.Launch) *replacement {
	return &replacement{launch: l, reqs: l.Requirements, types: byPrice(l.InstanceTypes, l.Requirements)}
}

func (r *replacement) allows(capacityType string) bool {
	return r.reqs.Get(karpv1.LabelCapacityType).Has(capacityType)
}

// pin leaves spot only.
func (r *replacement) pin() {
	reqs := r.reqs.With(requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeSpot))
	var types []*catalog.InstanceType
	for _, it := range r.types {
		if !math.IsInf(cheapest(it, reqs), 1) {
			types = append(types, it)
		}
	}
	if len(types) > 0 {
		r.reqs, r.types = reqs, byPrice(types, reqs)
	}
}

// least is the lowest worst price of the types.
func (r *replacement) least() float64 {
	least := math.Inf(1)
	for _, it := range r.types {
		least = min(least, worst(it, r.reqs))
	}
	return least
}

// final is the launch as narrowed, with the price by which savings are counted.
func (r *replacement) final() schedule.Launch {
	l := *r.launch
	l.Requirements, l.InstanceTypes = r.reqs, r.types
	if o, ok := r.types[0].Cheapest(r.reqs); ok {
		l.Offering = o
	}
	return l
}

// minimumOfSpot is among how many cheaper types a spot node must be replaced, and how many its replacement names, lest it is
// replaced again at once for the next in the list.
const minimumOfSpot = 15

// narrow applies the rules of price to the launches that take the place of the nodes. It returns the launches, or why they
// will not do; equals are nodes that would be replaced by equal ones.
func (x *search) narrow(gone []*node, launches []schedule.Launch) (out []schedule.Launch, equals []*node, why string) {
	price, allSpot := 0.0, true
	for _, n := range gone {
		price += n.Price
		allSpot = allSpot && n.CapacityType == karpv1.CapacityTypeSpot
	}
	all := make([]*replacement, len(launches))
	total := 0.0
	for i := range launches {
		total += launches[i].Offering.Price
		if allSpot && !x.st.SpotToSpot && launches[i].Requirements.Get(karpv1.LabelCapacityType).Has(karpv1.CapacityTypeSpot) {
			return nil, nil, spotDisabled
		}
	}
	if total >= price {
		return nil, nil, notCheaper // the least that any type costs is no more than its worst
	}
	total = 0
	for i := range launches {
		if launches[i].MinValuesRelaxed {
			return nil, nil, "Filtering by price: minValues would be relaxed"
		}
		r := newReplacement(&launches[i])
		all[i] = r
		if allSpot && r.allows(karpv1.CapacityTypeSpot) {
			r.pin()
		}
		total += r.least()
	}
	for _, r := range all {
		// What each may cost at most: its share of what is ended, which is all of it for one alone.
		limit := price
		if len(all) > 1 {
			limit = r.least() * price / total
		}
		if why := r.cheaper(limit); why != "" {
			return nil, nil, why
		}
		if r.allows(karpv1.CapacityTypeSpot) && r.allows(karpv1.CapacityTypeOnDemand) {
			r.pin()
		}
		if allSpot && len(gone) == 1 && r.allows(karpv1.CapacityTypeSpot) {
			if why := r.flexible(); why != "" {
				return nil, nil, why
			}
		}
	}
	if len(gone) > 1 {
		if equals, why := unequal(gone, all); why != "" {
			return nil, equals, why
		}
	}
	for _, r := range all {
		out = append(out, r.final())
	}
	return out, nil, ""
}

// cheaper leaves types that cost less than limit however they are launched.
func (r *replacement) cheaper(limit float64) string {
	r.types = below(r.types, r.reqs, limit)
	switch _, ok := enough(r.types, r.reqs); {
	case len(r.types) == 0:
		return notCheaper
	case !ok:
		return tooFew(r.reqs, r.types)
	}
	return ""
}

// flexible applies the rule for a spot node that is replaced by another.
func (r *replacement) flexible() string {
	if len(r.types) < minimumOfSpot {
		return spotTooFew(len(r.types))
	}
	need, _ := enough(r.types, r.reqs)
	r.types = r.types[:max(minimumOfSpot, need)]
	return ""
}

// unequal leaves types for which none of the nodes could have stayed. A single launch costs less than any node of a type that
// could have become of it; of several, none is a type that ends at the same price. The nodes that it returns had better stay.
func unequal(gone []*node, all []*replacement) ([]*node, string) {
	lowest := map[string]float64{}
	for _, n := range gone {
		if p, ok := lowest[n.Type.Name]; !ok || n.Price < p {
			lowest[n.Type.Name] = n.Price
		}
	}
	var equals []*node
	taken := map[*node]bool{}
	why := ""
	for _, r := range all {
		kept := slices.DeleteFunc(slices.Clone(r.types), func(it *catalog.InstanceType) bool {
			p, ends := lowest[it.Name]
			return ends && worst(it, r.reqs) >= p
		})
		if len(all) == 1 {
			limit := math.Inf(1)
			for _, it := range r.types {
				if p, ends := lowest[it.Name]; ends {
					limit = min(limit, p)
				}
			}
			kept = below(r.types, r.reqs, limit)
		}
		first := r.types[0]
		if _, ok := enough(kept, r.reqs); len(kept) == 0 || !ok || len(all) > 1 && kept[0] != first {
			why = sameType
			if n := stays(gone, taken, first); n != nil {
				taken[n] = true
				equals = append(equals, n)
			}
			continue
		}
		r.types = kept
	}
	return equals, why
}

// stays finds the node of the type whose pods would be the most to move.
func stays(gone []*node, taken map[*node]bool, it *catalog.InstanceType) *node {
	var best *node
	for _, n := range gone {
		if !taken[n] && n.Type.Name == it.Name && (best == nil || n.Cost > best.Cost) {
			best = n
		}
	}
	return best
}
