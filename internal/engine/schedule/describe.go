package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// poolReasons explains for each pool why it cannot launch a node for the class, after all other pods are scheduled.
func (e *explainer) poolReasons(c *class) []Reason {
	sv := e.sv
	if len(sv.templates) == 0 {
		return []Reason{{Code: NoPools, Message: "no NodePool can launch nodes, and no existing node has room"}}
	}
	if why, found := sv.contradiction(c); found {
		return []Reason{why}
	}
	if n := len(c.unknownResources); n > 0 {
		q := c.resourceList[c.unknownResources[0]]
		message := fmt.Sprintf("the pod needs %s %s, which neither a node nor an instance type has", q.String(), c.unknownResources[0])
		if n > 1 {
			message += fmt.Sprintf(", nor any of %d other resources that it requests", n-1)
		}
		return []Reason{{Code: Resources, Message: message}}
	}
	defer e.begin()()
	var out []Reason
	for _, t := range sv.templates {
		if t.unusable.Code != "" {
			out = append(out, e.describeUnusable(t))
			continue
		}
		var best *diagnosis
		for _, q := range e.probeCases(t, c) {
			if a := e.diagnose(q); best == nil || a.closer(best) {
				best = &a
			}
		}
		if len(best.obstacles) == 0 {
			// The last placements removed the obstacle, and this plan did not try again; the next one will.
			best.nearest, best.obstacles = nil, []obstacle{{code: Topology, message: "the pod can be scheduled only after others"}}
		}
		out = append(out, best.reasons(t.pool.Name)...)
	}
	return out
}

// noType finds the rule by which no instance type holds the requests.
func (sv *solver) noType(b *bin, c *class, reqs requirement.Set, total resources.Vec) *refusal {
	t := b.t
	if len(b.pods) > 0 {
		return sv.refusal(Resources, true)
	}
	code := Requirement
	ports := t.conflictingGroups(b.ports, c.ports.All())
	for i := range t.types {
		ti := &t.types[i]
		if !reqs.Overlaps(ti.Requirements) {
			continue
		}
		if code == Requirement {
			code = Resources
		}
		if !total.Fits(ti.room) {
			continue
		}
		if ports == nil || !ports[ti.daemonGroup] {
			return &refusal{code: Offering, final: true}
		}
		code = HostPort
	}
	return &refusal{code: code, final: true}
}

// describeUnusable is the reason why a pool can launch nothing, whatever a pod requires.
func (e *explainer) describeUnusable(t *template) Reason {
	types := e.sourcePool(t).InstanceTypes
	for _, r := range t.reqs.All() {
		if slices.ContainsFunc(types, func(it *catalog.InstanceType) bool { return requirement.NewSet(r).Overlaps(it.Requirements) }) {
			continue
		}
		out := t.unusable
		out.Message = fmt.Sprintf("its own requirements filtered out all instance types: none has %s%s", wording.Requirement(r), e.hintValue(r))
		return out
	}
	return t.unusable
}

func (e *explainer) describeTaints(q *probeCase) string {
	last := q.class.levels[len(q.class.levels)-1]
	var out []string
	for i := range q.template.taints {
		if _, blocked := snapshot.Untolerated(last.tolerations, q.template.taints[i:i+1]); blocked {
			out = append(out, taintString(&q.template.taints[i]))
		}
	}
	if len(out) == 1 {
		return "the pod does not tolerate taint " + out[0]
	}
	return "the pod does not tolerate taints " + strings.Join(out, ", ")
}

// hintValue is a hint at the value that an unknown one was probably meant to be.
func (e *explainer) hintValue(r requirement.Requirement) string {
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
func (e *explainer) hintPool(r requirement.Requirement) string {
	known := map[string]bool{}
	for _, p := range e.sv.s.Pools {
		known[p.NodePool.Name] = true
	}
	for _, p := range e.sv.s.Closed {
		known[p.Name] = true
	}
	return wording.Hint(r.Values(), known)
}

// volumeName names the volume that requires something of a label.
func (e *explainer) volumeName(q *probeCase, key string) string {
	for _, v := range podVolumes(e.sv.s, q.class.pod) {
		if alternatives, err := v.alternatives(e.sv.s.Labels); err == nil &&
			slices.ContainsFunc(alternatives, func(s requirement.Set) bool { return s.Defines(key) }) {
			return fmt.Sprintf("volume claim %q", v.key.Name)
		}
	}
	return "a volume"
}

// describeView describes a topology constraint, the distribution of its pods, and which domains that leaves.
func (e *explainer) describeView(v view) string {
	g := v.g
	s := fmt.Sprintf("%s over %s", g.typ, g.key)
	switch g.typ {
	case spread:
		s += fmt.Sprintf(" with maxSkew %d (pods now: %s)", g.maxSkew, g.distribution(true))
		var allowed []string
		for _, d := range g.universe {
			if v.allows(d) {
				allowed = append(allowed, d)
			}
		}
		switch {
		case len(g.usable) < g.minDomains:
			s += fmt.Sprintf(" allows no more: minDomains is %d, and the pod can use only %d", g.minDomains, len(g.usable))
		case len(allowed) == 0:
			s += " allows no more anywhere"
		default:
			s += " allows only " + wording.List(allowed)
		}
	case affinity:
		s += fmt.Sprintf(" to pods with %s", g.selectorText())
		switch where := g.distribution(false); {
		case g.key == corev1.LabelHostname:
			s += ": a new node has none, and the nodes that have some do not take the pod"
		case where != "":
			s += ", which are in " + where
		case g.undecided > 0:
			s += ", which are on nodes that may yet come up anywhere"
		default:
			s += ": there are none"
		}
	case antiAffinity:
		s += fmt.Sprintf(" to pods with %s, which are or may come up in %s", g.selectorText(), g.distribution(false))
	case inverse:
		s += ", which is or may come up in " + g.distribution(false)
	}
	return s
}

// distribution lists the group's pods by domain: "z1 (2), z2 (1)".
func (g *group) distribution(empty bool) string {
	domains := slices.Collect(maps.Keys(g.counts))
	if empty {
		domains = append(domains, g.universe...)
	}
	slices.Sort(domains)
	var out []string
	for _, d := range slices.Compact(domains) {
		if n := g.counts[d]; n > 0 || empty {
			out = append(out, fmt.Sprintf("%s (%d)", d, n))
		}
	}
	return wording.List(out)
}

// suitableTypes are the types that the pool would use for the pod, whatever their size and availability.
func (e *explainer) suitableTypes(q *probeCase, l waiver) (*template, requirement.Set, []*typeInfo) {
	t := e.template(q.template, l)
	reqs := t.reqs.Intersect(q.requirements(l).Without(corev1.LabelHostname))
	var out []*typeInfo
	for i := range t.types {
		if reqs.Overlaps(t.types[i].Requirements) {
			out = append(out, &t.types[i])
		}
	}
	return t, reqs, out
}

// describeLimits names the limits that exclude even the smallest suitable type.
func (e *explainer) describeLimits(q *probeCase, l waiver) string {
	t, reqs, types := e.suitableTypes(q, l)
	types = slices.DeleteFunc(types, func(ti *typeInfo) bool {
		_, available := ti.Cheapest(reqs)
		return !available || !q.class.requests.Fits(ti.room)
	})
	var parts []string
	for i, name := range t.limits.All() {
		if len(types) == 0 {
			break
		}
		smallest := slices.MinFunc(types, func(a, b *typeInfo) int { return cmp.Compare(a.capacity[i], b.capacity[i]) })
		if smallest.capacity[i] <= t.limitLeft[i] {
			continue
		}
		use := wording.Amount(name, t.used[i]) + " in use"
		if planned := quantity.Sub(quantity.Sub(t.limit[i], t.used[i]), t.limitLeft[i]); planned > 0 {
			use += fmt.Sprintf(", %s planned", wording.Amount(name, planned))
		}
		parts = append(parts, fmt.Sprintf("the pool's limit of %s %s leaves %s (%s), and the smallest suitable type, %s, adds %s",
			wording.Amount(name, t.limit[i]), name, wording.Amount(name, max(0, t.limitLeft[i])), use,
			smallest.Name, wording.Amount(name, smallest.capacity[i])))
	}
	if len(parts) == 0 {
		return "the pool's limits together leave no suitable instance type"
	}
	return strings.Join(parts, "; ")
}

func (e *explainer) describeMinValues(q *probeCase, l waiver) string {
	t, reqs, _ := e.suitableTypes(q, l)
	b := e.sv.newBin(t)
	missed, _ := t.minValuesShortfall(
		reqs,
		e.sv.fitting(nil, fitQuery{b, growth{cands: e.sv.candidates(t, reqs)}, q.class.requests, t.conflictingGroups(nil, q.class.ports.All())}),
	)
	if len(missed) == 0 { // there are enough types, but in several domains
		return "too few instance types are left to choose from in any one domain that the pod's topology rules allow"
	}
	return describeMinValues(reqs, missed)
}

func describeMinValues(reqs requirement.Set, missed map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(missed)) {
		parts = append(parts, fmt.Sprintf("%d values of %s instead of at least %d", missed[key], key, reqs.Get(key).MinValues()))
	}
	return "too few instance types are left to choose from: " + strings.Join(parts, ", ")
}

func (e *explainer) describePorts(q *probeCase) string {
	var taken []string
	for _, p := range q.class.ports.All() {
		one := []resources.HostPort{p}
		if slices.ContainsFunc(q.template.daemonGroups, func(g daemonGroup) bool { return resources.PortsConflict(one, g.ports) }) {
			taken = append(taken, p.String())
		}
	}
	return fmt.Sprintf("a DaemonSet takes the pod's host port (%s) on every node that would suit", strings.Join(taken, ", "))
}

// describeAvailability counts the types that fit but are not available.
func (e *explainer) describeAvailability(q *probeCase, l waiver) string {
	_, reqs, types := e.suitableTypes(q, l)
	types = slices.DeleteFunc(types, func(ti *typeInfo) bool { return !q.class.requests.Fits(ti.room) })
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
func describeUnpriced(types []*typeInfo, reqs requirement.Set) string {
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
func (e *explainer) describeSize(q *probeCase, l waiver) string {
	_, _, types := e.suitableTypes(q, l)
	need := q.class.requests
	var parts []string
	for i, name := range e.sv.axes.All() {
		if len(types) == 0 || need[i] == 0 || len(parts) == maxSizesNamed {
			continue
		}
		largest := slices.MaxFunc(types, func(a, b *typeInfo) int { return cmp.Compare(a.room[i], b.room[i]) })
		switch has := max(0, largest.room[i]); {
		case need[i] <= has:
		case has == 0 && !e.anyType(func(it *catalog.InstanceType) bool { return !isZero(it.Allocatable, name) }):
			parts = append(parts, fmt.Sprintf("%s %s, which no instance type has%s", q.class.amount(name, need[i]), name, e.hintResource(name)))
		case has == 0 && isZero(largest.Allocatable, name):
			parts = append(parts, fmt.Sprintf("%s %s, which no instance type that suits it has", q.class.amount(name, need[i]), name))
		default:
			link := ", and %s, the largest type that suits it, has"
			if !e.anyType(func(it *catalog.InstanceType) bool { return quantity.Of(name, it.Allocatable[name]) >= need[i] }) {
				link = ": no instance type is that large; %s, the largest type that suits it, has"
			}
			parts = append(
				parts,
				fmt.Sprintf(
					"%s %s"+link+" %s for pods%s",
					q.class.amount(name, need[i]),
					name,
					largest.Name,
					wording.Amount(name, has),
					e.daemonShare(largest, i),
				),
			)
		}
	}
	if len(parts) == 0 {
		return "no single instance type has enough of everything that the pod needs: " + e.sv.amounts(need)
	}
	return "the pod needs " + strings.Join(parts, "; and ")
}

// amount prints n of what a pod of the class requests.
func (c *class) amount(name corev1.ResourceName, n int64) string {
	if q := c.resourceList[name]; n == quantity.Max {
		return q.String()
	}
	return wording.Amount(name, n)
}

func isZero(l corev1.ResourceList, name corev1.ResourceName) bool {
	q := l[name]
	return q.IsZero()
}

// daemonShare describes what daemons take of a type.
func (e *explainer) daemonShare(ti *typeInfo, axis int) string {
	name := e.sv.axes.Name(axis)
	if taken := quantity.Of(name, ti.Allocatable[name]) - ti.room[axis]; taken > 0 && ti.room[axis] >= 0 {
		return fmt.Sprintf(" after %s for daemons", wording.Amount(name, taken))
	}
	return ""
}

// hintResource is a hint at the resource that an unknown one was probably meant to be.
func (e *explainer) hintResource(name corev1.ResourceName) string {
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
func extraRequirements(t *template, asked requirement.Set) string {
	var parts []string
	for _, r := range asked.All() {
		if !t.reqs.Get(r.Key()).Intersect(r).Equal(t.reqs.Get(r.Key())) {
			parts = append(parts, wording.Requirement(r))
		}
	}
	if len(parts) == 0 {
		return "what the pool requires together"
	}
	return strings.Join(parts, ", ")
}

func (sv *solver) amounts(v resources.Vec) string {
	var parts []string
	for i, name := range sv.axes.All() {
		if v[i] > 0 && name != corev1.ResourcePods {
			parts = append(parts, fmt.Sprintf("%s %s", wording.Amount(name, v[i]), name))
		}
	}
	return strings.Join(parts, ", ")
}

// hintKey is a hint at the label key that an unknown one was probably meant to be.
func (e *explainer) hintKey(key string) string {
	known := maps.Clone(e.sv.s.Labels.WellKnown)
	if known == nil {
		known = map[string]bool{}
	}
	for _, t := range e.sv.templates {
		for _, k := range t.reqs.Keys() {
			known[k] = true
		}
	}
	return wording.DidYouMean(key, slices.Sorted(maps.Keys(known)))
}
