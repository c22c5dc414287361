package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

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
		out.Message = fmt.Sprintf("its own requirements filtered out all instance types: none has %s%s", wording.Requirement(r), e.hintValue(r))
		return out
	}
	return t.Unusable()
}

func (e *Explainer) describeTaints(q *nodeCase) string {
	var out []string
	for i := range q.template.Taints() {
		if _, blocked := snapshot.Untolerated(q.pods.Tolerations, q.template.Taints()[i:i+1]); blocked {
			out = append(out, taintString(&q.template.Taints()[i]))
		}
	}
	if len(out) == 1 {
		return "the pod does not tolerate taint " + out[0]
	}
	return "the pod does not tolerate taints " + strings.Join(out, ", ")
}

// hintValue is a hint at the value that an unknown one was probably meant to be.
func (e *Explainer) hintValue(r requirement.Requirement) string {
	known := map[string]bool{}
	e.anyType(func(it *catalog.InstanceType) bool {
		for _, v := range it.Requirements.Get(r.Key()).Values() {
			known[v] = true
		}
		return false
	})
	if hint := wording.Hint(r.Values(), known); hint != "" || len(known) > wording.MaxListed {
		return hint
	}
	return fmt.Sprintf(" (there is only %s)", wording.List(slices.Sorted(maps.Keys(known))))
}

// hintPool is a hint at the pool that an unknown name was probably meant to be.
func (e *Explainer) hintPool(r requirement.Requirement) string {
	known := map[string]bool{}
	for _, p := range e.s.Pools {
		known[p.NodePool.Name] = true
	}
	for _, p := range e.s.Closed {
		known[p.Name] = true
	}
	return wording.Hint(r.Values(), known)
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

// describeLimits names the limits that exclude even the smallest suitable type.
func (e *Explainer) describeLimits(q *nodeCase, w waiver) string {
	t, reqs, types := e.suitableTypes(q, w)
	types = slices.DeleteFunc(types, func(ti *nodepool.Type) bool {
		_, available := ti.Cheapest(reqs)
		return !available || !q.pods.Requests.Fits(ti.Room())
	})
	var parts []string
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
		use := wording.Amount(l.Name, l.Used) + " in use"
		if planned := quantity.Sub(quantity.Sub(l.Limit, l.Used), l.Left); planned > 0 {
			use += fmt.Sprintf(", %s planned", wording.Amount(l.Name, planned))
		}
		parts = append(parts, fmt.Sprintf("the pool's limit of %s %s leaves %s (%s), and the smallest suitable type, %s, adds %s",
			wording.Amount(l.Name, l.Limit), l.Name, wording.Amount(l.Name, max(0, l.Left)), use,
			smallest.Name, wording.Amount(l.Name, smallest.AgainstLimits()[l.Axis])))
	}
	if len(parts) == 0 {
		return "the pool's limits together leave no suitable instance type"
	}
	return strings.Join(parts, "; ")
}

func (e *Explainer) describeMinValues(q *nodeCase, l waiver) string {
	t, reqs, _ := e.suitableTypes(q, l)
	missed, _ := t.MinValuesShortfall(reqs, t.Fitting(nil, nodepool.FitQuery{
		Candidates: t.Candidates(reqs), Total: q.pods.Requests, Reserved: t.NoLimits(), Blocked: t.ConflictingGroups(nil, q.pods.Ports),
	}))
	if len(missed) == 0 { // there are enough types, but in several domains
		return "too few instance types are left to choose from in any one domain that the pod's topology rules allow"
	}
	return nodepool.DescribeShortfall(reqs, missed)
}

func (e *Explainer) describePorts(q *nodeCase) string {
	var taken []string
	for _, p := range q.pods.Ports {
		if q.template.DaemonsTake(p) {
			taken = append(taken, p.String())
		}
	}
	return fmt.Sprintf("a DaemonSet takes the pod's host port (%s) on every node that would suit", strings.Join(taken, ", "))
}

// describeAvailability counts the types that fit but are not available.
func (e *Explainer) describeAvailability(q *nodeCase, l waiver) string {
	_, reqs, types := e.suitableTypes(q, l)
	types = slices.DeleteFunc(types, func(ti *nodepool.Type) bool { return !q.pods.Requests.Fits(ti.Room()) })
	if text := describeUnpriced(types, reqs); text != "" {
		return text
	}
	s := fmt.Sprintf("none of the %d instance types that fit is available at the moment", len(types))
	if len(types) == 1 {
		s = fmt.Sprintf("%s, the only instance type that fits, is not available at the moment", types[0].Name)
	}
	for _, key := range []string{karpv1.LabelCapacityType, corev1.LabelTopologyZone} {
		if r := reqs.Get(key); r.Operator() == corev1.NodeSelectorOpIn {
			word := map[string]string{karpv1.LabelCapacityType: " as ", corev1.LabelTopologyZone: " in "}[key]
			s += word + wording.List(r.Values())
		}
	}
	return s
}

// describeUnpriced describes that only prices are missing; empty if anything else is.
func describeUnpriced(types []*nodepool.Type, reqs requirement.Set) string {
	for _, ti := range types {
		lacking := 0
		for i := range ti.Offerings {
			o := &ti.Offerings[i]
			if o.UnavailableReason == catalog.ReasonNotOffered || !reqs.Overlaps(o.Requirements) {
				continue
			}
			if o.UnavailableReason != catalog.ReasonNoPrice {
				return ""
			}
			lacking++
		}
		if lacking == 0 {
			return ""
		}
	}
	const remedy = ", and nothing is launched at an unknown price: a NodeOverlay can give it one (feature gate NodeOverlay)"
	switch len(types) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("no price is known of %s, the only instance type that suits", types[0].Name) + remedy
	}
	return fmt.Sprintf("no price is known of any of the %d instance types that suit", len(types)) + remedy
}

// maxSizesNamed is how many oversized requests a message names: an event holds 1,024 characters.
const maxSizesNamed = 5

// describeSize compares the pod's requests with the largest type that suits it.
func (e *Explainer) describeSize(q *nodeCase, l waiver) string {
	_, _, types := e.suitableTypes(q, l)
	need := q.pods.Requests
	var parts []string
	for i, name := range e.axes.All() {
		if len(types) == 0 || need[i] == 0 || len(parts) == maxSizesNamed {
			continue
		}
		largest := slices.MaxFunc(types, func(a, b *nodepool.Type) int { return cmp.Compare(a.Room()[i], b.Room()[i]) })
		switch has := max(0, largest.Room()[i]); {
		case need[i] <= has:
		case has == 0 && !e.anyType(func(it *catalog.InstanceType) bool { return !isZero(it.Allocatable, name) }):
			parts = append(parts, fmt.Sprintf("%s %s, which no instance type has%s", q.pods.amount(name, need[i]), name, e.hintResource(name)))
		case has == 0 && isZero(largest.Allocatable, name):
			parts = append(parts, fmt.Sprintf("%s %s, which no instance type that suits it has", q.pods.amount(name, need[i]), name))
		default:
			link := ", and %s, the largest type that suits it, has"
			if !e.anyType(func(it *catalog.InstanceType) bool { return quantity.Of(name, it.Allocatable[name]) >= need[i] }) {
				link = ": no instance type is that large; %s, the largest type that suits it, has"
			}
			parts = append(
				parts,
				fmt.Sprintf(
					"%s %s"+link+" %s for pods%s",
					q.pods.amount(name, need[i]),
					name,
					largest.Name,
					wording.Amount(name, has),
					e.daemonShare(largest, i),
				),
			)
		}
	}
	if len(parts) == 0 {
		return "no single instance type has enough of everything that the pod needs: " + e.amounts(need)
	}
	return "the pod needs " + strings.Join(parts, "; and ")
}

// amount prints n of what a pod requests.
func (p *Pods) amount(name corev1.ResourceName, n int64) string {
	if q := p.ResourceList[name]; n == quantity.Max {
		return q.String()
	}
	return wording.Amount(name, n)
}

func isZero(l corev1.ResourceList, name corev1.ResourceName) bool {
	q := l[name]
	return q.IsZero()
}

// daemonShare describes what daemons take of a type.
func (e *Explainer) daemonShare(ti *nodepool.Type, axis int) string {
	name := e.axes.Name(axis)
	if taken := quantity.Of(name, ti.Allocatable[name]) - ti.Room()[axis]; taken > 0 && ti.Room()[axis] >= 0 {
		return fmt.Sprintf(" after %s for daemons", wording.Amount(name, taken))
	}
	return ""
}

// hintResource is a hint at the resource that an unknown one was probably meant to be.
func (e *Explainer) hintResource(name corev1.ResourceName) string {
	known := map[string]bool{}
	e.anyType(func(it *catalog.InstanceType) bool {
		for n := range it.Allocatable {
			known[string(n)] = true
		}
		return false
	})
	return wording.Hint([]string{string(name)}, known)
}

// extraRequirements prints the requirements beyond the template's own.
func extraRequirements(t *nodepool.Template, asked requirement.Set) string {
	var parts []string
	for _, r := range asked.All() {
		if !t.Requirements().Get(r.Key()).Intersect(r).Equal(t.Requirements().Get(r.Key())) {
			parts = append(parts, wording.Requirement(r))
		}
	}
	if len(parts) == 0 {
		return "what the pool requires together"
	}
	return strings.Join(parts, ", ")
}

func (e *Explainer) amounts(v resources.Vec) string {
	var parts []string
	for i, name := range e.axes.All() {
		if v[i] > 0 && name != corev1.ResourcePods {
			parts = append(parts, fmt.Sprintf("%s %s", wording.Amount(name, v[i]), name))
		}
	}
	return strings.Join(parts, ", ")
}

// hintKey is a hint at the label key that an unknown one was probably meant to be.
func (e *Explainer) hintKey(key string) string {
	known := maps.Clone(e.labels().WellKnown)
	if known == nil {
		known = map[string]bool{}
	}
	for _, t := range e.pools.All() {
		for _, k := range t.Requirements().Keys() {
			known[k] = true
		}
	}
	return wording.DidYouMean(key, slices.Sorted(maps.Keys(known)))
}

func taintString(t *corev1.Taint) string {
	return strings.TrimSuffix(t.Key+"="+t.Value, "=") + ":" + string(t.Effect)
}

// describeDevices is the reason why no new node of the pool has devices for the pods.
func (e *Explainer) describeDevices(q *nodeCase, l waiver) string {
	t := e.template(q.template, l)
	cands := t.Candidates(t.Requirements()).Narrow(e.pools.Intern(q.requirements(l)))
	if cands == nil {
		return "no instance type of the pool has devices for its resource claims"
	}
	err := q.pods.Search.FindDevices(cands)
	if err == nil {
		names := make([]string, len(q.pods.DeviceClaims))
		for i, name := range q.pods.DeviceClaims {
			names[i] = fmt.Sprintf("%q", name)
		}
		return "the devices that are free for resource claim " + strings.Join(names, ", ") + " cannot be used on nodes of the pool"
	}
	if !slices.ContainsFunc(t.Types(), func(ti nodepool.Type) bool { return len(ti.DeviceSlices) > 0 }) {
		return err.Error() + ", and it is not known of any instance type of the pool that it comes with devices"
	}
	return err.Error()
}

// volumeName names the volume that requires something of a label.
func volumeName(q *nodeCase, key string) string {
	if claim := q.pods.Search.VolumeClaim(key); claim != "" {
		return fmt.Sprintf("volume claim %q", claim)
	}
	return "a volume"
}
