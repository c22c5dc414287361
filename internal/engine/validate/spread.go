package validate

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// spread is one hard topology spread constraint, with the nodes that count for it; equal ones of many pods are one.
type spread struct {
	*selection
	skew, minDomains int
	honorAffinity    bool
	honorTaints      bool
	pod              *corev1.Pod // one that states it
	owners           []*scheduledPod
}

func (c *check) spread(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) *spread {
	honors := func(p *corev1.NodeInclusionPolicy, otherwise bool) bool {
		if p == nil {
			return otherwise
		}
		return *p == corev1.NodeInclusionPolicyHonor
	}
	sp := &spread{
		selection: c.spreadSelection(pod, t), skew: int(t.MaxSkew), minDomains: 1, pod: pod,
		honorAffinity: honors(t.NodeAffinityPolicy, true), honorTaints: honors(t.NodeTaintsPolicy, false),
	}
	if t.MinDomains != nil {
		sp.minDomains = int(*t.MinDomains)
	}
	return sp
}

// id identifies the constraint by what it counts.
func (sp *spread) id() string {
	out := fmt.Sprint(sp.selection.id(), sp.skew, sp.minDomains, sp.honorAffinity, sp.honorTaints)
	note := func(v any) {
		if b, err := json.Marshal(v); err == nil {
			out += string(b)
		}
	}
	if sp.honorAffinity {
		note(sp.pod.Spec.NodeSelector)
		if a := sp.pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			note(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	if sp.honorTaints {
		note(sp.pod.Spec.Tolerations)
	}
	return out
}

// topologySpread: the domain of a pod has at most maxSkew pods more than the emptiest domain that the pod could use.
//
// It counts pods that were there before and those with the same constraint: the last of these to be placed found all
// the others there. Other pods that are counted may have been placed after it.
func (c *check) topologySpread() {
	index := map[string]*spread{}
	var all []*spread
	for _, m := range c.pods.all {
		if !m.placedByPlan {
			continue
		}
		for _, t := range m.pod.Spec.TopologySpreadConstraints {
			if t.WhenUnsatisfiable != corev1.DoNotSchedule {
				continue
			}
			sp := c.spread(m.pod, &t)
			if known := index[sp.id()]; known != nil {
				sp = known
			} else {
				index[sp.id()] = sp
				all = append(all, sp)
			}
			sp.owners = append(sp.owners, m)
		}
	}
	for _, sp := range all {
		c.skewWithinLimit(sp)
	}
}

func (c *check) skewWithinLimit(sp *spread) {
	stated := map[*scheduledPod]bool{}
	for _, m := range sp.owners {
		stated[m] = true
	}
	counts, surely := map[string]int{}, map[string]int{}
	for _, m := range c.pods.selected(sp.selection) {
		d, ok := m.at.label(sp.key).single()
		if !ok || !m.active || !c.counts(sp, m.at) {
			continue
		}
		counts[d]++
		if !m.placedByPlan || stated[m] {
			surely[d]++
		}
	}
	floor := c.floor(sp, counts, hostsOf(sp.owners))
	reported := map[string]bool{}
	for _, m := range sp.owners {
		d, ok := m.at.label(sp.key).single()
		switch {
		case !ok:
			c.failAt([]*host{m.at}, "pod %s is spread over %s, but its node may come up in %v", name(m.pod), sp.key, m.at.label(sp.key).values)
		case surely[d]-floor > sp.skew && !reported[d]:
			reported[d] = true
			c.failAt(
				atDomain(sp, d),
				"pod %s: %s %s has %d pods, another only %d, maxSkew is %d",
				name(m.pod),
				sp.key,
				d,
				surely[d],
				floor,
				sp.skew,
			)
		}
	}
}

// SpreadHoldsLast reports whether kube-scheduler could schedule the pod after all others of the plan, as far as its hard
// topology spread is concerned. Check cannot know in which order pods are scheduled. Who does know counts all pods that
// came before, since PodTopologySpread measures skew against each pod that has a node at that moment.
func SpreadHoldsLast(s *snapshot.Snapshot, p schedule.Plan, pod *corev1.Pod) bool {
	c := newCheck(s, p)
	at := slices.IndexFunc(c.pods.all, func(m *scheduledPod) bool { return m.pod == pod })
	return at >= 0 && !slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(t corev1.TopologySpreadConstraint) bool {
		if t.WhenUnsatisfiable != corev1.DoNotSchedule {
			return false
		}
		sp, counts := c.spread(pod, &t), map[string]int{}
		for _, m := range c.pods.selected(sp.selection) {
			if d, ok := m.at.label(sp.key).single(); ok && m.active && m.pod != pod && c.counts(sp, m.at) {
				counts[d]++
			}
		}
		d, ok := c.pods.all[at].at.label(sp.key).single()
		return !ok || counts[d]+self(sp, pod)-c.floor(sp, counts, c.hosts) > sp.skew
	})
}

// self is one if the constraint counts the pod that states it.
func self(sp *spread, pod *corev1.Pod) int {
	if sp.has(pod) {
		return 1
	}
	return 0
}

// atDomain are the hosts of the constraint's owners in the domain.
func atDomain(sp *spread, d string) []*host {
	var out []*host
	for _, m := range sp.owners {
		if v, ok := m.at.label(sp.key).single(); ok && v == d {
			out = append(out, m.at)
		}
	}
	return out
}

// counts reports whether pods on the host count for the constraint.
func (c *check) counts(sp *spread, at *host) bool {
	if sp.honorTaints && !tolerated(sp.pod, at.taints) {
		return false
	}
	return !sp.honorAffinity || at.mightSatisfy(c.labelDemandsOf(sp.pod))
}

// floor is the lowest number of pods in any domain that exists or could be launched and that the pod can use; on
// hosts it is zero, since another can always be launched. Of labels that pools leave open, the launches among the hosts
// give the values.
func (c *check) floor(sp *spread, counts map[string]int, among []*host) int {
	if sp.key == corev1.LabelHostname {
		return 0
	}
	domains := c.domains(sp)
	for _, d := range c.launchedDomains(sp, among) {
		if counts[d] > 0 && !slices.Contains(domains, d) {
			domains = append(domains, d)
		}
	}
	if len(domains) == 0 || len(domains) < sp.minDomains {
		return 0
	}
	lowest := counts[domains[0]]
	for _, d := range domains[1:] {
		lowest = min(lowest, counts[d])
	}
	return lowest
}

// launchedDomains are the values of the key on the launches among the hosts. kube-scheduler counts the domains of nodes
// that exist, and these nodes do once their pods are scheduled.
//
// Of a finished plan, the launches that hold owners of the constraint count, and no others. kube-scheduler measures skew
// when it schedules a pod, and never again: PodTopologySpread.calPreFilterState goes through the nodes of that moment. A
// value that no pool lists and no node has, such as the one that a claim makes up for "team Exists", is no domain before
// the launched node registers. If no owner is planned there, all owners can be scheduled before, and then the domain did
// not exist for any of them. The pods of such a launch count only where they are, like all pods that may come later.
func (c *check) launchedDomains(sp *spread, among []*host) []string {
	var out []string
	for _, pl := range among {
		if d, ok := pl.label(sp.key).single(); ok && pl.launch != nil && c.counts(sp, pl) {
			out = append(out, d)
		}
	}
	return out
}

// hostsOf are the hosts of the pods.
func hostsOf(pods []*scheduledPod) []*host {
	out := make([]*host, len(pods))
	for i, m := range pods {
		out[i] = m.at
	}
	return out
}

// domains are the values of the key that count for the constraint, sorted.
func (c *check) domains(sp *spread) []string {
	w := c.labelDemandsOf(sp.pod)
	var out []string
	for _, pl := range c.hosts {
		if pl.node == nil || pl.node.Deleting || !c.counts(sp, pl) {
			continue
		}
		if d, ok := pl.label(sp.key).single(); ok {
			out = append(out, d)
		}
	}
	for i := range c.s.Pools {
		pool := &c.s.Pools[i]
		if sp.honorTaints && !tolerated(sp.pod, pool.NodePool.Spec.Template.Spec.Taints) || pool.NodePool.Spec.Replicas != nil ||
			c.exhausted(pool) {
			continue
		}
		out = append(out, c.poolDomains(pool, sp.key)...)
	}
	out = slices.DeleteFunc(out, func(d string) bool { return sp.honorAffinity && !w.reaches(sp.key, d) })
	slices.Sort(out)
	return slices.Compact(out)
}

// exhausted reports whether the pool's limits allowed none of its types even before the plan: kube-scheduler counts
// nodes, and the pool will have no more of them.
func (c *check) exhausted(pool *snapshot.Pool) bool {
	demands := c.poolDemands(pool)
	for _, it := range pool.InstanceTypes {
		for k := range it.Offerings {
			out := outcome{it, &it.Offerings[k]}
			fits := offeredBy(it.Requirements, demands) && out.sold() && out.offeredBy(demands)
			for r, limit := range pool.NodePool.Spec.Limits {
				q := out.countsAgainstLimit(r).DeepCopy()
				q.Add(pool.Used[r])
				fits = fits && q.Cmp(quantity.Clamp(limit)) <= 0
			}
			if fits {
				return false
			}
		}
	}
	return true
}

// poolDomains are the values of key that nodes of the pool may have: those of its offerings, or those that it lists
// itself of a label that no type has.
//
// kube-scheduler measures skew over the domains of nodes that exist: PodTopologySpread lists the nodes, skips those that
// the policies of the constraint exclude, and takes the lowest count among the values that the others have
// (calPreFilterState, minMatchNum). A value that no offering of the pool has under all its requirements is never one of
// them, even if the pool lists it, or a type has it as another capacity type. That an offering is unavailable now does not
// exclude it: nodes of it may come up, or be there already.
func (c *check) poolDomains(pool *snapshot.Pool, key string) []string {
	demands := c.poolDemands(pool)
	demands[pool.NodeClassLabel[0]] = append(
		demands[pool.NodeClassLabel[0]],
		expr{op: corev1.NodeSelectorOpIn, values: []string{pool.NodeClassLabel[1]}},
	)
	var values []string
	defined := false
	for _, it := range pool.InstanceTypes {
		if !offeredBy(it.Requirements, demands) {
			continue
		}
		defined = defined || it.Requirements.Defines(key)
		for k := range it.Offerings {
			out := outcome{it, &it.Offerings[k]}
			if l, _ := out.label(key); out.sold() && out.offeredBy(demands) {
				values = append(values, l.values...)
			}
		}
	}
	for _, e := range demands[key] {
		if !defined && e.op == corev1.NodeSelectorOpIn {
			values = append(values, e.values...)
		}
	}
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		return slices.ContainsFunc(demands[key], func(e expr) bool { return !e.has(v) })
	})
}

// offeredBy reports whether a pool allows the labels of the offering, which are of one value each.
func (out outcome) offeredBy(demands map[string][]expr) bool {
	for key, list := range demands {
		if l, ok := out.ofOffering(key); ok && slices.ContainsFunc(list, func(e expr) bool { return !e.may(l) }) {
			return false
		}
	}
	return true
}

// offeredBy reports whether a pool allows a type's labels; a type may have no value of any.
func offeredBy(labels requirement.Set, demands map[string][]expr) bool {
	for key, list := range demands {
		if !labels.Defines(key) || key == karpv1.LabelNodePool {
			continue
		}
		r := labels.Get(key)
		all := func(ok func(*expr) bool) bool {
			return !slices.ContainsFunc(list, func(e expr) bool { return !ok(&e) })
		}
		switch r.Operator() {
		case corev1.NodeSelectorOpDoesNotExist:
			if !all((*expr).lacks) {
				return false
			}
		case corev1.NodeSelectorOpIn:
			if !slices.ContainsFunc(r.Values(), func(v string) bool { return all(func(e *expr) bool { return e.has(v) }) }) {
				return false
			}
		}
	}
	return true
}
