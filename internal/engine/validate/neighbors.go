package validate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// nodeStart sets how long a node takes to start. A plan may count on the place of a pod that terminates sooner.
const nodeStart = time.Minute

// running is a pod that was on its node before the plan. kube-scheduler counts terminating pods for affinity and
// anti-affinity in both directions until they are gone. Two exceptions: the place of a pod of which the grace period
// finishes soon, or just has, and pods that leave a node that goes.
func (c *check) running(pod *corev1.Pod, at *host) *scheduledPod {
	m := &scheduledPod{pod: pod, at: at, active: snapshot.Active(pod), repels: true, attracts: true}
	if pod.DeletionTimestamp == nil {
		return m
	}
	left := pod.DeletionTimestamp.Sub(c.s.Now)
	if m.endsSoon = left < nodeStart && left > -nodeStart; m.endsSoon {
		m.repels = slices.ContainsFunc(pod.OwnerReferences, isDaemonSet)      // its successor comes to the same node
		m.attracts = !at.node.Deleting && len(requiredAntiAffinity(pod)) == 0 // else it may keep its followers away
	}
	return m
}

// daemonsToCome are the pods of DaemonSets that will run on hosts and are not there yet: on launches, and on nodes in
// flight. Those that run there whatever the host becomes are surely there; others only may be. The keepers are running pods with
// anti-affinity on nodes that stay.
func (c *check) daemonsToCome(keepers []*scheduledPod) []*scheduledPod {
	var out []*scheduledPod
	outside, terms := make([]map[string]map[string]bool, len(c.s.DaemonSets)), c.termsOf(keepers)
	for i := range c.s.DaemonSets {
		outside[i] = keptOutOf(c.s.DaemonSets[i].Pod, terms)
	}
	for _, pl := range c.hosts {
		if pl.node != nil && pl.node.Initialized || pl.launch != nil && len(pl.outcomes) == 0 {
			continue
		}
		for i := range c.s.DaemonSets {
			set := &c.s.DaemonSets[i]
			there := func(p *corev1.Pod) bool { return ownsPod(set, p) }
			if !c.daemon(set.Pod) || !tolerated(set.Pod, pl.taints) || pl.node != nil && slices.ContainsFunc(pl.node.Pods, there) {
				continue
			}
			surely := pl.satisfies(c.labelDemandsOf(set.Pod))
			if surely || c.mayRunOn(set.Pod, pl) {
				m := &scheduledPod{pod: set.Pod, at: pl, daemon: true, keptOff: pl.isWithin(outside[i])}
				m.attracts = surely && !m.keptOff
				out = append(out, m)
			}
		}
	}
	for _, m := range out { // one that is kept off never comes if another has its host port by then
		m.repels = !m.keptOff || !slices.ContainsFunc(out, func(o *scheduledPod) bool { return o.at == m.at && o.attracts && o.isRivalOf(m) })
	}
	return out
}

// termsOf are the different terms of anti-affinity of the pods, with these as owners.
func (c *check) termsOf(pods []*scheduledPod) (out []*affinityTerm) {
	index := map[string]*affinityTerm{}
	for _, m := range pods {
		for _, t := range requiredAntiAffinity(m.pod) {
			s := c.affinitySelection(m.pod, &t)
			id := s.id()
			r := index[id]
			if r == nil {
				r = &affinityTerm{selection: s}
				index[id] = r
				out = append(out, r)
			}
			r.owners = append(r.owners, m)
		}
	}
	return out
}

// keptOutOf are the domains, by key as it is stated, that owners of the terms keep the pod out of.
func keptOutOf(pod *corev1.Pod, terms []*affinityTerm) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, t := range terms {
		if !t.has(pod) {
			continue
		}
		if out[t.stated] == nil {
			out[t.stated] = map[string]bool{}
		}
		for _, m := range t.owners {
			if m.at.node != nil && m.at.node.Deleting {
				continue // it leaves with its node
			}
			if domain, ok := m.at.named(t.stated).single(); ok {
				out[t.stated][domain] = true
			}
		}
	}
	return out
}

// isWithin reports whether the host is in one of the domains by some key, whatever it becomes.
func (pl *host) isWithin(domains map[string]map[string]bool) bool {
	for key, within := range domains {
		l := pl.named(key)
		if !l.absent && !l.open && len(l.values) > 0 && !slices.ContainsFunc(l.values, func(v string) bool { return !within[v] }) {
			return true
		}
	}
	return false
}

// mayRunOn reports whether a DaemonSet's pod runs on something that the host may become.
func (c *check) mayRunOn(daemon *corev1.Pod, pl *host) bool {
	w := c.labelDemandsOf(daemon)
	if !pl.mightSatisfy(w) || len(pl.outcomes) == 0 {
		return pl.mightSatisfy(w)
	}
	return slices.ContainsFunc(pl.outcomes, func(out outcome) bool {
		return w.admits(func(e *expr) bool { return e.may(pl.labelOn(out, e.key)) })
	})
}

// neighbors are all pods that affinity and anti-affinity may see after the plan.
func (c *check) neighbors() []*scheduledPod {
	return slices.Concat(c.pods.all, c.pods.daemons)
}

// selected are the neighbors that the selection selects.
func (c *check) selected(s *selection) []*scheduledPod {
	out := c.pods.selected(s)
	for _, m := range c.pods.daemons {
		if s.has(m.pod) {
			out = append(out, m)
		}
	}
	return out
}

// keptApart reports whether a DaemonSet's pod and the pod may not share a domain, where the outcome may
// have a label for one of its keys.
func (f *freshNodeSearch) keptApart(out outcome, daemon *corev1.Pod) bool {
	apart := func(owner, other *corev1.Pod) bool {
		return slices.ContainsFunc(requiredAntiAffinity(owner), func(t corev1.PodAffinityTerm) bool {
			s := f.c.affinitySelection(owner, &t)
			return s.has(other) && (s.key == corev1.LabelHostname || len(f.options(out, s.key).values) > 0)
		})
	}
	return apart(f.pod, daemon) || apart(daemon, f.pod)
}

// withoutRepelling are the outcomes on which no DaemonSet's pod may come that the pod cannot be with.
func (f *freshNodeSearch) withoutRepelling(outcomes []outcome) []outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(out outcome) bool {
		return slices.ContainsFunc(f.c.s.DaemonSets, func(set snapshot.DaemonSet) bool {
			return f.mayCome(set.Pod) && f.mightRun(set.Pod, out.it) && f.keptApart(out, set.Pod)
		})
	})
}

// mayCome reports whether DaemonSet's pods come to nodes of the pool, as far as its taints are concerned.
func (f *freshNodeSearch) mayCome(daemon *corev1.Pod) bool {
	return f.c.daemon(daemon) && tolerated(daemon, f.pool.NodePool.Spec.Template.Spec.Taints)
}

// withFollowed are the outcomes to which a DaemonSet's pod surely comes that the pod's affinity demands. They have the
// labels of all terms.
func (f *freshNodeSearch) withFollowed(outcomes []outcome, s *affinitySet) []outcome {
	lacked := func(out outcome) bool {
		return slices.ContainsFunc(s.keys(), func(key string) bool {
			l := f.options(out, key)
			return key != corev1.LabelHostname && (l.absent || len(l.values) == 0)
		})
	}
	return slices.DeleteFunc(slices.Clone(outcomes), func(out outcome) bool {
		return lacked(out) || !slices.ContainsFunc(f.c.s.DaemonSets, func(set snapshot.DaemonSet) bool {
			return f.mayCome(set.Pod) && s.has(set.Pod) && f.mightRun(set.Pod, out.it) &&
				f.c.labelDemandsOf(set.Pod).admits(func(e *expr) bool { return e.holds(f.options(out, e.key)) })
		})
	})
}
