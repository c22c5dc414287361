// Package overlay lays NodeOverlays over instance types: what users say about prices and about resources that only
// they know of.
//
// Evaluate judges all overlays together and says which of them hold. The Book of those is then laid over the types
// of a pool whenever these are read, so that an adjustment is always one of the present price.
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

// Terms are what the cloud calls things.
type Terms struct {
	Labels requirement.Labels
	// Resources are those that instance types have by themselves. Overlays cannot change them.
	Resources []corev1.ResourceName
}

// Pool is a NodePool with what it could launch if there were no overlays.
type Pool struct {
	NodePool      *karpv1.NodePool
	InstanceTypes []*catalog.InstanceType
}

// Verdict is what was found out about an overlay.
type Verdict struct {
	Overlay *v1alpha1.NodeOverlay
	// Reason is that of the condition ValidationSucceeded being False, empty when the overlay holds.
	Reason, Message string
}

// Book is a list of overlays that hold. The zero Book changes nothing. A Book is never modified.
type Book struct {
	labels requirement.Labels
	rules  []rule // in the order in which they are asked
}

// rule is an overlay, read.
type rule struct {
	name         string
	weight       int32
	requirements requirement.Set
	price        Price
	capacity     corev1.ResourceList
}

// Evaluate judges overlays over the types of all pools, and returns those that hold and a verdict on each, by name.
//
// Overlays are asked by weight, heaviest first, and among equals in reverse order of their names. What an earlier one
// has said of a price or a resource, a later and lighter one does not change. One of the same weight contradicts it,
// even if it says the same: it holds nowhere.
func Evaluate(overlays []*v1alpha1.NodeOverlay, pools []Pool, terms Terms) (Book, []Verdict) {
	book := Book{labels: terms.Labels}
	verdicts := make([]Verdict, len(overlays))
	overlays, pools = slices.Clone(overlays), slices.Clone(pools)
	slices.SortFunc(overlays, func(a, b *v1alpha1.NodeOverlay) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(b.Name, a.Name))
	})
	slices.SortFunc(pools, func(a, b Pool) int { return cmp.Compare(a.NodePool.Name, b.NodePool.Name) })
	said := map[subject]rule{}
	for i, o := range overlays {
		verdicts[i].Overlay = o
		r, err := terms.read(o)
		if err != nil {
			verdicts[i].Reason, verdicts[i].Message = v1alpha1.ReasonRuntimeValidation, err.Error()
			continue
		}
		subjects := book.subjects(r, pools)
		if at := slices.IndexFunc(subjects, func(s subject) bool { other, ok := said[s]; return ok && other.weight == r.weight }); at >= 0 {
			verdicts[i].Reason = v1alpha1.ReasonConflict
			verdicts[i].Message = fmt.Sprintf("NodeOverlay %q of the same weight already sets %s", said[subjects[at]].name, subjects[at])
			continue
		}
		for _, s := range subjects {
			said[s] = r
		}
		book.rules = append(book.rules, r)
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int { return cmp.Compare(a.Overlay.Name, b.Overlay.Name) })
	return book, verdicts
}

func weight(o *v1alpha1.NodeOverlay) int32 {
	if o.Spec.Weight == nil {
		return 0
	}
	return *o.Spec.Weight
}

// read checks what the API server does not.
func (t Terms) read(o *v1alpha1.NodeOverlay) (rule, error) {
	path := field.NewPath("spec")
	var errs field.ErrorList
	out := rule{name: o.Name, weight: weight(o), capacity: o.Spec.Capacity}
	var reqs []requirement.Requirement
	for i, r := range o.Spec.Requirements {
		at := path.Child("requirements").Index(i)
		if problems := t.Labels.ValidateRequirement(at, karpv1.Requirement{Key: r.Key, Operator: r.Operator, Values: r.Values}); len(problems) > 0 {
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
		if t.own(name) {
			errs = append(errs, field.Forbidden(at, "instance types have it by themselves"))
		}
		if q := o.Spec.Capacity[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "it is negative"))
		}
	}
	return out, errs.ToAggregate()
}

// own tells whether instance types have the resource by themselves.
func (t Terms) own(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return slices.Contains(t.Resources, name)
}

// subject is something that only one overlay of a weight may speak about: the price of an offering, or, with its name
// set, a resource of a type.
type subject struct {
	pool string
	// OfferingKey has only its InstanceType set for a resource.
	catalog.OfferingKey
	// reservation distinguishes the offerings of capacity reservations, which share an OfferingKey.
	reservation string
	resource    corev1.ResourceName
}

// String is fit for a condition.
func (s subject) String() string {
	if s.resource != "" {
		return fmt.Sprintf("resource %s of %s (NodePool %s)", s.resource, s.InstanceType, s.pool)
	}
	return fmt.Sprintf("the price of %s (NodePool %s)", s.OfferingKey, s.pool)
}

// subjects are what a rule speaks about, in a fixed order.
func (b Book) subjects(r rule, pools []Pool) (out []subject) {
	for _, p := range pools {
		own := b.labelsOf(p.NodePool)
		for _, it := range p.InstanceTypes {
			offerings := r.matches(it, own)
			if len(offerings) == 0 {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(r.capacity)) {
				out = append(out, subject{pool: p.NodePool.Name, OfferingKey: catalog.OfferingKey{InstanceType: it.Name}, resource: name})
			}
			if r.price.how == keep {
				continue
			}
			for _, i := range offerings {
				o := &it.Offerings[i]
				out = append(out, subject{pool: p.NodePool.Name, OfferingKey: o.Key(it.Name), reservation: o.ReservationID})
			}
		}
	}
	return out
}

// labelsOf is what a pool adds to what its instance types say of their nodes.
func (b Book) labelsOf(pool *karpv1.NodePool) requirement.Set {
	return b.labels.FromLabels(pool.Spec.Template.Labels).With(requirement.In(karpv1.LabelNodePool, pool.Name))
}

// matches are the indexes of the offerings that the rule speaks about; none if it does not speak about the type. A label
// that neither the type nor the pool has is one that the rule's requirements are not met by.
func (r rule) matches(it *catalog.InstanceType, pool requirement.Set) (out []int) {
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

// Empty tells whether the Book changes nothing.
func (b Book) Empty() bool { return len(b.rules) == 0 }

// Lay returns what the pool's types become under the Book. Types that no overlay speaks about are returned as they are;
// the others are copies, which differ in price and capacity only.
func (b Book) Lay(pool *karpv1.NodePool, types []*catalog.InstanceType) []*catalog.InstanceType {
	if b.Empty() {
		return types
	}
	own := b.labelsOf(pool)
	out := make([]*catalog.InstanceType, len(types))
	for i, it := range types {
		out[i] = b.lay(it, own)
	}
	return out
}

func (b Book) lay(it *catalog.InstanceType, pool requirement.Set) *catalog.InstanceType {
	laid := &layer{InstanceType: it}
	for _, r := range b.rules {
		offerings := r.matches(it, pool)
		if len(offerings) == 0 {
			continue
		}
		if r.price.how != keep {
			laid.price(r.price, offerings)
		}
		laid.hold(r.capacity)
	}
	return laid.InstanceType
}

// layer is a type that is copied when it is first changed.
type layer struct {
	*catalog.InstanceType
	copied bool
}

func (l *layer) own() {
	if !l.copied {
		mine := *l.InstanceType
		l.InstanceType, l.copied = &mine, true
	}
}

// price changes the price of the offerings that nobody has changed before.
func (l *layer) price(p Price, offerings []int) {
	fresh := slices.DeleteFunc(slices.Clone(offerings), func(i int) bool { return l.Offerings[i].PriceOverlaid })
	if len(fresh) == 0 {
		return
	}
	l.own()
	l.Offerings = slices.Clone(l.Offerings)
	for _, i := range fresh {
		o := &l.Offerings[i]
		o.Price, o.PriceOverlaid = p.Of(o.Price), true
	}
}

// hold adds the resources that nobody has added before.
func (l *layer) hold(resources corev1.ResourceList) {
	for name, q := range resources {
		if _, there := l.Capacity[name]; there {
			continue
		}
		l.own()
		if !l.CapacityOverlaid {
			l.CapacityOverlaid = true
			l.Capacity, l.Allocatable = cloned(l.Capacity), cloned(l.Allocatable)
		}
		l.Capacity[name], l.Allocatable[name] = q, q
	}
}

// cloned is a copy that can be added to.
func cloned(list corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return corev1.ResourceList{}
	}
	return maps.Clone(list)
}

// Prices are those of overlays that require nothing but an instance type by name and say what it costs, in $/h. They are
// all that is known of a type that the cloud has no price of.
func (b Book) Prices() map[string]float64 {
	out := map[string]float64{}
	for _, r := range b.rules {
		if r.price.how != replace || r.requirements.Len() != 1 {
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
