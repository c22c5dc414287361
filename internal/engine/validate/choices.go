package validate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Choices returns, joined, what the plan could plainly have done and did not: leave no pod without a home that could have a
// fresh node for itself after all else has its place, and buy nothing from a pool when a heavier one takes all of a node's
// pods alone. It tries every pool, type, offering and alternative, so it is for small worlds.
func Choices(s *snapshot.Snapshot, p schedule.Plan) error {
	c := newCheck(s, p)
	for _, r := range p.Rejected {
		if c.shares(r.Pod) {
			continue // where the other's volume is decides
		}
		for i := range s.Pools {
			if on, ok := c.home(r.Pod, &s.Pools[i], anyTaint); ok {
				c.fail("pod %s has no place (%s), though it could be alone on %s", name(r.Pod), r.Reasons[0].Message, on)
				break
			}
		}
	}
	for _, pl := range c.places {
		if pl.launch != nil {
			c.weights(pl)
		}
	}
	return join(c.found)
}

// weights: a pool is bought from only where all heavier ones refuse one of the pods. Pods whose place depends on others or on
// preferences are left out of account, since what they found when their turn came is not known.
func (c *check) weights(pl *place) {
	if slices.ContainsFunc(pl.pods, func(pod *corev1.Pod) bool { return !c.plain(pod) }) {
		return
	}
	for i := range c.s.Pools {
		pool := &c.s.Pools[i]
		if weightOf(pool.NodePool) <= weightOf(pl.launch.Pool) || len(pool.NodePool.Spec.Limits) > 0 && c.buysFrom(pool) {
			continue // what limits had left when the pods' turn came is not known
		}
		if !slices.ContainsFunc(pl.pods, func(pod *corev1.Pod) bool {
			_, ok := c.home(pod, pool, noTaint)
			return !ok
		}) {
			c.failAt([]*place{pl}, "%s, though the heavier pool %s takes each of its pods", pl.name, pool.NodePool.Name)
		}
	}
}

func (c *check) buysFrom(pool *snapshot.Pool) bool {
	return slices.ContainsFunc(c.p.Launches, func(l schedule.Launch) bool { return l.Pool.Name == pool.NodePool.Name })
}

func weightOf(pool *karpv1.NodePool) int32 {
	if pool.Spec.Weight == nil {
		return 0
	}
	return *pool.Spec.Weight
}

// plain tells whether the pod minds neither other pods nor preferences, and no other pod minds it.
func (c *check) plain(pod *corev1.Pod) bool {
	w := c.wantsOf(pod)
	if len(pod.Spec.TopologySpreadConstraints) > 0 || len(w.terms) > 1 || c.shares(pod) {
		return false
	}
	if a := pod.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil ||
		a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0) {
		return false
	}
	return !slices.ContainsFunc(c.crowd.all, func(m *member) bool { return c.keepsOut(m, pod) })
}

func (c *check) keepsOut(m *member, pod *corev1.Pod) bool {
	return slices.ContainsFunc(requiredAntiAffinity(m.pod), func(t corev1.PodAffinityTerm) bool { return c.related(m.pod, &t).has(pod) })
}

// softness says whether taints of effect PreferNoSchedule keep pods off.
type softness int

const (
	anyTaint softness = iota // only hard ones do
	noTaint                  // all do
)

// home finds a node of the pool that the pod could have for itself after the plan.
func (c *check) home(pod *corev1.Pod, pool *snapshot.Pool, soft softness) (string, bool) {
	taints := pool.NodePool.Spec.Template.Spec.Taints
	if !c.eligible(pod) || pool.NodePool.Spec.Replicas != nil || !tolerated(pod, taints) || soft == noTaint && !toleratesAll(pod, taints) {
		return "", false
	}
	if _, err := c.s.Labels.FromAPI(pool.NodePool.Spec.Template.Spec.Requirements); err != nil {
		return "", false
	}
	own := c.poolDemands(pool)
	if key := pool.NodeClassLabel[0]; key != "" {
		own[key] = append(own[key], expr{key: key, op: corev1.NodeSelectorOpIn, values: []string{pool.NodeClassLabel[1]}})
	}
	for _, alternative := range c.alternatives(pod) {
		f := &fresh{c: c, pod: pod, pool: pool, own: own, asked: alternative, left: c.left(pool)}
		if on, ok := f.find(); ok {
			return on, true
		}
	}
	return "", false
}

// eligible tells whether the pod is one that is considered at all.
func (c *check) eligible(pod *corev1.Pod) bool {
	w := c.wantsOf(pod)
	if asksDevices(pod) || w.err != nil || w.affinity && len(w.terms) == 0 {
		return false
	}
	for _, list := range append([][]expr{w.selector}, w.terms...) {
		for i := range list {
			e := &list[i]
			known := c.s.Labels.KnownValues[e.key]
			if c.s.Labels.IsRestricted(e.key) || e.op == corev1.NodeSelectorOpIn && len(known) > 0 && !slices.ContainsFunc(known, e.has) {
				return false
			}
			if e.key == karpv1.LabelNodePool && e.op == corev1.NodeSelectorOpDoesNotExist {
				return false // opted out
			}
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, t := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			for _, e := range t.Preference.MatchExpressions {
				if e.Key == karpv1.LabelNodePool && e.Operator == corev1.NodeSelectorOpDoesNotExist {
					return false // opted out
				}
			}
		}
	}
	return true
}

// alternatives are the ways to satisfy what the pod and its volumes demand of labels: one term of each.
func (c *check) alternatives(pod *corev1.Pod) [][]expr {
	w := c.wantsOf(pod)
	out := [][]expr{w.selector}
	choose := func(terms [][]expr) {
		var next [][]expr
		for _, prefix := range out {
			for _, t := range terms {
				next = append(next, slices.Concat(prefix, t))
			}
		}
		out = next
	}
	if w.affinity {
		choose(w.terms)
	}
	for _, m := range c.mounts(pod) {
		if m.missing != "" {
			return nil
		}
		if len(m.terms) > 0 {
			choose(m.terms)
		}
	}
	return out
}

// fresh is the search for a node of one pool for one pod.
type fresh struct {
	c    *check
	pod  *corev1.Pod
	pool *snapshot.Pool
	// own are the pool's demands on labels, asked the pod's.
	own   map[string][]expr
	asked []expr
	left  amounts
}

// options are the values that a label of the outcome may take under all demands.
func (f *fresh) options(out outcome, key string) label {
	var asked []expr
	for _, e := range f.asked {
		if e.key == key {
			asked = append(asked, e)
		}
	}
	all := slices.Concat(f.own[key], asked)
	ok := func(v string) bool { return !slices.ContainsFunc(all, func(e expr) bool { return !e.has(v) }) }
	l, said := out.label(key)
	switch {
	case said:
	case len(f.own[key]) > 0 || f.c.s.Labels.IsWellKnown(key):
		l = label{values: examples(all), absent: true}
	default:
		l = label{absent: true}
	}
	l.values = slices.DeleteFunc(slices.Clone(l.values), func(v string) bool { return !ok(v) })
	l.absent = l.absent && !slices.ContainsFunc(all, func(e expr) bool { return !e.lacks() })
	return l
}

// examples are values that may satisfy the demands, if any does.
func examples(all []expr) []string {
	out := []string{"any"}
	for _, e := range all {
		switch e.op {
		case corev1.NodeSelectorOpIn:
			out = append(out, e.values...)
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.OperatorGte, karpv1.OperatorLte:
			for d := int64(-9); d <= 9; d++ {
				if n := e.number + d; n >= 0 { // no label begins with a minus
					out = append(out, fmt.Sprint(n))
				}
			}
		}
	}
	return out
}

// takes tells whether the outcome is one that the pool may buy for the pod, other pods set aside.
func (f *fresh) takes(out outcome) bool {
	keys := map[string]bool{}
	for key := range f.own {
		keys[key] = true
	}
	for _, e := range f.asked {
		keys[e.key] = true
	}
	delete(keys, corev1.LabelHostname)
	for key := range keys {
		if l := f.options(out, key); len(l.values) == 0 && !l.absent {
			return false
		}
	}
	// A new node has a name that nobody can have asked for.
	return out.o.ReservationID == "" && !slices.ContainsFunc(f.asked, func(e expr) bool {
		return e.key == corev1.LabelHostname && (e.op == corev1.NodeSelectorOpIn || e.op == corev1.NodeSelectorOpDoesNotExist)
	})
}

// fits tells whether limits allow the outcome, and it holds the pod besides all daemons that might run on its type.
func (f *fresh) fits(out outcome) bool {
	it := out.it
	for r, left := range f.left {
		if q := out.weighs(r); q.Sign() > 0 && q.Cmp(left) > 0 {
			return false
		}
	}
	total := amounts{}
	total.add(requests(f.pod, false))
	for i := range f.c.s.DaemonSets {
		d := f.c.s.DaemonSets[i].Pod
		if !f.c.daemon(d) || !tolerated(d, f.pool.NodePool.Spec.Template.Spec.Taints) || !f.mightRun(d, it) {
			continue
		}
		total.add(requests(d, true))
		if _, found := clash(ports(f.pod), ports(d)); found {
			return false
		}
	}
	for r, q := range total {
		if q.Cmp(out.allocatable(r)) > 0 {
			return false
		}
	}
	return true
}

// mightRun tells whether a daemon's pod may run on some node of the pool, and on some of the type.
func (f *fresh) mightRun(d *corev1.Pod, it *catalog.InstanceType) bool {
	return f.c.wantsOf(d).admits(func(e *expr) bool {
		if e.key == karpv1.LabelRegistered || e.key == karpv1.LabelInitialized {
			return e.has("true")
		}
		own := f.own[e.key]
		byPool := label{absent: len(own) == 0}
		if len(own) > 0 || f.c.s.Labels.IsWellKnown(e.key) {
			byPool = label{values: examples(append(slices.Clone(own), *e)), absent: true}
		}
		byPool.values = slices.DeleteFunc(byPool.values, func(v string) bool { return slices.ContainsFunc(own, func(o expr) bool { return !o.has(v) }) })
		byPool.absent = byPool.absent && !slices.ContainsFunc(own, func(o expr) bool { return !o.lacks() })
		if !e.may(byPool) {
			return false
		}
		r := it.Requirements.Get(e.key)
		switch {
		case !it.Requirements.Defines(e.key):
			return true
		case r.Operator() == corev1.NodeSelectorOpIn:
			return e.may(label{values: r.Values()})
		}
		return e.may(label{absent: true})
	})
}

// find looks for the pool's types that take the pod, for each choice of domains that other pods leave.
func (f *fresh) find() (string, bool) {
	var outcomes []outcome
	for _, it := range f.pool.InstanceTypes {
		for k := range it.Offerings {
			if out := (outcome{it, &it.Offerings[k]}); out.o.Available && f.takes(out) && f.fits(out) {
				outcomes = append(outcomes, out)
			}
		}
	}
	if len(outcomes) == 0 {
		return "", false
	}
	rules := f.c.rules(f.pod)
	if !slices.ContainsFunc(rules, func(r rule) bool { return r.key == corev1.LabelHostname && !r.allows("") }) {
		return f.choose(outcomes, rules, nil)
	}
	return "", false
}

// choice is the domains that a node may come up in, for one key.
type choice struct {
	key     string
	domains []string
}

// choose settles the domains of one key after the other.
func (f *fresh) choose(outcomes []outcome, rules []rule, chosen []choice) (string, bool) {
	k := slices.IndexFunc(rules, func(r rule) bool {
		return r.key != corev1.LabelHostname && !slices.ContainsFunc(chosen, func(c choice) bool { return c.key == r.key })
	})
	if k < 0 {
		if f.enough(outcomes, chosen) {
			out := outcomes[0]
			return fmt.Sprintf("%s in %s as %s of pool %s", out.it.Name, out.o.Zone, out.o.CapacityType, f.pool.NodePool.Name), true
		}
		return "", false
	}
	key := rules[k].key
	allowed, settle, absent := f.allowed(outcomes, rules, key)
	options := [][]string{allowed}
	if settle {
		options = nil
		for _, d := range allowed {
			options = append(options, []string{d})
		}
	}
	for _, domains := range options {
		var kept []outcome
		for _, out := range outcomes {
			l := f.options(out, key)
			if slices.ContainsFunc(l.values, func(v string) bool { return slices.Contains(domains, v) }) || absent && l.absent {
				kept = append(kept, out)
			}
		}
		if len(kept) == 0 {
			continue
		}
		if on, ok := f.choose(kept, rules, append(slices.Clone(chosen), choice{key, domains})); ok {
			return on, true
		}
	}
	return "", false
}

// allowed are the domains of the key that all rules leave; settle tells that the node must be known to be in one of
// them, absent that it may also be outside of all.
func (f *fresh) allowed(outcomes []outcome, rules []rule, key string) (domains []string, settle, absent bool) {
	var l label
	for _, out := range outcomes {
		l.add(f.options(out, key))
	}
	absent = l.absent
	for _, d := range l.values {
		ok := true
		for _, r := range rules {
			ok = ok && (r.key != key || r.allows(d))
		}
		if ok {
			domains = append(domains, d)
		}
	}
	for _, r := range rules {
		if r.key == key {
			settle = settle || r.settle
			absent = absent && r.outside
		}
	}
	return domains, settle, absent
}

// enough tells whether the types left have the values that the pool's minValues demand.
func (f *fresh) enough(outcomes []outcome, chosen []choice) bool {
	if f.c.s.Settings.MinValuesPolicy == snapshot.MinValuesBestEffort {
		return true
	}
	for _, r := range f.pool.NodePool.Spec.Template.Spec.Requirements {
		if r.MinValues == nil {
			continue
		}
		key := f.c.s.Labels.Normalize(r.Key)
		values := map[string]bool{}
		for _, out := range outcomes {
			for _, v := range typeValues(out.it.Requirements, key) {
				all := slices.Concat(f.own[key], f.asked)
				if slices.ContainsFunc(all, func(e expr) bool { return e.key == key && !e.has(v) }) ||
					slices.ContainsFunc(chosen, func(c choice) bool { return c.key == key && !slices.Contains(c.domains, v) }) {
					continue
				}
				values[v] = true
			}
		}
		if len(values) < *r.MinValues {
			return false
		}
	}
	return true
}

func typeValues(set requirement.Set, key string) []string {
	if r := set.Get(key); r.Operator() == corev1.NodeSelectorOpIn {
		return r.Values()
	}
	return nil
}
