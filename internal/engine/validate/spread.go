package validate

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// spread is one hard topology spread constraint, with which nodes count for it; equal ones of many pods are one.
type spread struct {
	*selection
	skew, minDomains int
	honourAffinity   bool
	honourTaints     bool
	pod              *corev1.Pod // one that states it
	who              []*member
}

func (c *check) spread(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) *spread {
	honours := func(p *corev1.NodeInclusionPolicy, otherwise bool) bool {
		if p == nil {
			return otherwise
		}
		return *p == corev1.NodeInclusionPolicyHonor
	}
	sp := &spread{
		selection: c.spreadOver(pod, t), skew: int(t.MaxSkew), minDomains: 1, pod: pod,
		honourAffinity: honours(t.NodeAffinityPolicy, true), honourTaints: honours(t.NodeTaintsPolicy, false),
	}
	if t.MinDomains != nil {
		sp.minDomains = int(*t.MinDomains)
	}
	return sp
}

// id tells constraints apart that measure differently.
func (sp *spread) id() string {
	out := fmt.Sprint(sp.selection.id(), sp.skew, sp.minDomains, sp.honourAffinity, sp.honourTaints)
	note := func(v any) {
		if b, err := json.Marshal(v); err == nil {
			out += string(b)
		}
	}
	if sp.honourAffinity {
		note(sp.pod.Spec.NodeSelector)
		if a := sp.pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			note(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	if sp.honourTaints {
		note(sp.pod.Spec.Tolerations)
	}
	return out
}

// spreads: the domain that a pod was put in has no more than maxSkew pods above the emptiest that it could use.
//
// Counted in it are pods that were there before and those that state the same constraint: the last of these to come
// found all the others there. Pods that are counted but do not mind may have come after it.
func (c *check) spreads() {
	index := map[string]*spread{}
	var all []*spread
	for _, m := range c.crowd.all {
		if !m.fresh {
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
			sp.who = append(sp.who, m)
		}
	}
	for _, sp := range all {
		c.even(sp)
	}
}

func (c *check) even(sp *spread) {
	stated := map[*member]bool{}
	for _, m := range sp.who {
		stated[m] = true
	}
	counts, surely := map[string]int{}, map[string]int{}
	for _, m := range c.crowd.among(sp.selection) {
		d, ok := m.at.label(sp.key).single()
		if !ok || !m.active || !c.counts(sp, m.at) {
			continue
		}
		counts[d]++
		if !m.fresh || stated[m] {
			surely[d]++
		}
	}
	floor := c.floor(sp, counts)
	told := map[string]bool{}
	for _, m := range sp.who {
		d, ok := m.at.label(sp.key).single()
		switch {
		case !ok:
			c.failAt([]*place{m.at}, "pod %s is spread over %s, but its node may come up in %v", name(m.pod), sp.key, m.at.label(sp.key).values)
		case surely[d]-floor > sp.skew && !told[d]:
			told[d] = true
			c.failAt(atDomain(sp, d), "pod %s: %s %s has %d pods, another only %d, maxSkew is %d", name(m.pod), sp.key, d, surely[d], floor, sp.skew)
		}
	}
}

// atDomain are the places of those in the domain who state the constraint.
func atDomain(sp *spread, d string) []*place {
	var out []*place
	for _, m := range sp.who {
		if v, ok := m.at.label(sp.key).single(); ok && v == d {
			out = append(out, m.at)
		}
	}
	return out
}

// counts tells whether pods in the place count for the constraint.
func (c *check) counts(sp *spread, at *place) bool {
	if sp.honourTaints && !toleratesAll(sp.pod, at.taints) {
		return false
	}
	return !sp.honourAffinity || at.mightSatisfy(c.wantsOf(sp.pod))
}

// toleratesAll is tolerated with soft taints counted, too: that is how nodes are told apart for spreading.
func toleratesAll(pod *corev1.Pod, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return covers(&o, &t) })
	})
}

// floor is the least number of pods in any domain that exists or could be bought and that the pod can use; on hosts it is
// zero, since another can always be had.
func (c *check) floor(sp *spread, counts map[string]int) int {
	if sp.key == corev1.LabelHostname {
		return 0
	}
	domains := c.domains(sp)
	if len(domains) == 0 || len(domains) < sp.minDomains {
		return 0
	}
	lowest := counts[domains[0]]
	for _, d := range domains[1:] {
		lowest = min(lowest, counts[d])
	}
	return lowest
}

// domains are the values of the key that count for the constraint, sorted.
func (c *check) domains(sp *spread) []string {
	w := c.wantsOf(sp.pod)
	var out []string
	for _, pl := range c.places {
		if pl.node == nil || pl.node.Deleting || !c.counts(sp, pl) {
			continue
		}
		if d, ok := pl.label(sp.key).single(); ok {
			out = append(out, d)
		}
	}
	for i := range c.s.Pools {
		pool := &c.s.Pools[i]
		if sp.honourTaints && !toleratesAll(sp.pod, pool.NodePool.Spec.Template.Spec.Taints) || pool.NodePool.Spec.Replicas != nil || c.exhausted(pool) {
			continue
		}
		out = append(out, c.poolDomains(pool, sp.key)...)
	}
	out = slices.DeleteFunc(out, func(d string) bool { return sp.honourAffinity && !w.reaches(sp.key, d) })
	slices.Sort(out)
	return slices.Compact(out)
}

// exhausted tells whether the pool's limits had no room for any of its types even before the plan: the scheduler counts
// nodes, and the pool will have no more of them.
func (c *check) exhausted(pool *snapshot.Pool) bool {
	demands := c.poolDemands(pool)
	for _, it := range pool.InstanceTypes {
		for k := range it.Offerings {
			out := outcome{it, &it.Offerings[k]}
			fits := offeredBy(it.Requirements, demands)
			for r, limit := range pool.NodePool.Spec.Limits {
				q := out.weighs(r).DeepCopy()
				q.Add(pool.Used[r])
				fits = fits && q.Cmp(quantity.Bounded(limit)) <= 0
			}
			if fits {
				return false
			}
		}
	}
	return true
}

// poolDomains are the values of key that nodes of the pool may have: those that it lists itself, or those of its types.
func (c *check) poolDomains(pool *snapshot.Pool, key string) []string {
	demands := c.poolDemands(pool)
	demands[pool.NodeClassLabel[0]] = append(demands[pool.NodeClassLabel[0]], expr{op: corev1.NodeSelectorOpIn, values: []string{pool.NodeClassLabel[1]}})
	listed := false
	var values []string
	for _, e := range demands[key] {
		if e.op == corev1.NodeSelectorOpIn {
			listed = true
			values = append(values, e.values...)
		}
	}
	if !listed {
		for _, it := range pool.InstanceTypes {
			if r := it.Requirements.Get(key); offeredBy(it.Requirements, demands) && r.Operator() == corev1.NodeSelectorOpIn {
				values = append(values, r.Values()...)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		return slices.ContainsFunc(demands[key], func(e expr) bool { return !e.has(v) })
	})
}

// offeredBy tells whether a type's labels are among those that a pool allows; a type may be silent about any.
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
