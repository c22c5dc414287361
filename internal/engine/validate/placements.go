package validate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// placements: pods that are placed on an existing node may run there.
func (c *check) placements() {
	for _, p := range c.p.Placements {
		if !slices.ContainsFunc(c.s.Nodes, func(n snapshot.Node) bool { return n.Name == p.Node && n.Claim == p.Claim }) {
			c.fail("pods are placed on node %s, which does not exist", p.Node)
		}
	}
	for _, pl := range c.hosts {
		if pl.node == nil || len(pl.pods) == 0 {
			continue
		}
		n := pl.node
		var joining []*corev1.Pod
		for _, pod := range pl.pods {
			if !pl.nominated(pod) {
				joining = append(joining, pod)
			}
		}
		switch {
		case n.Deleting:
			c.fail("pods are placed on %s, which is deleting", pl.name)
		case len(joining) == 0: // an earlier plan launched it for these pods
		case !n.Launched && n.Claim != "":
			c.fail("claim %s is not launched, but gets other pods than those nominated to it", n.Claim)
		default:
			c.placedPods(pl, joining)
		}
	}
}

func (c *check) placedPods(pl *host, joining []*corev1.Pod) {
	n := pl.node
	total, needed, running := amounts{}, amounts{}, amounts{}
	var taken []port
	for _, pod := range n.Pods {
		if snapshot.Terminal(pod) || c.planned[pod.UID] {
			continue
		}
		total.add(requests(pod, false))
		taken = append(taken, ports(pod)...)
		if slices.ContainsFunc(pod.OwnerReferences, isDaemonSet) {
			running.add(requests(pod, false))
		}
	}
	for _, pod := range pl.pods {
		total.add(c.compared(pod, false))
		taken = append(taken, ports(pod)...)
	}
	for _, daemon := range c.missingDaemons(pl) {
		taken = append(taken, ports(daemon)...)
	}
	for _, pod := range joining {
		c.schedulable(pl, pod)
		needed.add(c.compared(pod, false))
		if p, found := portConflict(ports(pod), taken); found {
			c.fail("%s: pods %s and %s both use %s", pl.name, name(pod), name(p.pod), p)
		}
	}
	total.add(c.expected(pl, running).list())
	for r, q := range needed {
		have, want := n.Allocatable[r], total[r]
		if q.Sign() > 0 && want.Cmp(have) > 0 {
			c.fail("%s: %s %s requested, %s allocatable", pl.name, want.String(), r, have.String())
		}
	}
	c.attachLimits(pl, joining)
}

func isDaemonSet(o metav1.OwnerReference) bool {
	return o.Kind == "DaemonSet" && o.APIVersion == "apps/v1"
}

// expected returns what DaemonSets will still take of the node, beyond what their running pods take.
func (c *check) expected(pl *host, running amounts) amounts {
	var daemons []*corev1.Pod
	for i := range c.s.DaemonSets {
		if pod := c.s.DaemonSets[i].Pod; c.belongs(pod, pl) {
			daemons = append(daemons, pod)
		}
	}
	out := c.daemonRequests(daemons)
	for r, q := range out {
		q.Sub(running[r])
		if q.Sign() < 0 {
			q.Set(0)
		}
		out[r] = q
	}
	return out
}

// belongs reports whether a DaemonSet has a pod on the node, now or soon.
func (c *check) belongs(daemon *corev1.Pod, pl *host) bool {
	return c.daemon(daemon) && tolerated(daemon, pl.taints) && c.daemonComes(daemon, pl)
}

// missingDaemons are the pods of DaemonSets that belong on the node and do not run there yet: their host ports and
// volumes must stay free for them.
func (c *check) missingDaemons(pl *host) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range c.s.DaemonSets {
		set := &c.s.DaemonSets[i]
		if c.belongs(set.Pod, pl) && !slices.ContainsFunc(pl.node.Pods, func(p *corev1.Pod) bool { return ownsPod(set, p) }) {
			out = append(out, set.Pod)
		}
	}
	return out
}

// ownsPod reports whether the pod is one of the DaemonSet's, and has not finished.
func ownsPod(set *snapshot.DaemonSet, p *corev1.Pod) bool {
	return !snapshot.Terminal(p) && p.Namespace == set.Namespace &&
		slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return isDaemonSet(o) && o.Name == set.Name })
}

// daemon reports whether new nodes reserve room for a DaemonSet's pod.
func (c *check) daemon(pod *corev1.Pod) bool {
	return pod != nil && (c.s.Devices != nil || !usesResourceClaims(pod)) && c.labelDemandsOf(pod).err == nil
}

func tolerated(pod *corev1.Pod, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(t corev1.Taint) bool { return !tolerates(pod.Spec.Tolerations, &t) })
}

// schedulable: taints are tolerated, and node selector, required affinity and volumes are satisfied, whatever the
// host becomes.
func (c *check) schedulable(pl *host, pod *corev1.Pod) {
	at := []*host{pl}
	for i := range pl.taints {
		if !tolerates(pod.Spec.Tolerations, &pl.taints[i]) {
			c.failAt(at, "pod %s does not tolerate taint %s of %s", name(pod), pl.taints[i].Key, pl.name)
		}
	}
	w := c.labelDemandsOf(pod)
	switch {
	case w.err != nil:
		c.failAt(at, "pod %s is placed though it cannot be read: %v", name(pod), w.err)
	case !pl.satisfies(&labelDemands{selector: w.selector}):
		c.failAt(at, "pod %s: nodeSelector is not satisfied on %s", name(pod), pl.name)
	case !pl.satisfies(w):
		c.failAt(at, "pod %s: required node affinity is not satisfied on %s", name(pod), pl.name)
	}
	if what := c.lacks(pl, pod); what != "" {
		c.failAt(at, "pod %s needs %s, which %s does not have", name(pod), what, pl.name)
	}
	for _, m := range c.mounts(pod) {
		if m.missing != "" {
			c.failAt(at, "pod %s is placed though its volume claim %s %s", name(pod), m.claim.Name, m.missing)
		} else if !pl.satisfies(m.labelDemands()) {
			c.failAt(at, "pod %s: volume claim %s cannot be attached on %s", name(pod), m.claim.Name, pl.name)
		}
	}
}

// attachLimits: no driver has more volumes on the node than it can attach; a volume that pods share counts once.
func (c *check) attachLimits(pl *host, joining []*corev1.Pod) {
	limits := c.attachLimitsOf(pl.node)
	if len(limits) == 0 {
		return
	}
	attached := attachedClaims{}
	add := func(pods []*corev1.Pod) {
		for _, pod := range pods {
			attached.add(c.mounts(pod))
		}
	}
	for _, daemon := range c.missingDaemons(pl) {
		attached.add(c.daemonMounts(daemon))
	}
	for _, pod := range pl.node.Pods {
		if !snapshot.Terminal(pod) && !c.planned[pod.UID] {
			add([]*corev1.Pod{pod})
		}
	}
	before := map[string]int{}
	add(slices.DeleteFunc(slices.Clone(pl.pods), func(p *corev1.Pod) bool { return slices.Contains(joining, p) }))
	for driver, claims := range attached {
		before[driver] = len(claims)
	}
	add(joining)
	for driver, limit := range limits {
		limit -= pl.node.LeftoverVolumes[driver] // which stay attached until they are detached
		if n := len(attached[driver]); n > int(limit) && n > before[driver] {
			c.fail("%s: %d volumes of %s attached, at most %d can be", pl.name, n, driver, limit)
		}
	}
}

// attachLimitsOf are the node's own limits. A claim in flight also has those of its type: its node has none yet.
func (c *check) attachLimitsOf(n *snapshot.Node) map[string]int32 {
	out := maps.Clone(n.VolumeLimits)
	pool := c.pool(n.Pool)
	if n.Initialized || n.Claim == "" || pool == nil {
		return out
	}
	if out == nil {
		out = map[string]int32{}
	}
	for _, it := range pool.InstanceTypes {
		for driver, limit := range it.VolumeLimits {
			if _, known := out[driver]; !known && it.Name == n.Labels[corev1.LabelInstanceTypeStable] {
				out[driver] = int32(limit)
			}
		}
	}
	return out
}
