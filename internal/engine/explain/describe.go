package explain

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// describeUnusable is the reason why a pool can launch nothing, whatever a pod requires.
func (e *Explainer) describeUnusable(t *nodepool.Template) rejection.Reason {
	types := e.sourcePool(t).InstanceTypes
	for _, r := range t.Requirements().All() {
		if slices.ContainsFunc(types, func(it *catalog.InstanceType) bool { return requirement.NewSet(r).Overlaps(it.Requirements) }) {
			continue
		}
		out := t.Unusable()
		out.Rule = &rejection.Rule{Labels: e.withKnown(r, &rejection.Labels{
			Cause: rejection.UnknownValue, By: rejection.ByPool, Required: rejection.LabelsOf([]requirement.Requirement{r}),
		})}
		return out
	}
	return t.Unusable()
}

func (e *Explainer) describeTaints(q *nodeCase) *rejection.Rule {
	var out []rejection.UntoleratedTaint
	for i, taint := range q.template.Taints() {
		if _, blocked := snapshot.Untolerated(q.pods.Tolerations, q.template.Taints()[i:i+1]); blocked {
			out = append(out, rejection.UntoleratedTaint{Key: taint.Key, Value: taint.Value, Effect: string(taint.Effect)})
		}
	}
	return &rejection.Rule{Taints: out}
}

// withKnown adds the value that an unknown one was probably meant to be, or else the values that there are, if these are few.
func (e *Explainer) withKnown(r requirement.Requirement, l *rejection.Labels) *rejection.Labels {
	known := map[string]bool{}
	e.anyType(func(it *catalog.InstanceType) bool {
		for _, v := range it.Requirements.Get(r.Key()).Values() {
			known[v] = true
		}
		return false
	})
	if l.Similar = wording.SimilarToAny(r.Values(), known); l.Similar == "" && len(known) <= wording.MaxListed {
		l.Known = slices.Sorted(maps.Keys(known))
	}
	return l
}

// similarPool is the pool that an unknown name was probably meant to be.
func (e *Explainer) similarPool(r requirement.Requirement) string {
	known := map[string]bool{}
	for _, p := range e.s.Pools {
		known[p.NodePool.Name] = true
	}
	for _, p := range e.s.Closed {
		known[p.Name] = true
	}
	return wording.SimilarToAny(r.Values(), known)
}

// suitableTypes are the types that the pool would use for the pod, whatever their size and availability.
func (e *Explainer) suitableTypes(q *nodeCase, l waiver) (*nodepool.Template, requirement.Set, []*nodepool.Type) {
	t := e.template(q.template, l)
	reqs := t.Requirements().Intersect(q.requirements(l).Without(corev1.LabelHostname))
	var out []*nodepool.Type
	for i := range t.Types() {
		if reqs.Overlaps(t.Types()[i].Requirements) {
			out = append(out, &t.Types()[i])
		}
	}
	return t, reqs, out
}

// describeLimits finds the limits that exclude even the smallest suitable type; nil if they do so only together.
func (e *Explainer) describeLimits(q *nodeCase, w waiver) *rejection.Rule {
	t, reqs, types := e.suitableTypes(q, w)
	types = slices.DeleteFunc(types, func(ti *nodepool.Type) bool {
		_, available := ti.Cheapest(reqs)
		return !available || !q.pods.Requests.Fits(ti.Room())
	})
	var out []rejection.Limit
	for _, l := range t.LimitUses() {
		if len(types) == 0 {
			break
		}
		smallest := slices.MinFunc(types, func(a, b *nodepool.Type) int {
			return cmp.Compare(a.AgainstLimits()[l.Axis], b.AgainstLimits()[l.Axis])
		})
		if smallest.AgainstLimits()[l.Axis] <= l.Left {
			continue
		}
		amount := func(n int64) string { return wording.Amount(l.Name, n) }
		limit := rejection.Limit{
			Resource: string(l.Name), Limit: amount(l.Limit), Used: amount(l.Used), Left: amount(max(0, l.Left)),
			InstanceType: smallest.Name, Adds: amount(smallest.AgainstLimits()[l.Axis]),
		}
		if planned := quantity.Sub(quantity.Sub(l.Limit, l.Used), l.Left); planned > 0 {
			limit.Planned = amount(planned)
		}
		out = append(out, limit)
	}
	if len(out) == 0 {
		return nil
	}
	return &rejection.Rule{Limits: out}
}

// describeMinValues finds the labels with too few values; nil if there are enough types, but in several domains.
func (e *Explainer) describeMinValues(q *nodeCase, l waiver) *rejection.Rule {
	t, reqs, _ := e.suitableTypes(q, l)
	missed, _ := t.MinValuesShortfall(reqs, t.Fitting(nil, nodepool.FitQuery{
		Candidates: t.Candidates(reqs), Total: q.pods.Requests, Reserved: t.NoLimits(), Blocked: t.ConflictingGroups(nil, q.pods.Ports),
	}))
	if len(missed) == 0 {
		return nil
	}
	return nodepool.Shortfall(reqs, missed)
}

func (e *Explainer) describePorts(q *nodeCase) *rejection.Rule {
	var taken []string
	for _, p := range q.pods.Ports {
		if q.template.DaemonsTake(p) {
			taken = append(taken, p.String())
		}
	}
	return &rejection.Rule{Ports: taken}
}

// describeAvailability counts the types that fit but are not available.
func (e *Explainer) describeAvailability(q *nodeCase, l waiver) *rejection.Rule {
	_, reqs, types := e.suitableTypes(q, l)
	types = slices.DeleteFunc(types, func(ti *nodepool.Type) bool { return !q.pods.Requests.Fits(ti.Room()) })
	out := &rejection.Offerings{Types: len(types)}
	if len(types) == 1 {
		out.Only = types[0].Name
	}
	if out.Unpriced = onlyUnpriced(types, reqs); !out.Unpriced {
		out.CapacityTypes = reqs.Get(karpv1.LabelCapacityType).ListedValues()
		out.Zones = reqs.Get(corev1.LabelTopologyZone).ListedValues()
	}
	return &rejection.Rule{Offerings: out}
}

// onlyUnpriced reports whether only prices of the types are missing.
func onlyUnpriced(types []*nodepool.Type, reqs requirement.Set) bool {
	for _, ti := range types {
		lacking := 0
		for i := range ti.Offerings {
			o := &ti.Offerings[i]
			if o.UnavailableReason == catalog.ReasonNotOffered || !reqs.Overlaps(o.Requirements) {
				continue
			}
			if o.UnavailableReason != catalog.ReasonNoPrice {
				return false
			}
			lacking++
		}
		if lacking == 0 {
			return false
		}
	}
	return len(types) > 0
}

// maxSizesNamed limits how many oversized requests a reason has: an event holds 1,024 characters.
const maxSizesNamed = 5

// describeSize compares the pod's requests with the largest type that suits it.
func (e *Explainer) describeSize(q *nodeCase, l waiver) *rejection.Sizes {
	_, _, types := e.suitableTypes(q, l)
	need := q.pods.Requests
	out := &rejection.Sizes{}
	for i, name := range e.axes.All() {
		if len(types) == 0 || need[i] == 0 || len(out.TooLarge) == maxSizesNamed {
			continue
		}
		largest := slices.MaxFunc(types, func(a, b *nodepool.Type) int { return cmp.Compare(a.Room()[i], b.Room()[i]) })
		has := max(0, largest.Room()[i])
		if need[i] <= has {
			continue
		}
		size := rejection.Size{Amount: rejection.Amount{Resource: string(name), Needs: q.pods.amount(name, need[i])}}
		switch {
		case has == 0 && !e.anyType(func(it *catalog.InstanceType) bool { return !isZero(it.Allocatable, name) }):
			size.Cause, size.Similar = rejection.NoType, e.similarResource(name)
		case has == 0 && isZero(largest.Allocatable, name):
			size.Cause = rejection.NoSuitableType
		default:
			size.Cause = rejection.SuitableTooSmall
			if !e.anyType(func(it *catalog.InstanceType) bool { return quantity.Of(name, it.Allocatable[name]) >= need[i] }) {
				size.Cause = rejection.AllTooSmall
			}
			size.InstanceType, size.Has, size.Daemons = largest.Name, wording.Amount(name, has), e.daemonShare(largest, i)
		}
		out.TooLarge = append(out.TooLarge, size)
	}
	if len(out.TooLarge) == 0 {
		out.Together = e.amounts(need)
	}
	return out
}

// amount prints n of what a pod requests: as the pod does, if it is more than n can be. The size of volumes is not among its requests.
func (p *Pods) amount(name corev1.ResourceName, n int64) string {
	if q, requested := p.ResourceList[name]; requested && n == quantity.Max {
		return q.String()
	}
	return wording.Amount(name, n)
}

func isZero(l corev1.ResourceList, name corev1.ResourceName) bool {
	q := l[name]
	return q.IsZero()
}

// daemonShare returns what daemons take of a type; empty if nothing.
func (e *Explainer) daemonShare(ti *nodepool.Type, axis int) string {
	name := e.axes.Name(axis)
	if taken := quantity.Of(name, ti.Allocatable[name]) - ti.Room()[axis]; taken > 0 && ti.Room()[axis] >= 0 {
		return wording.Amount(name, taken)
	}
	return ""
}

// similarResource is the resource that an unknown one was probably meant to be.
func (e *Explainer) similarResource(name corev1.ResourceName) string {
	known := map[string]bool{}
	e.anyType(func(it *catalog.InstanceType) bool {
		for n := range it.Allocatable {
			known[string(n)] = true
		}
		return false
	})
	return wording.SimilarToAny([]string{string(name)}, known)
}

// extraRequirements are the requirements beyond the template's own.
func extraRequirements(t *nodepool.Template, asked requirement.Set) []rejection.Label {
	var out []rejection.Label
	for _, r := range asked.All() {
		if !t.Requirements().Get(r.Key()).Intersect(r).Equal(t.Requirements().Get(r.Key())) {
			out = append(out, rejection.LabelOf(r))
		}
	}
	return out
}

func (e *Explainer) amounts(v resources.Vec) []rejection.Amount {
	var out []rejection.Amount
	for i, name := range e.axes.All() {
		if v[i] > 0 && name != corev1.ResourcePods {
			out = append(out, rejection.Amount{Resource: string(name), Needs: wording.Amount(name, v[i])})
		}
	}
	return out
}

// similarKey is the label key that an unknown one was probably meant to be.
func (e *Explainer) similarKey(key string) string {
	known := maps.Clone(e.labels().WellKnown)
	if known == nil {
		known = map[string]bool{}
	}
	for _, t := range e.pools.All() {
		for _, k := range t.Requirements().Keys() {
			known[k] = true
		}
	}
	return wording.Similar(key, slices.Sorted(maps.Keys(known)))
}

// describeDevices is the reason why no new node of the pool has devices for the pods.
func (e *Explainer) describeDevices(q *nodeCase, l waiver) *rejection.ResourceClaims {
	t := e.template(q.template, l)
	out := &rejection.ResourceClaims{Names: q.pods.DeviceClaims}
	cands := t.Candidates(t.Requirements()).Narrow(e.pools.Intern(q.requirements(l)))
	if cands == nil {
		out.Cause = rejection.NoTypeHasDevices
		return out
	}
	err := q.pods.Search.FindDevices(cands)
	if err == nil {
		out.Cause = rejection.NotUsableInPool
		return out
	}
	out.Cause, out.Error = rejection.NotAllocated, err.Error()
	if !slices.ContainsFunc(t.Types(), func(ti nodepool.Type) bool { return len(ti.DeviceSlices) > 0 }) {
		out.Cause = rejection.NoDevicesKnown
	}
	return out
}
