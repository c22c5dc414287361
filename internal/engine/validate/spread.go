package validate

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
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
	// present are the keys of the pod's other hard constraints: a node without one of them counts for none.
	present []string
	pod     *corev1.Pod // one that states it
	owners  []*scheduledPod
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
	for i := range pod.Spec.TopologySpreadConstraints {
		o := &pod.Spec.TopologySpreadConstraints[i]
		if o.WhenUnsatisfiable == corev1.DoNotSchedule && o.TopologyKey != sp.stated {
			sp.present = append(sp.present, o.TopologyKey)
		}
	}
	slices.Sort(sp.present)
	return sp
}

// countsNone reports whether the constraint counts no pods at all: its selector is empty (countPodsMatchSelector).
func (sp *spread) countsNone() bool {
	s := sp.selector
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// spreadPods are the pods that the constraint counts, wherever they are.
func (c *check) spreadPods(sp *spread) []*scheduledPod {
	if sp.countsNone() {
		return nil
	}
	return c.pods.selected(sp.selection)
}

// daemonsSpread are the pods of DaemonSets to come that the constraint counts. They are on their nodes before any pod of the plan is. Of
// those that want one host port of a node, one comes; those that running pods keep off do not.
func (c *check) daemonsSpread(sp *spread) []*scheduledPod {
	if sp.countsNone() {
		return nil
	}
	var out []*scheduledPod
	rivals := map[*host][]*scheduledPod{}
	for _, m := range c.pods.daemons {
		if m.keptOff || !sp.has(m.pod) || !c.counts(sp, m.at) || slices.ContainsFunc(rivals[m.at], m.isRivalOf) {
			continue
		}
		out = append(out, m)
		if len(ports(m.pod)) > 0 {
			rivals[m.at] = append(rivals[m.at], m)
		}
	}
	return out
}

// isRivalOf reports whether both are pods of DaemonSets of which just one comes, if they are for one node.
func (m *scheduledPod) isRivalOf(other *scheduledPod) bool {
	_, found := portConflict(ports(m.pod), ports(other.pod))
	return found && m.daemon && other.daemon
}

// mostDaemons returns how many pods of DaemonSets one new node may bring that the constraint counts.
func (c *check) mostDaemons(sp *spread) (n int) {
	if sp.countsNone() {
		return 0
	}
	for i := range c.s.DaemonSets {
		if pod := c.s.DaemonSets[i].Pod; sp.has(pod) && c.daemon(pod) {
			n++
		}
	}
	return n
}

// id identifies the constraint by what it counts.
func (sp *spread) id() string {
	out := fmt.Sprint(sp.selection.id(), sp.skew, sp.minDomains, sp.honorAffinity, sp.honorTaints, sp.present)
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
	for _, m := range c.spreadPods(sp) {
		d, ok := m.at.named(sp.stated).single()
		if !ok || !m.active || !c.counts(sp, m.at) {
			continue
		}
		counts[d]++
		if !m.placedByPlan || stated[m] {
			surely[d]++
		}
	}
	used := hostsOf(sp.owners)
	for _, m := range c.daemonsSpread(sp) {
		d, ok := m.at.named(sp.stated).single()
		if !ok {
			continue
		}
		counts[d]++
		if m.attracts && (m.at.node != nil || slices.Contains(used, m.at)) {
			surely[d]++
		}
	}
	domains := c.finalDomains(sp, counts, hostsOf(sp.owners))
	floor := lowest(sp, counts, domains)
	if sp.minDomains > 1 { // nodes for other pods may make the domains that are missing, before the owners are scheduled
		floor = max(floor, c.floor(sp, counts, c.hosts))
	}
	now := lowest(sp, counts, c.existingDomains(sp))
	reported := map[string]bool{}
	for _, m := range sp.owners {
		d, ok := m.at.named(sp.stated).single()
		floor := floor
		if m.waitsForNoNode(sp) {
			floor = max(floor, now)
		}
		switch {
		case !ok:
			c.failAt([]*host{m.at}, "pod %s is spread over %s, but its node may come up in %v", name(m.pod), sp.key, m.at.named(sp.stated).values)
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
		case !reported[d]:
			reported[d] = true
			if e := c.emptierDomain(sp, d, surely[d], append(domains, c.launchedDomains(sp, c.hosts)...)); e != "" {
				c.failAt(atDomain(sp, d), "pod %s: %s %s has %d pods, %s none, where a node could be launched for it, maxSkew is %d",
					name(m.pod), sp.key, d, surely[d], e, sp.skew)
			}
		}
	}
}

// waitsForNoNode reports whether kube-scheduler can bind the pod before any node of the plan is there, as far as the constraint knows: it
// is on a node that is ready, no other pod of the constraint counts it there, and no PodGroup has it wait for others.
func (m *scheduledPod) waitsForNoNode(sp *spread) bool {
	return m.at.node != nil && m.at.node.Initialized && !sp.has(m.pod) && m.pod.Spec.SchedulingGroup == nil
}

// SpreadHoldsLast reports whether kube-scheduler could schedule the pod after all others of the plan, as far as its
// hard topology spread is concerned. Check cannot know in which order pods are scheduled. Who does know counts all pods
// that came before, since PodTopologySpread measures skew against each pod that has a node at that moment.
func SpreadHoldsLast(s *snapshot.Snapshot, p schedule.Plan, pod *corev1.Pod) bool {
	c := newCheck(s, p)
	at := slices.IndexFunc(c.pods.all, func(m *scheduledPod) bool { return m.pod == pod })
	return at >= 0 && !slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(t corev1.TopologySpreadConstraint) bool {
		if t.WhenUnsatisfiable != corev1.DoNotSchedule {
			return false
		}
		sp, counts := c.spread(pod, &t), map[string]int{}
		for _, m := range c.spreadPods(sp) {
			if d, ok := m.at.named(sp.stated).single(); ok && m.active && m.pod != pod && c.counts(sp, m.at) {
				counts[d]++
			}
		}
		for _, m := range c.daemonsSpread(sp) {
			if d, ok := m.at.named(sp.stated).single(); ok && m.attracts {
				counts[d]++
			}
		}
		d, ok := c.pods.all[at].at.named(sp.stated).single()
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
		if v, ok := m.at.named(sp.stated).single(); ok && v == d {
			out = append(out, m.at)
		}
	}
	return out
}

// counts reports whether pods on the host count for the constraint, and its domain does.
func (c *check) counts(sp *spread, at *host) bool {
	if slices.ContainsFunc(sp.present, func(key string) bool { return len(at.named(key).values) == 0 }) {
		return false
	}
	if sp.honorTaints && !tolerated(sp.pod, at.taints) {
		return false
	}
	return !sp.honorAffinity || at.mightSatisfy(c.ownLabelDemandsOf(sp.pod))
}

// floor is the lowest number of pods in any domain that kube-scheduler knows: of nodes that exist, and of the launches
// among the hosts. Fewer domains than minDomains make it zero (minMatchNum).
func (c *check) floor(sp *spread, counts map[string]int, among []*host) int {
	return lowest(sp, counts, c.finalDomains(sp, counts, among))
}

// finalDomains are the domains that exist, and those of the launches among the hosts.
//
// Each launch that may count is a host, whatever pods it is for: it may come up before any of them has a node.
func (c *check) finalDomains(sp *spread, counts map[string]int, among []*host) []string {
	domains, overHosts := c.existingDomains(sp), sp.key == corev1.LabelHostname
	if overHosts {
		among = c.hosts
	}
	for _, d := range c.launchedDomains(sp, among) {
		if (counts[d] > 0 || overHosts) && !slices.Contains(domains, d) {
			domains = append(domains, d)
		}
	}
	return domains
}

// lowest is the global minimum of the constraint over these domains.
func lowest(sp *spread, counts map[string]int, domains []string) int {
	if len(domains) == 0 || len(domains) < sp.minDomains {
		return 0
	}
	out := counts[domains[0]]
	for _, d := range domains[1:] {
		out = min(out, counts[d])
	}
	return out
}

// existingDomains are the values of the key on nodes that exist and count, sorted. A node that is being deleted exists
// until it is gone: see leaves. As a host it is no place to spread to any more, and pods wait for its end rather than
// for a node.
func (c *check) existingDomains(sp *spread) []string {
	var out []string
	for _, pl := range c.hosts {
		if pl.node == nil || pl.node.Deleting && (sp.key == corev1.LabelHostname || c.leaves(pl.node)) || !c.counts(sp, pl) {
			continue
		}
		d, ok := pl.named(sp.stated).single()
		if ok && (!sp.honorAffinity || c.ownLabelDemandsOf(sp.pod).reaches(sp.key, d)) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// leaves reports whether a node that is being deleted will be gone before nodes of the plan are there: it has no
// instance, or the plan moves its pods.
func (c *check) leaves(n *snapshot.Node) bool {
	return n.Claim != "" && !n.Launched || slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool { return c.planned[pod.UID] })
}

// launchedDomains are the values of the key on the launches among the hosts. kube-scheduler counts the domains of nodes
// that exist, and these nodes do once their pods are scheduled.
//
// Of a finished plan, the launches that hold owners of the constraint count, and no others. kube-scheduler measures
// skew when it schedules a pod, and never again: PodTopologySpread.calPreFilterState goes through the nodes of that
// moment. A value that no pool lists and no node has, such as the one that a claim makes up for "team Exists", is no
// domain before the launched node registers. If no owner is planned there, all owners can be scheduled before, and then
// the domain did not exist for any of them. The pods of such a launch count only where they are, like all pods that may
// come later.
func (c *check) launchedDomains(sp *spread, among []*host) []string {
	var out []string
	for _, pl := range among {
		if d, ok := pl.named(sp.stated).single(); ok && pl.launch != nil && c.counts(sp, pl) {
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

// knownDomains are the values of the key on existing nodes and on those that pools can launch, sorted.
func (c *check) knownDomains(sp *spread) []string {
	var out []string
	for _, pl := range c.hosts {
		if d, ok := pl.named(sp.stated).single(); ok && pl.node != nil {
			out = append(out, d)
		}
	}
	for i := range c.s.Pools {
		if pool := &c.s.Pools[i]; pool.NodePool.Spec.Replicas == nil {
			out = append(out, c.poolDomains(pool, sp.key)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// poolDomains are the values of key that nodes of the pool may have: those of its offerings, or those that it lists
// itself of a label that no type has.
//
// kube-scheduler measures skew over the domains of nodes that exist: PodTopologySpread lists the nodes, skips those
// that the policies of the constraint exclude, and takes the lowest count among the values that the others have
// (calPreFilterState, minMatchNum). A value that no offering of the pool has under all its requirements is never one of
// them, even if the pool lists it, or a type has it as another capacity type. That an offering is unavailable now does
// not exclude it: nodes of it may come up, or be there already.
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
