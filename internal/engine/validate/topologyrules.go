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

// topologyRules are the hard topology constraints of a pod.
func (c *check) topologyRules(pod *corev1.Pod) []topologyRule {
	var out []topologyRule
	for _, t := range pod.Spec.TopologySpreadConstraints {
		if t.WhenUnsatisfiable == corev1.DoNotSchedule {
			out = append(out, c.spreadRule(pod, &t))
		}
	}
	for _, t := range requiredAffinity(pod) {
		out = append(out, c.affinityRule(pod, &t))
	}
	for _, t := range requiredAntiAffinity(pod) {
		s := c.affinitySelection(pod, &t)
		out = append(out, antiAffinityRule(s.key, slices.DeleteFunc(c.pods.selected(s), func(m *scheduledPod) bool { return !m.active })))
	}
	for _, m := range c.pods.all {
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
		if d, ok := m.at.labelBeforeLimits(sp.key).single(); ok && m.active && c.counts(sp, m.at) {
			counts[d]++
			if !sp.honorAffinity || m.at.satisfies(c.labelDemandsOf(pod)) {
				surely[d]++
			}
		}
	}
	known, exist := c.knownDomains(sp), c.existingDomains(sp)
	for _, pl := range c.hosts { // after the plan, all of its nodes exist, wherever they may come up
		if pl.launch != nil && c.counts(sp, pl) {
			exist = append(exist, pl.labelBeforeLimits(sp.key).values...)
		}
	}
	slices.Sort(exist)
	exist = slices.Compact(exist)
	return topologyRule{key: sp.key, needsDomain: true, allows: func(d string) bool {
		switch own := self(sp, pod); {
		case slices.Contains(exist, d):
			return counts[d]+own-lowest(sp, surely, exist) <= sp.skew
		case sp.key == corev1.LabelHostname || slices.Contains(known, d):
			return own <= sp.skew && c.roomBeside(sp, counts, own)
		}
		return false
	}}
}

// roomBeside reports whether pods that this plan has placed may have so many beside them in a domain that does not
// exist yet: kube-scheduler may find the new domain before it schedules them.
func (c *check) roomBeside(sp *spread, counts map[string]int, n int) bool {
	return !slices.ContainsFunc(c.spreadPods(sp), func(m *scheduledPod) bool {
		d, ok := m.at.labelBeforeLimits(sp.key).single()
		return m.placedByPlan && ok && counts[d]-n > sp.skew
	})
}

func (c *check) affinityRule(pod *corev1.Pod, t *corev1.PodAffinityTerm) topologyRule {
	s := c.affinitySelection(pod, t)
	w := c.labelDemandsOf(pod)
	in := map[string]bool{}
	founds := s.has(pod)
	for _, m := range c.pods.selected(s) {
		if !m.active {
			continue
		}
		l := m.at.labelBeforeLimits(s.key)
		if d, ok := l.single(); ok {
			in[d] = true
			founds = founds && !w.reaches(s.key, d)
		} else if len(l.values) > 0 {
			founds = false // it is unknown yet where the pods run
		}
	}
	return topologyRule{key: s.key, needsDomain: len(in) == 0 || founds, allows: func(d string) bool { return in[d] || founds }}
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
