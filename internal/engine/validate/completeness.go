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
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Choices returns, joined, what the plan obviously could have done and did not: it must schedule every pod that could
// have a fresh node for itself after the plan, and launch nothing from a pool if one of higher weight takes all pods
// of the node alone. It tries every pool, type, offering and alternative, which is exponential in the number of
// topology keys: it is for small worlds.
func Choices(s *snapshot.Snapshot, p schedule.Plan) error {
	c := newCheck(s, p)
	for _, r := range p.Rejected {
		if c.sharesVolume(r.Pod) || c.waitsForGroup(r.Pod) {
			continue // the other pod's volume decides, or the other pods of its group
		}
		for i := range s.Pools {
			if on, ok := c.freshNode(r.Pod, &s.Pools[i], ignoreSoftTaints); ok {
				c.fail("pod %s is rejected (%s), though it fits alone on %s", name(r.Pod), wording.Reason(r.Reasons[0]), on)
				break
			}
		}
	}
	for _, pl := range c.hosts {
		if pl.launch != nil {
			c.weights(pl)
		}
	}
	return join(c.found)
}

// weights: a launch uses a pool only if every pool of higher weight rejects one of the pods. Pods that depend on
// other pods or on preferences are skipped, since what they found when they were scheduled is unknown.
func (c *check) weights(pl *host) {
	if slices.ContainsFunc(pl.pods, func(pod *corev1.Pod) bool { return !c.independent(pod) }) {
		return
	}
	for i := range c.s.Pools {
		pool := &c.s.Pools[i]
		if weightOf(pool.NodePool) <= weightOf(pl.launch.Pool) || len(pool.NodePool.Spec.Limits) > 0 && c.launchesFrom(pool) {
			continue // what limits had left when the pods were scheduled is unknown
		}
		if !slices.ContainsFunc(pl.pods, func(pod *corev1.Pod) bool {
			_, ok := c.freshNode(pod, pool, respectSoftTaints)
			return !ok
		}) {
			c.failAt([]*host{pl}, "%s, though pool %s of higher weight takes each of its pods", pl.name, pool.NodePool.Name)
		}
	}
}

func (c *check) launchesFrom(pool *snapshot.Pool) bool {
	return slices.ContainsFunc(c.p.Launches, func(l schedule.Launch) bool { return l.Pool.Name == pool.NodePool.Name })
}

func weightOf(pool *karpv1.NodePool) int32 {
	if pool.Spec.Weight == nil {
		return 0
	}
	return *pool.Spec.Weight
}

// independent reports whether the pod has no rules about other pods and no preferences, and no other pod has rules
// about it.
func (c *check) independent(pod *corev1.Pod) bool {
	w := c.labelDemandsOf(pod)
	if len(pod.Spec.TopologySpreadConstraints) > 0 || len(w.terms) > 1 || c.sharesVolume(pod) {
		return false
	}
	if a := pod.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil ||
		a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0) {
		return false
	}
	return !slices.ContainsFunc(c.pods.all, func(m *scheduledPod) bool { return c.repels(m, pod) })
}

func (c *check) repels(m *scheduledPod, pod *corev1.Pod) bool {
	return slices.ContainsFunc(
		requiredAntiAffinity(m.pod),
		func(t corev1.PodAffinityTerm) bool { return c.affinitySelection(m.pod, &t).has(pod) },
	)
}

// softTaints is whether taints of effect PreferNoSchedule exclude pods.
type softTaints int

const (
	ignoreSoftTaints  softTaints = iota // only hard taints do
	respectSoftTaints                   // all taints do
)

// toleratesAll is tolerated, with soft taints counted too: a preference.
func toleratesAll(pod *corev1.Pod, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return covers(&o, &t) })
	})
}

// freshNode finds a node of the pool that the pod could have for itself after the plan.
func (c *check) freshNode(pod *corev1.Pod, pool *snapshot.Pool, soft softTaints) (string, bool) {
	taints := pool.NodePool.Spec.Template.Spec.Taints
	if !c.eligible(pod) || pool.NodePool.Spec.Replicas != nil || !tolerated(pod, taints) ||
		soft == respectSoftTaints && !toleratesAll(pod, taints) {
		return "", false
	}
	if c.newNodesLack(pool, pod) != "" {
		return "", false
	}
	if _, err := c.s.Labels.FromAPI(pool.NodePool.Spec.Template.Spec.Requirements); err != nil {
		return "", false
	}
	own := c.demandsOfNodes(pool)
	for _, alternative := range c.alternatives(pod) {
		f := &freshNodeSearch{c: c, pod: pod, pool: pool, poolDemands: own, demands: alternative, limitsLeft: c.remainingLimits(pool)}
		if on, ok := f.find(); ok {
			return on, true
		}
	}
	return "", false
}

// demandsOfNodes returns what the pool demands of nodes, its node class included.
func (c *check) demandsOfNodes(pool *snapshot.Pool) map[string][]expr {
	own := c.poolDemands(pool)
	if key := pool.NodeClassLabel[0]; key != "" {
		own[key] = append(own[key], expr{key: key, op: corev1.NodeSelectorOpIn, values: []string{pool.NodeClassLabel[1]}})
	}
	return own
}

// eligible reports whether the pod is one that provisioning considers at all.
func (c *check) eligible(pod *corev1.Pod) bool {
	w := c.labelDemandsOf(pod)
	if usesResourceClaims(pod) || usesExtended(c.s, pod) || len(c.localClaims(pod)) > 0 || w.err != nil || w.affinity && len(w.terms) == 0 {
		return false
	}
	// A label with a closed set of values has none else, and a node that a pool launches belongs to it.
	impossible := func(list []expr) bool {
		return slices.ContainsFunc(list, func(e expr) bool {
			known := c.s.Labels.KnownValues[e.key]
			return e.op == corev1.NodeSelectorOpIn && len(known) > 0 && !slices.ContainsFunc(known, e.has) ||
				e.key == karpv1.LabelNodePool && e.op == corev1.NodeSelectorOpDoesNotExist
		})
	}
	return !impossible(w.selector) && (!w.affinity || slices.ContainsFunc(w.terms, func(t []expr) bool { return !impossible(t) }))
}

// alternatives are the ways to satisfy the label demands of the pod and its volumes: one term of each.
func (c *check) alternatives(pod *corev1.Pod) [][]expr {
	w := c.labelDemandsOf(pod)
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
		if m.somewhere {
			choose(m.terms)
		}
	}
	return out
}

// freshNodeSearch is the search for a node of one pool for one pod.
type freshNodeSearch struct {
	c    *check
	pod  *corev1.Pod
	pool *snapshot.Pool
	// own are the pool's demands on labels, requested the pod's.
	poolDemands map[string][]expr
	demands     []expr
	limitsLeft  amounts
}

// options are the values that a label of the outcome may have under all demands.
func (f *freshNodeSearch) options(out outcome, key string) label {
	var asked []expr
	for _, e := range f.demands {
		if e.key == key {
			asked = append(asked, e)
		}
	}
	all := slices.Concat(f.poolDemands[key], asked)
	ok := func(v string) bool { return !slices.ContainsFunc(all, func(e expr) bool { return !e.has(v) }) }
	l, said := out.label(key)
	joined, joins := f.c.joinLabel(key)
	switch {
	case said:
	case joins && len(f.poolDemands[key]) == 0:
		// A value that nobody knows excludes anyone who requires one.
		if l = joined; l.open && !slices.ContainsFunc(asked, func(e expr) bool { return !e.holds(joined) }) {
			l.values = []string{"any"}
		}
	case len(f.poolDemands[key]) > 0 || f.c.s.Labels.IsWellKnown(key):
		l = label{values: examples(all), absent: true}
	default:
		l = label{absent: true}
	}
	l.values = slices.DeleteFunc(slices.Clone(l.values), func(v string) bool { return !ok(v) })
	l.absent = l.absent && !slices.ContainsFunc(all, func(e expr) bool { return !e.lacks() })
	return l
}

// examples are values that may satisfy the demands, if any value does.
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

// compatible reports whether the pool may launch the outcome for the pod, apart from other pods.
func (f *freshNodeSearch) compatible(out outcome) bool {
	keys := map[string]bool{}
	for key := range f.poolDemands {
		keys[key] = true
	}
	for _, e := range f.demands {
		keys[e.key] = true
	}
	delete(keys, corev1.LabelHostname)
	delete(keys, nodeName)
	for key := range keys {
		if l := f.options(out, key); len(l.values) == 0 && !l.absent {
			return false
		}
	}
	// No pod can require the name of a new node.
	return out.o.ReservationID == "" && !slices.ContainsFunc(f.demands, func(e expr) bool {
		return e.key == nodeName && e.op == corev1.NodeSelectorOpIn ||
			e.key == corev1.LabelHostname && e.op != corev1.NodeSelectorOpNotIn && e.op != corev1.NodeSelectorOpExists
	})
}

// fits reports whether limits allow the outcome, and it holds the pod in addition to all daemons that might run on
// its type.
func (f *freshNodeSearch) fits(out outcome) bool {
	it := out.it
	if !f.driversOn(it) {
		return false
	}
	for r, left := range f.limitsLeft {
		if q := out.countsAgainstLimit(r); q.Sign() > 0 && q.Cmp(left) > 0 {
			return false
		}
	}
	total, attached := amounts{}, map[string]int{} // volumes by driver; a claim that daemons share counts for each
	total.add(f.c.compared(f.pod, false))
	var daemons []*corev1.Pod
	own := attachedClaims{}
	own.add(f.c.mounts(f.pod))
	for i := range f.c.s.DaemonSets {
		d := f.c.s.DaemonSets[i].Pod
		if !f.c.daemon(d) || !tolerated(d, f.pool.NodePool.Spec.Template.Spec.Taints) || !f.mightRun(d, it) {
			continue
		}
		daemons = append(daemons, d)
		if _, found := portConflict(ports(f.pod), ports(d)); found {
			return false
		}
		mounted := attachedClaims{}
		mounted.add(f.c.daemonMounts(d))
		for driver, claims := range mounted {
			attached[driver] += len(claims)
		}
	}
	total.add(f.c.daemonRequests(daemons).list())
	for driver, claims := range own {
		if limit, known := it.VolumeLimits[driver]; known && len(claims)+attached[driver] > limit {
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

// mightRun reports whether a daemon's pod may run on some node of the pool, and on some of the type.
func (f *freshNodeSearch) mightRun(d *corev1.Pod, it *catalog.InstanceType) bool {
	return f.c.labelDemandsOf(d).admits(func(e *expr) bool {
		own := f.poolDemands[e.key]
		switch joined, ok := f.c.joinLabel(e.key); {
		case ok && len(own) == 0:
			return f.c.daemonHolds(e, joined)
		case slices.Contains(f.c.s.Labels.MaySetOnJoin, e.key):
			return true
		case e.key == corev1.LabelHostname:
			return e.op == corev1.NodeSelectorOpExists || e.op == corev1.NodeSelectorOpNotIn
		}
		byPool := label{absent: len(own) == 0}
		if len(own) > 0 || f.c.s.Labels.IsWellKnown(e.key) {
			byPool = label{values: examples(append(slices.Clone(own), *e)), absent: true}
		}
		byPool.values = slices.DeleteFunc(
			byPool.values,
			func(v string) bool { return slices.ContainsFunc(own, func(o expr) bool { return !o.has(v) }) },
		)
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

// find searches for types of the pool that take the pod, for each choice of domains that other pods allow.
func (f *freshNodeSearch) find() (string, bool) {
	var outcomes []outcome
	for _, it := range f.pool.InstanceTypes {
		for k := range it.Offerings {
			if out := (outcome{it, &it.Offerings[k]}); out.o.Available && f.compatible(out) && f.fits(out) {
				outcomes = append(outcomes, out)
			}
		}
	}
	outcomes = f.withoutRepelling(outcomes)
	if len(outcomes) == 0 {
		return "", false
	}
	if s := f.c.affinitySetOf(f.pod); s != nil {
		if following := f.withFollowed(outcomes, s); len(following) > 0 {
			if on, ok := f.findFor(following, f.c.topologyRules(f.pod, nil)); ok {
				return on, true
			}
		}
	}
	return f.findFor(outcomes, f.c.topologyRules(f.pod, f.c.affinitySetOf(f.pod)))
}

// findFor is find among outcomes, under rules about other pods.
func (f *freshNodeSearch) findFor(outcomes []outcome, rules []topologyRule) (string, bool) {
	if !slices.ContainsFunc(rules, func(r topologyRule) bool { return r.key == corev1.LabelHostname && !r.allows("") }) {
		return f.choose(outcomes, rules, nil)
	}
	return "", false
}

// domainChoice is the domains that a node may be in, for one key.
type domainChoice struct {
	key     string
	domains []string
}

// choose fixes the domains of one key after the other, by backtracking.
func (f *freshNodeSearch) choose(outcomes []outcome, rules []topologyRule, chosen []domainChoice) (string, bool) {
	k := slices.IndexFunc(rules, func(r topologyRule) bool {
		return r.key != corev1.LabelHostname && !slices.ContainsFunc(chosen, func(c domainChoice) bool { return c.key == r.key })
	})
	if k < 0 {
		if f.minValuesSatisfied(outcomes, chosen) {
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
		if on, ok := f.choose(kept, rules, append(slices.Clone(chosen), domainChoice{key, domains})); ok {
			return on, true
		}
	}
	return "", false
}

// allowed are the domains of the key that all rules allow; needsDomain means that the node must be in a known one of
// them, absent that it may also be in none.
func (f *freshNodeSearch) allowed(outcomes []outcome, rules []topologyRule, key string) (domains []string, settle, absent bool) {
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
			settle = settle || r.needsDomain
			absent = absent && r.mayLackDomain
		}
	}
	return domains, settle, absent
}

// minValuesSatisfied reports whether the remaining types have the values that the pool's minValues require. It is false,
// since it does not know, where offerings of a type hold other amounts than the type. A claim must exclude those that hold
// too little, and it excludes labels: if one type holds the pod in z1 on demand only, and another in z2 as spot only, a claim
// of both would also allow z1 as spot and z2 on demand.
func (f *freshNodeSearch) minValuesSatisfied(outcomes []outcome, chosen []domainChoice) bool {
	if f.c.s.Settings.MinValuesPolicy == snapshot.MinValuesBestEffort {
		return true
	}
	for _, r := range f.pool.NodePool.Spec.Template.Spec.Requirements {
		if r.MinValues == nil {
			continue
		}
		if slices.ContainsFunc(outcomes, outcome.differs) {
			return false
		}
		key := f.c.s.Labels.Normalize(r.Key)
		values := map[string]bool{}
		for _, out := range outcomes {
			for _, v := range f.choices(outcomes, out, key) {
				all := slices.Concat(f.poolDemands[key], f.demands)
				if slices.ContainsFunc(all, func(e expr) bool { return e.key == key && !e.has(v) }) ||
					slices.ContainsFunc(chosen, func(c domainChoice) bool { return c.key == key && !slices.Contains(c.domains, v) }) {
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

// differs reports whether some offering of the outcome's type holds other amounts than the type.
func (out outcome) differs() bool {
	return slices.ContainsFunc(out.it.Offerings, func(o catalog.Offering) bool { return len(o.Allocatable)+len(o.Capacity) > 0 })
}

// choices are the values that the outcome's type has of a key: what minValues counts. A claim outside reservations
// excludes their capacity type where a reservation of any of its types has instances left.
func (f *freshNodeSearch) choices(all []outcome, out outcome, key string) []string {
	reserved := func(o catalog.Offering) bool { return o.ReservationID != "" && o.Available }
	return slices.DeleteFunc(slices.Clone(typeValues(out.it.Requirements, key)), func(v string) bool {
		return key == karpv1.LabelCapacityType && v == karpv1.CapacityTypeReserved &&
			slices.ContainsFunc(all, func(other outcome) bool { return slices.ContainsFunc(other.it.Offerings, reserved) })
	})
}

func typeValues(set requirement.Set, key string) []string {
	if r := set.Get(key); r.Operator() == corev1.NodeSelectorOpIn {
		return r.Values()
	}
	return nil
}
