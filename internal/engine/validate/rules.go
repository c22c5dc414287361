package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// rule is what one topology constraint says about the domains of a key, once all else has its place.
type rule struct {
	key    string
	allows func(domain string) bool // of a new host the name is ""
	// settle tells that the node must be in a known domain, outside that it may be in none.
	settle, outside bool
}

// rules are the hard topology constraints that a pod finds.
func (c *check) rules(pod *corev1.Pod) []rule {
	var out []rule
	for _, t := range pod.Spec.TopologySpreadConstraints {
		if t.WhenUnsatisfiable == corev1.DoNotSchedule {
			out = append(out, c.spreadRule(pod, &t))
		}
	}
	for _, t := range requiredAffinity(pod) {
		out = append(out, c.nearRule(pod, &t))
	}
	for _, t := range requiredAntiAffinity(pod) {
		s := c.related(pod, &t)
		out = append(out, apartRule(s.key, slices.DeleteFunc(c.crowd.among(s), func(m *member) bool { return !m.active })))
	}
	for _, m := range c.crowd.all {
		for _, t := range requiredAntiAffinity(m.pod) {
			if s := c.related(m.pod, &t); s.has(pod) {
				out = append(out, apartRule(s.key, []*member{m}))
			}
		}
	}
	return out
}

func (c *check) spreadRule(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) rule {
	sp := c.spread(pod, t)
	counts, surely := map[string]int{}, map[string]int{}
	for _, m := range c.crowd.among(sp.selection) {
		if d, ok := m.at.claimed(sp.key).single(); ok && m.active && c.counts(sp, m.at) {
			counts[d]++
			if !sp.honourAffinity || m.at.satisfies(c.wantsOf(pod)) {
				surely[d]++
			}
		}
	}
	self := 0
	if sp.has(pod) {
		self = 1
	}
	known := *sp
	known.honourAffinity = false // a domain may exist that the pod's other demands exclude
	domains, floor := c.domains(&known), c.floor(sp, surely)
	return rule{key: sp.key, settle: true, allows: func(d string) bool {
		if sp.key == corev1.LabelHostname {
			return self <= sp.skew
		}
		return slices.Contains(domains, d) && counts[d]+self-floor <= sp.skew
	}}
}

func (c *check) nearRule(pod *corev1.Pod, t *corev1.PodAffinityTerm) rule {
	s := c.related(pod, t)
	w := c.wantsOf(pod)
	in := map[string]bool{}
	founds := s.has(pod)
	for _, m := range c.crowd.among(s) {
		if !m.active {
			continue
		}
		l := m.at.claimed(s.key)
		if d, ok := l.single(); ok {
			in[d] = true
			founds = founds && !w.reaches(s.key, d)
		} else if len(l.values) > 0 {
			founds = false // nobody knows yet where the family is
		}
	}
	return rule{key: s.key, settle: len(in) == 0 || founds, allows: func(d string) bool { return in[d] || founds }}
}

func apartRule(key string, others []*member) rule {
	taken := map[string]bool{}
	for _, m := range others {
		for _, d := range m.at.claimed(key).values {
			taken[d] = true
		}
	}
	return rule{key: key, outside: true, allows: func(d string) bool { return !taken[d] }}
}
