package validate

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// kube-scheduler spreads over the nodes that it finds. A plan decides which nodes it will find, so it must not crowd
// pods into some zones where others is available.

// newHost stands for the host name of one more node.
const newHost = "a new node"

// emptierDomain returns a domain that could be launched and has no pods, for a domain that has n, more than maxSkew; empty if
// there is none. A node there would begin with its DaemonSets' pods. The domains are those that exist, and those of
// launches. Each of the constraint's pods in the domain could have gone there: if one could not, it may be the one that
// was placed last. What other rules about pods allowed at the time is unknown.
func (c *check) emptierDomain(sp *spread, d string, n int, domains []string) string {
	if n-c.mostDaemons(sp) <= sp.skew || c.arrivesFull(sp) || c.nominatedTooMany(sp, 1) ||
		slices.ContainsFunc(sp.owners, func(m *scheduledPod) bool { return c.hasOtherRules(sp, m.pod) }) {
		return ""
	}
	free := map[string]bool{}
	for i := range c.s.Pools {
		for _, e := range c.launchableDomains(sp, &c.s.Pools[i]) {
			free[e] = !slices.Contains(domains, e)
		}
	}
	for _, e := range slices.Sorted(maps.Keys(free)) {
		if free[e] && !slices.ContainsFunc(sp.owners, func(m *scheduledPod) bool {
			at, ok := m.at.named(sp.stated).single()
			return ok && at == d && !slices.ContainsFunc(c.s.Pools, func(p snapshot.Pool) bool { return c.launchableIn(sp, m.pod, &p, e) })
		}) {
			return e
		}
	}
	return ""
}

// arrivesFull reports whether the DaemonSets' pods of one more node may be so many, beside the pods that run now, that the first node of
// a domain takes none of the constraint's pods.
func (c *check) arrivesFull(sp *spread) bool {
	daemons, running := c.mostDaemons(sp), map[string]int{}
	if daemons == 0 {
		return false
	}
	for _, m := range c.spreadPods(sp) {
		if d, ok := m.at.named(sp.stated).single(); ok && m.active && !m.placedByPlan && c.counts(sp, m.at) {
			running[d]++
		}
	}
	lowest := math.MaxInt
	for _, d := range c.existingDomains(sp) {
		lowest = min(lowest, running[d])
	}
	return daemons+1-min(lowest, daemons) > sp.skew
}

// hasOtherRules reports whether the pod has required rules about other pods besides the spread, but for spreads over
// hosts.
func (c *check) hasOtherRules(sp *spread, pod *corev1.Pod) bool {
	return len(requiredAffinity(pod))+len(requiredAntiAffinity(pod)) > 0 || c.sharesVolume(pod) ||
		slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(t corev1.TopologySpreadConstraint) bool {
			key := c.s.Labels.Normalize(t.TopologyKey)
			return t.WhenUnsatisfiable == corev1.DoNotSchedule && key != corev1.LabelHostname &&
				(key != sp.key || c.spread(pod, &t).id() != sp.id())
		})
}

// launchableDomains are the domains in which the pool has nodes, available or not. A new host is one only where no
// others exist to compare with: kube-scheduler measures skew over hosts that exist, and these have pods already.
func (c *check) launchableDomains(sp *spread, pool *snapshot.Pool) []string {
	if sp.key != corev1.LabelHostname {
		return c.poolDomains(pool, sp.key)
	}
	if len(c.existingDomains(sp)) == 0 {
		return []string{newHost}
	}
	return nil
}

// launchableIn reports whether the pool could launch one more node in the domain, beside those of the plan, that takes
// the pod under all of its other rules.
func (c *check) launchableIn(sp *spread, pod *corev1.Pod, pool *snapshot.Pool, domain string) bool {
	if !c.eligible(pod) || pool.NodePool.Spec.Replicas != nil || !tolerated(pod, pool.NodePool.Spec.Template.Spec.Taints) ||
		c.newNodesLack(pool, pod) != "" {
		return false
	}
	own := c.demandsOfNodes(pool)
	for _, alternative := range c.alternatives(pod) {
		f := &freshNodeSearch{c: c, pod: pod, pool: pool, poolDemands: own, demands: alternative, limitsLeft: c.remainingLimits(pool)}
		if f.findIn(sp, domain) {
			return true
		}
	}
	return false
}

// findIn reports whether a type of the pool takes the pod in the domain, whatever the spread itself states. The domain's pods may keep it
// out by their own anti-affinity over the same key.
func (f *freshNodeSearch) findIn(sp *spread, domain string) bool {
	var outcomes []outcome
	for _, it := range f.pool.InstanceTypes {
		for k := range it.Offerings {
			out := outcome{it, &it.Offerings[k]}
			if out.o.Available && (domain == newHost || slices.Contains(f.options(out, sp.key).values, domain)) && f.compatible(out) && f.fits(out) {
				outcomes = append(outcomes, out)
			}
		}
	}
	rules := f.c.topologyRules(f.pod, f.c.affinitySetOf(f.pod))
	if slices.ContainsFunc(rules, func(r topologyRule) bool {
		return r.key == sp.key && r.mayLackDomain && !r.allows(nameless(domain)) // another pod's anti-affinity keeps the pod out
	}) {
		return false
	}
	rules = slices.DeleteFunc(rules, func(r topologyRule) bool { return r.key == sp.key })
	if len(outcomes) == 0 || slices.ContainsFunc(rules, func(r topologyRule) bool {
		return r.key == corev1.LabelHostname && !r.allows("")
	}) {
		return false
	}
	_, ok := f.choose(outcomes, rules, nil)
	return ok
}

// nameless is the domain as rules name it: a new host has no name there.
func nameless(domain string) string {
	if domain == newHost {
		return ""
	}
	return domain
}
