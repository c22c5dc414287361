package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// topologyRule is which domains of a key one topology constraint allows, given all other pods.
type topologyRule struct {
	key    string
	allows func(domain string) bool // a new host has the name ""
	// needsDomain is true if the node must be in a known domain, mayLackDomain if it may be in none.
	needsDomain, mayLackDomain bool
}

// topologyRules are the hard topology constraints of a pod. Near is its required affinity; nil if that is satisfied.
func (c *check) topologyRules(pod *corev1.Pod, near *affinitySet) []topologyRule {
	var out []topologyRule
	for _, t := range pod.Spec.TopologySpreadConstraints {
		if t.WhenUnsatisfiable == corev1.DoNotSchedule {
			out = append(out, c.spreadRule(pod, &t))
		}
	}
	if near != nil {
		out = append(out, c.affinityRules(pod, near)...)
	}
	repelling := func(list []*scheduledPod) []*scheduledPod {
		return slices.DeleteFunc(list, func(m *scheduledPod) bool { return !m.repels })
	}
	for _, t := range requiredAntiAffinity(pod) {
		s := c.affinitySelection(pod, &t)
		out = append(out, antiAffinityRule(s.key, repelling(c.selected(s))))
	}
	for _, m := range repelling(c.neighbors()) {
		for _, t := range requiredAntiAffinity(m.pod) {
			if s := c.affinitySelection(m.pod, &t); s.has(pod) {
				out = append(out, antiAffinityRule(s.key, []*scheduledPod{m}))
			}
		}
	}
	return out
}

func (c *check) spreadRule(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) topologyRule {
	sp := c.spread(pod, t)
	counts, surely := map[string]int{}, map[string]int{}
	for _, m := range c.spreadPods(sp) {
		if d, ok := m.at.labelBeforeLimits(sp.stated).single(); ok && m.active && c.counts(sp, m.at) {
			counts[d]++
			if !sp.honorAffinity || m.at.satisfies(c.ownLabelDemandsOf(pod)) {
				surely[d]++
			}
		}
	}
	for _, m := range c.daemonsSpread(sp) {
		if d, ok := m.at.labelBeforeLimits(sp.stated).single(); ok {
			counts[d]++
			if m.attracts {
				surely[d]++
			}
		}
	}
	known, exist := c.knownDomains(sp), c.existingDomains(sp)
	for _, pl := range c.hosts { // after the plan, all of its nodes exist, wherever they may come up
		if pl.launch != nil && c.counts(sp, pl) {
			exist = append(exist, pl.labelBeforeLimits(sp.stated).values...)
		}
	}
	slices.Sort(exist)
	exist = slices.Compact(exist)
	return topologyRule{key: sp.key, needsDomain: true, allows: func(d string) bool {
		switch own := self(sp, pod) + c.mostDaemons(sp); { // another node may bring as many
		case slices.Contains(exist, d):
			return counts[d]+own-lowest(sp, surely, exist) <= sp.skew
		case sp.key == corev1.LabelHostname || slices.Contains(known, d):
			return own <= sp.skew && c.roomBeside(sp, counts, own)
		}
		return false
	}}
}

// roomBeside reports whether pods that this plan or the one before has placed may have so many beside them in a domain that does not
// exist yet: kube-scheduler may find the new domain before it schedules them.
func (c *check) roomBeside(sp *spread, counts map[string]int, n int) bool {
	return !slices.ContainsFunc(c.spreadPods(sp), func(m *scheduledPod) bool {
		d, ok := m.at.labelBeforeLimits(sp.stated).single()
		return (m.placedByPlan || m.at.nominated(m.pod)) && ok && counts[d]-n > sp.skew
	})
}

// nominatedTooMany reports whether pods with nodes in flight would be too many beside n pods in a domain that does not exist yet.
func (c *check) nominatedTooMany(sp *spread, n int) bool {
	counts, nominated := map[string]int{}, map[string]bool{}
	for _, m := range c.spreadPods(sp) {
		if d, ok := m.at.named(sp.stated).single(); ok && m.active && c.counts(sp, m.at) {
			counts[d]++
			nominated[d] = nominated[d] || m.at.nominated(m.pod)
		}
	}
	for d, some := range nominated {
		if some && counts[d]-n > sp.skew {
			return true
		}
	}
	return false
}

// affinityRules are the rules of a pod's required affinity, one per key. A pod that matches its own terms may go anywhere
// while no pod in the cluster matches them.
func (c *check) affinityRules(pod *corev1.Pod, s *affinitySet) []topologyRule {
	in, founds := map[topologyPair]bool{}, s.has(pod)
	for _, m := range c.selected(s.terms[0]) {
		if !m.attracts || s.forgets(m) || !s.has(m.pod) {
			continue
		}
		for _, key := range s.keys() {
			l := m.at.labelBeforeLimits(key)
			if d, ok := l.single(); ok {
				in[topologyPair{key, d}] = true
			}
			founds = founds && len(l.values) == 0
		}
	}
	var out []topologyRule
	for _, key := range s.keys() {
		out = append(out, topologyRule{
			key: c.s.Labels.Normalize(key), needsDomain: len(in) == 0 || founds,
			allows: func(d string) bool { return in[topologyPair{key, d}] || founds },
		})
	}
	return out
}

func antiAffinityRule(key string, others []*scheduledPod) topologyRule {
	taken := map[string]bool{}
	for _, m := range others {
		for _, d := range m.at.labelBeforeLimits(key).values {
			taken[d] = true
		}
	}
	return topologyRule{key: key, mayLackDomain: true, allows: func(d string) bool { return !taken[d] }}
}
