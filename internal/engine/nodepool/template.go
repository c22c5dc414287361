package nodepool

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Template is a NodePool as the model for its NodeClaims.
type Template struct {
	models       *Models
	index        int
	pool         *karpv1.NodePool
	weight       int32
	reqs         requirement.Set
	taints       []corev1.Taint
	types        []Type // by name
	daemonGroups []daemonGroup
	daemons      []templateDaemon // of all groups
	// limits are the axes of the pool's limits; limit, used, limitLeft and limitLeftAtStart are over them. limitLeft
	// shrinks as nodes reserve.
	limits           resources.Axes
	limit, used      resources.Vec
	limitLeft        resources.Vec
	limitLeftAtStart resources.Vec // at the last mark
	// candidatesByReqs caches candidates by the key of their requirements.
	candidatesByReqs map[string]*Candidates
	// keys are the labels that types define, domains the values of some of them; both made on first use.
	keys    map[string]bool
	domains map[string][]string
	// launches are the lists of types that launches share, by the types' indexes; key is a buffer for these.
	launches map[string]LaunchTypes
	key      []byte
	// hasVariants is true when some of the types are variants of one instance type.
	hasVariants bool
	// unusable is the reason why the pool can launch nothing; empty if it can.
	unusable rejection.Reason
}

// poolOrder puts heavier pools first, and among equals the name that sorts last. Among pools of equal weight price
// decides, and the name only where prices are equal.
func poolOrder(a, b *snapshot.Pool) int {
	return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(b.NodePool.Name, a.NodePool.Name))
}

func weight(p *snapshot.Pool) int32 {
	if p.NodePool.Spec.Weight == nil {
		return 0
	}
	return *p.NodePool.Spec.Weight
}

// model is the template of a pool, without its place among the others.
func (m *Models) model(p *snapshot.Pool) *Template {
	np := p.NodePool
	t := &Template{
		models: m, pool: np, weight: weight(p), taints: np.Spec.Template.Spec.Taints, candidatesByReqs: map[string]*Candidates{},
	}
	reqs, err := m.config.Labels.FromPool(np, p.NodeClassLabel)
	if err != nil {
		t.unusable = rejection.Reason{Code: rejection.Requirement, NodePool: np.Name, Rule: &rejection.Rule{Stated: err.Error()}}
		return t
	}
	t.reqs = m.newNode.Join(reqs)
	m.interner.NoteAbsent(t.reqs)
	t.limits = resources.NewAxes(np.Spec.Limits)
	t.limit, t.used = t.limits.Vec(np.Spec.Limits), t.limits.Vec(p.Used)
	t.limitLeft = t.limit.Minus(t.used)

	types, daemons := variants(p.InstanceTypes), t.runningDaemons()
	// Claims omit types with some offerings that are too small. minValues may need those types, so such pools are not split.
	if uneven := offeringDaemons(types, daemons); len(uneven) > 0 && !t.reqs.HasMinValues() {
		types = splitTypesByDaemons(types, uneven)
	}
	t.hasVariants = len(types) > len(p.InstanceTypes)
	slices.SortStableFunc(types, func(a, b *catalog.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	for _, it := range types {
		if t.reqs.Overlaps(it.Requirements) {
			t.types = append(t.types, Type{InstanceType: it, capacity: capacity(it, t.limits)})
			t.types[len(t.types)-1].splitOfferings(m.config.Slots)
		}
	}
	t.groupDaemons(daemons)
	switch {
	case len(types) == 0:
		t.unusable = rejection.Reason{Code: rejection.Offering, NodePool: np.Name}
	case len(t.types) == 0 || slices.ContainsFunc(t.reqs.All(), requirement.Requirement.Impossible):
		t.unusable = rejection.Reason{
			Code:     rejection.Requirement,
			NodePool: np.Name,
			Rule: &rejection.Rule{Labels: &rejection.Labels{
				Cause: rejection.NoTypeHas, By: rejection.ByPool, Required: rejection.LabelsOf(m.newNode.Stated(t.reqs).All()),
			}},
		}
	}
	return t
}

// Holds reports whether any of the types has room for the requests. No allocation: it runs for each class of pods.
func (t *Template) Holds(requests resources.Vec) bool {
	for i := range t.types {
		if requests.Fits(t.types[i].room) {
			return true
		}
	}
	return false
}

// LimitsExhausted reports whether the pool can launch nothing, for example at its limits: no node of it will be in the
// domains that it names. Called before anything is planned.
func (t *Template) LimitsExhausted() bool {
	return !slices.ContainsFunc(t.types, func(ti Type) bool {
		return ti.capacity.Within(t.limitLeft) &&
			slices.ContainsFunc(ti.Offerings, func(o catalog.Offering) bool { return ti.Sells(&o) && t.reqs.Overlaps(o.Requirements) })
	})
}

// Values are the domains of key that the template's nodes may be in: those that some offering of the pool has, available
// or not, or those that the pool lists of a label that no type has. Spreads count fewer: see Candidates.Domains.
func (t *Template) Values(key string) []string {
	if t.models.newNode.Unknown(key) {
		return nil
	}
	if known, ok := t.domains[key]; ok {
		return known
	}
	own, out := t.reqs.Get(key), []string(nil)
	switch {
	case t.DefinesLabel(key):
		out = t.offeredValues(key, own)
	case own.Operator() == corev1.NodeSelectorOpIn:
		out = own.Values()
	}
	if t.domains == nil {
		t.domains = map[string][]string{}
	}
	t.domains[key] = out
	return out
}

// offeredValues are the values of key that the pool admits, sorted, of offerings that it admits. An offering that is
// unavailable for the moment counts, one that is never sold does not.
func (t *Template) offeredValues(key string, own requirement.Requirement) []string {
	var out []string
	for i := range t.types {
		ofType := t.types[i].Requirements.Get(key)
		fresh := func(v string) bool { return own.Has(v) && ofType.Has(v) && !slices.Contains(out, v) }
		for k := range t.types[i].Offerings {
			o, r := &t.types[i].Offerings[k], ofType
			if o.Requirements.Defines(key) {
				r = o.Requirements.Get(key)
			}
			if r.Operator() != corev1.NodeSelectorOpIn || !slices.ContainsFunc(r.Values(), fresh) {
				continue // nothing new: the common case
			}
			if t.types[i].Sells(o) && t.reqs.Overlaps(o.Requirements) {
				out = append(out, slices.DeleteFunc(slices.Clone(r.Values()), func(v string) bool { return !fresh(v) })...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// HasVariants reports whether offerings of some type hold other amounts than the type, so that a claim may have to leave
// types out: see KeepUnambiguous.
func (t *Template) HasVariants() bool { return t.hasVariants }

// HasLimits reports whether the pool has limits.
func (t *Template) HasLimits() bool { return t.limits.Len() > 0 }

// NoLimits returns what a node has reserved of the limits at first.
func (t *Template) NoLimits() resources.Vec { return make(resources.Vec, t.limits.Len()) }

// WithinLimits reports whether a node that has reserved so much of the limits can become the type.
func (t *Template) WithinLimits(ti *Type, reserved resources.Vec) bool {
	return ti.capacity.WithinSum(t.limitLeft, reserved)
}

// Reserve takes from the limits what a node reserves in place of what it had reserved.
func (t *Template) Reserve(before, after resources.Vec) {
	t.limitLeft = t.limitLeft.Plus(before).Minus(after)
}

// ReserveForAll reserves what limits have left for the larger of the types that a node can be launched as, so that the
// launch has alternatives when the smallest type is unavailable. It returns what the node has reserved then.
func (t *Template) ReserveForAll(types []Candidate, reserved resources.Vec) resources.Vec {
	if !t.HasLimits() {
		return reserved
	}
	for _, cand := range types {
		grown := reserved.Max(t.types[cand.Type].capacity)
		if more := grown.Minus(reserved); more.Within(t.limitLeft) {
			t.limitLeft, reserved = t.limitLeft.Minus(more), grown
		}
	}
	return reserved
}

// TakeLargest takes from the limits what the largest of the types counts, per axis.
func (t *Template) TakeLargest(types []*catalog.InstanceType) {
	if !t.HasLimits() {
		return
	}
	most := t.NoLimits()
	for _, it := range types {
		most = most.Max(capacity(it, t.limits))
	}
	t.limitLeft = t.limitLeft.Minus(most)
}

// Mark makes the limits that are left now the ones that undo returns to.
func (t *Template) Mark() { t.limitLeftAtStart = t.limitLeft }

// Undo returns to the last mark. Launches made since then keep their lists of types.
func (t *Template) Undo() { t.limitLeft, t.launches = t.limitLeftAtStart, nil }

// Marked returns what was left of the limits at the last mark.
func (t *Template) Marked() resources.Vec { return t.limitLeftAtStart }

// Restore makes an earlier state the present one, and the one that undo returns to.
func (t *Template) Restore(left resources.Vec) { t.limitLeft, t.limitLeftAtStart = left, left }

// LimitUse is the use of one limit: all amounts are in the units of package quantity.
type LimitUse struct {
	Name        corev1.ResourceName
	Limit, Used int64
	Left        int64 // after what is planned; negative where more is in use than the limit allows
	Axis        int
}

// LimitUses are the limits of the pool.
func (t *Template) LimitUses() []LimitUse {
	out := make([]LimitUse, t.limits.Len())
	for i, name := range t.limits.All() {
		out[i] = LimitUse{name, t.limit[i], t.used[i], t.limitLeft[i], i}
	}
	return out
}

// manyLeft is more than any node counts against a limit, and little enough to be added to.
const manyLeft = 1 << 60

// Unlimited is the template without the pool's limits. It shares the caches.
func (t *Template) Unlimited() *Template {
	out := *t
	out.limitLeft = t.NoLimits()
	for i := range out.limitLeft {
		out.limitLeft[i] = manyLeft
	}
	return &out
}

// Replaced is the template of the pool in a changed form, at the place and with the limits of t.
func (t *Template) Replaced(changed *snapshot.Pool) *Template {
	out := t.models.model(changed)
	out.index, out.limitLeft = t.index, t.limitLeft
	return out
}

// Lacks reports whether the nodes of some type do not have the label.
func (t *Template) Lacks(key string) bool {
	return slices.ContainsFunc(t.types, func(ti Type) bool {
		r := ti.Requirements.Get(key)
		return r.Operator() == corev1.NodeSelectorOpDoesNotExist && !r.Impossible()
	})
}

// DefinesLabel reports whether the template's instance types define the label.
func (t *Template) DefinesLabel(key string) bool {
	if t.keys == nil {
		t.keys = map[string]bool{}
		for i := range t.types {
			for _, r := range t.types[i].Requirements.All() {
				t.keys[r.Key()] = true
			}
		}
	}
	return t.keys[key]
}

// Index is the place of the template among all, from 0.
func (t *Template) Index() int { return t.index }

// Pool is the NodePool.
func (t *Template) Pool() *karpv1.NodePool { return t.pool }

// Requirements returns what every node of the pool has, the labels that show that it is initialized included.
func (t *Template) Requirements() requirement.Set { return t.reqs }

// Taints returns those that nodes keep.
func (t *Template) Taints() []corev1.Taint { return t.taints }

// Types are the instance types that the requirements admit, by name. The caller must not modify them.
func (t *Template) Types() []Type { return t.types }

// Unusable is the reason why the pool can launch nothing; its Code is empty if it can.
func (t *Template) Unusable() rejection.Reason { return t.unusable }

// TypeOf is the type of a candidate.
func (t *Template) TypeOf(cand Candidate) *Type { return &t.types[cand.Type] }

// Weight is the weight of the pool: heavier pools are tried first.
func (t *Template) Weight() int32 { return t.weight }

// Gives reports whether the nodes get this value of a label that no type defines, if their pods require it.
func (t *Template) Gives(key, value string) bool {
	return t.reqs.Defines(key) && !t.DefinesLabel(key) && t.reqs.Get(key).Has(value)
}
