// Package overlay applies NodeOverlays to instance types: prices, and resources that only the user knows of.
//
// Evaluate validates all overlays together. The Book of the valid ones is then applied to the types of a pool
// whenever these are read, so that a price adjustment always refers to the current price.
package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Terms describes what the cloud defines.
type Terms struct {
	Labels requirement.Labels
	// Resources are the resources that instance types have natively. Overlays cannot change them.
	Resources []corev1.ResourceName
}

// Pool is a NodePool with its instance types before overlays.
type Pool struct {
	NodePool      *karpv1.NodePool
	InstanceTypes []*catalog.InstanceType
}

// Validation is the result of validating an overlay.
type Validation struct {
	Overlay *v1alpha1.NodeOverlay
	// Reason is that of the condition ValidationSucceeded being False, empty if the overlay is valid.
	Reason, Message string
}

// Overlays is a list of valid overlays. The zero Book changes nothing. A Book is immutable.
type Overlays struct {
	labels   requirement.Labels
	overlays []parsedOverlay // in the order of precedence
}

// parsedOverlay is a NodeOverlay, parsed.
type parsedOverlay struct {
	name         string
	weight       int32
	requirements requirement.Set
	price        Price
	capacity     corev1.ResourceList
}

// Evaluate validates overlays against the types of all pools, and returns the valid ones and a verdict on each, by
// name.
//
// Overlays are processed by weight, highest first, and among equals in reverse order of their names. What an earlier
// one sets, a later one of lower weight does not change. A later one of the same weight conflicts with it, even if it
// sets the same value: it is invalid as a whole. The cost is O(overlays x offerings).
func Evaluate(overlays []*v1alpha1.NodeOverlay, pools []Pool, terms Terms) (Overlays, []Validation) {
	book := Overlays{labels: terms.Labels}
	verdicts := make([]Validation, len(overlays))
	overlays, pools = slices.Clone(overlays), slices.Clone(pools)
	slices.SortFunc(overlays, func(a, b *v1alpha1.NodeOverlay) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(b.Name, a.Name))
	})
	slices.SortFunc(pools, func(a, b Pool) int { return cmp.Compare(a.NodePool.Name, b.NodePool.Name) })
	setBy := map[conflictKey]parsedOverlay{}
	for i, o := range overlays {
		verdicts[i].Overlay = o
		r, err := terms.parse(o)
		if err != nil {
			verdicts[i].Reason, verdicts[i].Message = v1alpha1.ReasonRuntimeValidation, err.Error()
			continue
		}
		keys := book.conflictKeys(r, pools)
		if at := slices.IndexFunc(keys, func(s conflictKey) bool { other, ok := setBy[s]; return ok && other.weight == r.weight }); at >= 0 {
			verdicts[i].Reason = v1alpha1.ReasonConflict
			verdicts[i].Message = fmt.Sprintf("NodeOverlay %q of the same weight already sets %s", setBy[keys[at]].name, keys[at])
			continue
		}
		for _, s := range keys {
			setBy[s] = r
		}
		book.overlays = append(book.overlays, r)
	}
	slices.SortFunc(verdicts, func(a, b Validation) int { return cmp.Compare(a.Overlay.Name, b.Overlay.Name) })
	return book, verdicts
}

func weight(o *v1alpha1.NodeOverlay) int32 {
	if o.Spec.Weight == nil {
		return 0
	}
	return *o.Spec.Weight
}

// parse checks what the API server does not.
func (t Terms) parse(o *v1alpha1.NodeOverlay) (parsedOverlay, error) {
	path := field.NewPath("spec")
	var errs field.ErrorList
	out := parsedOverlay{name: o.Name, weight: weight(o), capacity: o.Spec.Capacity}
	var reqs []requirement.Requirement
	for i, r := range o.Spec.Requirements {
		at := path.Child("requirements").Index(i)
		if problems := t.Labels.ValidateRequirement(at, karpv1.Requirement{Key: r.Key, Operator: r.Operator, Values: r.Values}); len(
			problems,
		) > 0 {
			errs = append(errs, problems...)
			continue
		}
		parsed, err := t.Labels.Parse(r.Key, r.Operator, r.Values...)
		if err != nil {
			errs = append(errs, field.Invalid(at, r.Values, err.Error()))
			continue
		}
		reqs = append(reqs, parsed)
	}
	out.requirements = requirement.NewSet(reqs...)
	var err error
	if out.price, err = ParsePrice(o.Spec.Price, o.Spec.PriceAdjustment); err != nil {
		errs = append(errs, field.Invalid(path, o.Name, err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Spec.Capacity)) {
		at := path.Child("capacity").Key(string(name))
		if t.isNative(name) {
			errs = append(errs, field.Forbidden(at, "instance types have it by themselves"))
		}
		if q := o.Spec.Capacity[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "it is negative"))
		}
	}
	return out, errs.ToAggregate()
}

// isNative reports whether instance types have the resource natively.
func (t Terms) isNative(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return slices.Contains(t.Resources, name)
}

// conflictKey describes what only one overlay of a weight may set: the price of an offering, or, with its name set, a
// resource of a type.
type conflictKey struct {
	pool string
	// OfferingKey has only its InstanceType set for a resource.
	catalog.OfferingKey
	// reservation distinguishes the offerings of capacity reservations, which share an OfferingKey.
	reservation string
	resource    corev1.ResourceName
}

// String is text for a condition.
func (s conflictKey) String() string {
	if s.resource != "" {
		return fmt.Sprintf("resource %s of %s (NodePool %s)", s.resource, s.InstanceType, s.pool)
	}
	return fmt.Sprintf("the price of %s (NodePool %s)", s.OfferingKey, s.pool)
}

// conflictKeys returns what an overlay sets, in a fixed order.
func (b Overlays) conflictKeys(r parsedOverlay, pools []Pool) (out []conflictKey) {
	for _, p := range pools {
		labels := b.poolLabels(p.NodePool)
		for _, it := range p.InstanceTypes {
			offerings := r.matchingOfferings(it, labels)
			if len(offerings) == 0 {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(r.capacity)) {
				out = append(out, conflictKey{pool: p.NodePool.Name, OfferingKey: catalog.OfferingKey{InstanceType: it.Name}, resource: name})
			}
			if r.price.operation == keep {
				continue
			}
			for _, i := range offerings {
				o := &it.Offerings[i]
				out = append(out, conflictKey{pool: p.NodePool.Name, OfferingKey: o.Key(it.Name), reservation: o.ReservationID})
			}
		}
	}
	return out
}

// poolLabels are the labels that a pool adds to those of its instance types.
func (b Overlays) poolLabels(pool *karpv1.NodePool) requirement.Set {
	return b.labels.FromLabels(pool.Spec.Template.Labels).With(requirement.In(karpv1.LabelNodePool, pool.Name))
}

// matchingOfferings are the indexes of the offerings that the overlay selects; none if it does not select the type. A
// label that neither the type nor the pool has does not satisfy the overlay's requirements.
func (r parsedOverlay) matchingOfferings(it *catalog.InstanceType, pool requirement.Set) (out []int) {
	if !it.Requirements.Intersect(pool).Compatible(r.requirements, nil) {
		return nil
	}
	for i := range it.Offerings {
		if r.requirements.Overlaps(it.Offerings[i].Requirements) {
			out = append(out, i)
		}
	}
	return out
}

// Empty reports whether the Book changes nothing.
func (b Overlays) Empty() bool { return len(b.overlays) == 0 }

// Apply applies the Book to a pool's types. Types that no overlay selects are returned as they are; the others are
// copies, which differ in price and capacity only.
func (b Overlays) Apply(pool *karpv1.NodePool, types []*catalog.InstanceType) []*catalog.InstanceType {
	if b.Empty() {
		return types
	}
	labels := b.poolLabels(pool)
	out := make([]*catalog.InstanceType, len(types))
	for i, it := range types {
		out[i] = b.applyTo(it, labels)
	}
	return out
}

func (b Overlays) applyTo(it *catalog.InstanceType, pool requirement.Set) *catalog.InstanceType {
	changed := &copyOnWrite{InstanceType: it}
	for _, r := range b.overlays {
		offerings := r.matchingOfferings(it, pool)
		if len(offerings) == 0 {
			continue
		}
		if r.price.operation != keep {
			changed.setPrices(r.price, offerings)
		}
		changed.addCapacity(r.capacity)
	}
	return changed.InstanceType
}

// copyOnWrite is a type that is copied before its first change.
type copyOnWrite struct {
	*catalog.InstanceType
	copied bool
}

func (l *copyOnWrite) copyOnce() {
	if !l.copied {
		mine := *l.InstanceType
		l.InstanceType, l.copied = &mine, true
	}
}

// setPrices sets the prices of the offerings that no earlier overlay has set.
func (l *copyOnWrite) setPrices(p Price, offerings []int) {
	fresh := slices.DeleteFunc(slices.Clone(offerings), func(i int) bool { return l.Offerings[i].PriceOverlaid })
	if len(fresh) == 0 {
		return
	}
	l.copyOnce()
	l.Offerings = slices.Clone(l.Offerings)
	for _, i := range fresh {
		o := &l.Offerings[i]
		o.Price, o.PriceOverlaid = p.Of(o.Price), true
	}
}

// addCapacity adds the resources that no earlier overlay has added.
func (l *copyOnWrite) addCapacity(resources corev1.ResourceList) {
	for name, q := range resources {
		if _, there := l.Capacity[name]; there {
			continue
		}
		l.copyOnce()
		if !l.CapacityOverlaid {
			l.CapacityOverlaid = true
			l.Capacity, l.Allocatable = cloneOrEmpty(l.Capacity), cloneOrEmpty(l.Allocatable)
		}
		l.Capacity[name], l.Allocatable[name] = q, q
	}
}

// cloneOrEmpty is a copy that can be added to.
func cloneOrEmpty(list corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return corev1.ResourceList{}
	}
	return maps.Clone(list)
}

// Prices returns those of overlays that require only instance types by name and set their price, in $/h. They are the
// only prices of types that the cloud has no price of.
func (b Overlays) Prices() map[string]float64 {
	out := map[string]float64{}
	for _, r := range b.overlays {
		if r.price.operation != replace || r.requirements.Len() != 1 {
			continue
		}
		names := r.requirements.Get(corev1.LabelInstanceTypeStable)
		if names.Operator() != corev1.NodeSelectorOpIn {
			continue
		}
		for _, name := range names.Values() {
			if _, heavier := out[name]; !heavier {
				out[name] = r.price.value
			}
		}
	}
	return out
}
