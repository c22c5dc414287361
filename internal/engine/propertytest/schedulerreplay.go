package propertytest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// replaysPerWorld sets how many outcomes of the launches are replayed at most, ordersPerReplay in how many orders pods are tried.
	replaysPerWorld, ordersPerReplay = 24, 400
	// fewestReplays are enough where no rejected pod would be accepted.
	fewestReplays = 3
)

// Disagreement returns what a scheduler would not do as planned; empty if nothing. It begins with "refused:" or "rejected:". The launches
// come up, as any of what they may become, and daemons start. Then there is an order in which the scheduler accepts each pod on its node,
// and after it no pod that was rejected would be accepted by an existing node, or by one more node that can be launched. Of a rejected pod
// it must be the same on the same node whatever the launches become: where the plan cannot know, the next one will. A pod may wait for the
// next plan: see waitOnePass. If filter is nil, the rules of this package decide. The bytes of next choose orders and outcomes.
func Disagreement(s *snapshot.Snapshot, plan schedule.Plan, filter Filter, next func() byte) string {
	return SchedulerOfGroups{Filter: filter}.Disagreement(s, plan, next)
}

// Disagreement is that of a scheduler with rules about PodGroups: it binds what the plan places of each group, and finds no room on
// existing nodes for a group that was rejected. Rejected pods of groups do not count by themselves.
func (x SchedulerOfGroups) Disagreement(s *snapshot.Snapshot, plan schedule.Plan, next func() byte) string {
	r := replays{s: s, plan: plan, filter: x.Filter, groups: x.Groups, devices: x.Devices, random: random{next}, nodes: "new"}
	var accepted map[acceptance]bool
	var outcomes []*Cluster
	for replay := range replaysPerWorld {
		c, why := r.carryOut(replay)
		if why != "" {
			return why
		}
		if why := r.refusedGroup(c); why != "" {
			return why
		}
		outcomes = append(outcomes, c)
		now := r.wronglyRejected(c)
		gone := r.wronglyRejected(c.withoutTerminating())
		maps.DeleteFunc(now, func(a acceptance, _ bool) bool { return !gone[a] })
		if accepted == nil {
			accepted = now
		}
		maps.DeleteFunc(accepted, func(a acceptance, _ bool) bool { return !now[a] })
		if replay >= fewestReplays && len(accepted) == 0 {
			return ""
		}
	}
	r.waitOnePass(accepted, outcomes)
	for a := range accepted {
		return "rejected: " + a.pod + " fits on " + a.node
	}
	return ""
}

// replays describes what becomes of a plan.
type replays struct {
	s      *snapshot.Snapshot
	plan   schedule.Plan
	filter Filter
	groups GroupRules
	// devices is what devices the pods of the snapshot have; nil if no pod has any.
	devices func(*snapshot.Snapshot) Devices
	random  random
	// nodes is what the names of new nodes begin with.
	nodes string
}

// rulesAboutOthers returns how many rules about other pods the pod has.
func rulesAboutOthers(p *corev1.Pod) int {
	return len(p.Spec.TopologySpreadConstraints) + len(nearOf(p)) + len(antiTerms(p))
}

// binding is a pod and the node that the plan has for it.
type binding struct {
	pod  *corev1.Pod
	node *ClusterNode
}

// launched is the cluster with the nodes of the plan, with their DaemonSets' pods, how many nodes there were before, and which pods the
// plan has for which node.
func (r *replays) launched(replay int) (c *Cluster, existing int, todo []binding) {
	s, plan := r.s, r.plan
	c = &Cluster{World: s, Filter: r.filter, daemons: r.daemonSets(replay)}
	if r.devices != nil {
		c.Devices = r.devices(s)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		node := comesUp(n, n.Pods)
		c.Nodes = append(c.Nodes, node)
		for _, p := range plan.Placements {
			if p.Node == n.Name {
				todo = appendBindings(todo, p.Pods, node)
			}
		}
	}
	existing = len(c.Nodes)
	for i := range plan.Launches {
		node := r.launchedNode(i, replay)
		c.Nodes = append(c.Nodes, node)
		todo = appendBindings(todo, plan.Launches[i].Pods, node)
	}
	c.leave(s)
	for _, node := range c.joining() {
		c.startDaemons(node)
	}
	return c, existing, todo
}

// daemonSets are the DaemonSets in the order in which their pods come to a new node: as listed in the first replay, then the other way
// round, then any, on each node anew. It matters to those that keep each other off a node, as by a host port: their pods are created at
// the same moment.
func (r *replays) daemonSets(replay int) func() []snapshot.DaemonSet {
	return func() []snapshot.DaemonSet {
		sets := slices.Clone(r.s.DaemonSets)
		switch replay {
		case 0:
		case 1:
			slices.Reverse(sets)
		default:
			for i := range sets {
				k := i + r.random.n(len(sets)-i)
				sets[i], sets[k] = sets[k], sets[i]
			}
		}
		return sets
	}
}

// Launched is the cluster with the nodes of the plan, as the first of what each may become, with their DaemonSets' pods by the rules of
// this package, and the node, by name, that the plan has for each pod.
func Launched(s *snapshot.Snapshot, plan schedule.Plan) (*Cluster, map[*corev1.Pod]string) {
	r := replays{s: s, plan: plan, nodes: "new"}
	c, _, todo := r.launched(0)
	nodes := map[*corev1.Pod]string{}
	for _, b := range todo {
		nodes[b.pod] = b.node.Name
	}
	return c, nodes
}

// carryOut is the cluster after the plan, or the pod that the scheduler refuses, with the pods that terminate now and without them.
func (r *replays) carryOut(replay int) (*Cluster, string) {
	d := r.random
	c, existing, todo := r.launched(replay)
	var stuck []binding
	// How often each pod found no place, with the pods that terminate and without them: one that follows such a pod finds none once that is
	// gone, and would come first from then on, where it may have to come last.
	lateWith, lateWithout := map[string]int{}, map[string]int{}
	for try := range ordersPerReplay {
		from, late := c, lateWith
		if try/2%2 == 1 {
			late = lateWithout
			from = c.withoutTerminating()
			for _, node := range from.joining() { // those that pods kept off which are gone now
				from.startDaemons(node)
			}
		}
		after := from.Copy()
		if try/4%2 == 1 {
			after.bindNominated()
		}
		fresh := map[*ClusterNode]*ClusterNode{}
		for i, n := range c.Nodes {
			fresh[n] = after.Nodes[i]
		}
		queue := make([]binding, len(todo))
		for i, b := range todo {
			queue[i] = binding{b.pod, fresh[b.node]}
		}
		for i := range queue {
			if k := i + d.n(len(queue)-i); try > 0 {
				queue[i], queue[k] = queue[k], queue[i]
			}
		}
		if try%3 > 0 { // those that found no place come as soon as they can, next time, and those that fit anywhere come last
			slices.SortStableFunc(queue, func(a, b binding) int {
				return cmp.Or(cmp.Compare(late[b.pod.Name], late[a.pod.Name]), (try%3-1)*cmp.Compare(rulesAboutOthers(b.pod), rulesAboutOthers(a.pod)))
			})
		}
		switch {
		case try%8 > 5:
			queue = after.inTurn(queue, d)
		case try%4 > 1: // pods on existing nodes need not wait for the others
			queue = after.first(existing).bindThose(queue, try%2 == 0)
		}
		if stuck = after.bind(queue, try%2 == 0); len(stuck) > 0 && from == c {
			after, stuck = after.onceTheyEnd(stuck)
		}
		if len(stuck) == 0 {
			return after.withTerminatingOf(c), ""
		}
		for _, b := range stuck {
			late[b.pod.Name]++
		}
		if try == ordersPerReplay-1 {
			b := stuck[0]
			return nil, fmt.Sprintf("refused: %s on %s: %s", b.pod.Name, b.node.Name, after.filter(b.pod, b.node))
		}
	}
	return c, ""
}

// Copy is a cluster with the same pods, to which others can be bound.
func (c *Cluster) Copy() *Cluster {
	out := &Cluster{World: c.World, Filter: c.Filter, Devices: c.copiedDevices(), daemons: c.daemons}
	for _, n := range c.Nodes {
		cp := *n
		cp.Pods = slices.Clone(n.Pods)
		out.Nodes = append(out.Nodes, &cp)
	}
	return out
}

func appendBindings(list []binding, pods []*corev1.Pod, node *ClusterNode) []binding {
	for _, p := range pods {
		list = append(list, binding{successor(p), node})
	}
	return list
}

// bind binds each pod as soon as its node accepts it, and returns those that are left. It begins again after each pod, or
// goes through all in turn.
func (c *Cluster) bind(queue []binding, again bool) []binding {
	for progress := true; progress; {
		progress = false
		for i := 0; i < len(queue); {
			if c.filter(queue[i].pod, queue[i].node) != "" {
				i++
				continue
			}
			c.run(queue[i].pod, queue[i].node)
			queue = slices.Delete(slices.Clone(queue), i, i+1)
			if progress = true; again {
				i = 0
			}
		}
	}
	return queue
}

// first is the cluster with only the first nodes.
func (c *Cluster) first(nodes int) *Cluster {
	return &Cluster{Nodes: c.Nodes[:nodes], World: c.World, Filter: c.Filter, Devices: c.Devices, daemons: c.daemons}
}

// bindThose binds pods of the queue that have a node of the cluster, and returns those that are left.
func (c *Cluster) bindThose(queue []binding, again bool) []binding {
	var here, others []binding
	for _, b := range queue {
		if slices.Contains(c.Nodes, b.node) {
			here = append(here, b)
		} else {
			others = append(others, b)
		}
	}
	return append(c.bind(here, again), others...)
}

// startDaemons binds the pods of DaemonSets that belong on the node and that it accepts.
func (c *Cluster) startDaemons(node *ClusterNode) {
	for _, set := range c.daemons() {
		p := DaemonPod(&set, node.Name)
		if !slices.ContainsFunc(node.Pods, func(o *corev1.Pod) bool { return o.UID == p.UID }) && c.filter(p, node) == "" {
			c.run(p, node)
		}
	}
}

// staysWith reports whether the pod could stay on the node with the DaemonSets' pods that other pods keep off it now: see withDaemons. For
// a spread it could, whatever the counts are by then.
func (c *Cluster) staysWith(pod *corev1.Pod, node *ClusterNode) bool {
	why := c.filter(pod, node)
	return why == "" || strings.HasPrefix(why, "PodTopologySpread")
}

// withDaemons is the cluster with the DaemonSets' pods that only other pods keep off its new nodes, and the node there. A plan keeps room
// for these: the others come and go, and a pod that came instead of a DaemonSet's would keep that off the node, or have to make room for
// it, as long as it runs.
func (c *Cluster) withDaemons(s *snapshot.Snapshot, node *ClusterNode) (with *Cluster, at *ClusterNode) {
	with = c.Copy()
	with.EmptyHost = c.EmptyHost
	kept := false
	for _, n := range with.Nodes {
		for _, p := range n.keptOff(c, s) {
			n.Pods, kept = append(n.Pods, p), true
		}
	}
	if !kept {
		return c, node
	}
	return with, with.Nodes[slices.Index(c.Nodes, node)]
}

// keptOff are the DaemonSets' pods that belong on the new node and that other pods keep off it, which are of no DaemonSet: one DaemonSet's
// pod gives its host port to no other's.
func (n *ClusterNode) keptOff(c *Cluster, s *snapshot.Snapshot) (out []*corev1.Pod) {
	if !n.joins() {
		return nil
	}
	for i := range s.DaemonSets {
		empty := *n
		empty.Pods = slices.DeleteFunc(slices.Clone(n.Pods), func(p *corev1.Pod) bool { return !snapshot.DaemonOwned(p) })
		alone := &Cluster{Nodes: []*ClusterNode{&empty}, World: c.World, Filter: c.Filter, Devices: c.copiedDevices()}
		p := DaemonPod(&s.DaemonSets[i], n.Name)
		if !slices.ContainsFunc(n.Pods, func(o *corev1.Pod) bool { return o.UID == p.UID }) && alone.filter(p, &empty) == "" {
			out = append(out, p)
		}
	}
	return out
}

// outcome is what a launch becomes.
type outcome struct {
	it *catalog.InstanceType
	o  *catalog.Offering
}

// launchedNode is one of the nodes that the launch may become: the first in the first replay, the last in the second, then any.
func (r *replays) launchedNode(i, replay int) *ClusterNode {
	l := &r.plan.Launches[i]
	var outcomes []outcome
	reqs := l.ClaimRequirements()
	for _, it := range l.InstanceTypes {
		for i := range it.Offerings {
			if o := &it.Offerings[i]; launchable(reqs, o) {
				outcomes = append(outcomes, outcome{it, o})
			}
		}
	}
	var out outcome
	switch replay {
	case 0:
		out = outcomes[0]
	case 1:
		out = outcomes[len(outcomes)-1]
	default:
		out = pick(r.random, outcomes[:min(len(outcomes), 256)]...)
	}
	pool := slices.IndexFunc(r.s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == l.Pool.Name })
	return out.node(fmt.Sprintf("%s-%d", r.nodes, i), &r.s.Pools[pool], l.ClaimLabels(r.s.Labels))
}

// node is the node as it is once it is initialized.
func (out outcome) node(name string, of *snapshot.Pool, more map[string]string) *ClusterNode {
	it, o, pool := out.it, out.o, of.NodePool
	n := &ClusterNode{
		Name: name, Labels: map[string]string{}, Taints: pool.Spec.Template.Spec.Taints, Allocatable: it.Allocatable, Type: it, Pool: of,
	}
	maps.Copy(n.Labels, pool.Spec.Template.Labels)
	maps.Copy(n.Labels, more)
	for _, r := range it.Requirements.All() {
		if v, ok := r.Single(); ok {
			n.Labels[r.Key()] = v
		}
	}
	maps.Copy(n.Labels, map[string]string{
		Zone: o.Zone, Capacity: o.CapacityType, Host: name, corev1.LabelInstanceTypeStable: it.Name, karpv1.LabelNodePool: pool.Name,
		karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
	})
	if o.ReservationID != "" {
		n.Labels[ReservationID] = o.ReservationID
	}
	return n
}

// allowed reports whether requirements allow a value.
func allowed(reqs []karpv1.Requirement, key, value string) bool {
	for _, r := range reqs {
		if r.Key == key && (r.Operator == in) != slices.Contains(r.Values, value) && (r.Operator == in || r.Operator == notIn) {
			return false
		}
	}
	return true
}

// acceptance is a rejected pod with a node on which the scheduler would accept it.
type acceptance struct{ pod, node string }

func (r *replays) wronglyRejected(c *Cluster) map[acceptance]bool {
	out := map[acceptance]bool{}
	// A plan spreads pods over hosts as if one more were there: nodes for other pods may be. kube-scheduler binds pods to the nodes that
	// there are before anything is planned for them.
	c.EmptyHost = true
	pods := r.rejectedOnce()
	r.rejectedGroups(c, out)
	try := func(c *Cluster, n *ClusterNode, name string) {
		later, at := c.withDaemons(r.s, n)
		for _, pod := range pods {
			if c.filter(pod, n) == "" && (later == c || later.staysWith(pod, at)) {
				out[acceptance{pod.Name, name}] = true
			}
		}
	}
	for _, n := range c.Nodes[:len(r.s.Nodes)] {
		try(c, n, n.Name)
	}
	for k := range r.s.Pools {
		r.eachOneMore(c, &r.s.Pools[k], try)
	}
	return out
}

// rejectedOnce are the rejected pods, one of those that a scheduler cannot distinguish.
func (r *replays) rejectedOnce() (out []*corev1.Pod) {
	for i := range r.plan.Rejected {
		pod := successor(r.plan.Rejected[i].Pod)
		if r.groups != nil && inAnyGroup(pod) {
			continue
		}
		if !slices.ContainsFunc(out, func(o *corev1.Pod) bool {
			return o.Namespace == pod.Namespace && maps.Equal(o.Labels, pod.Labels) && reflect.DeepEqual(o.Spec, pod.Spec)
		}) {
			out = append(out, pod)
		}
	}
	return out
}

// eachOneMore calls try with each node that one more node of the pool could be, with its daemons, in a cluster that has it. A pool at its
// limit has none.
func (r *replays) eachOneMore(c *Cluster, pool *snapshot.Pool, try func(c *Cluster, n *ClusterNode, name string)) {
	used := pool.Used[karpv1.ResourceNodes]
	launches := used.Value()
	for i := range r.plan.Launches {
		if r.plan.Launches[i].Pool.Name == pool.NodePool.Name {
			launches++
		}
	}
	if limit, ok := pool.NodePool.Spec.Limits[karpv1.ResourceNodes]; ok && launches >= limit.Value() {
		return
	}
	for _, out := range offeredBy(pool) {
		if exhausted(&r.plan, out.o) {
			continue
		}
		node := out.node("one-more", pool, map[string]string{pool.NodeClassLabel[0]: pool.NodeClassLabel[1]})
		with := &Cluster{Nodes: append(slices.Clone(c.Nodes), node), World: c.World, Filter: c.Filter, EmptyHost: true, daemons: c.daemons}
		with.Devices = c.copiedDevices()
		with.startDaemons(node)
		try(with, node, out.named(pool.NodePool.Name))
	}
}

// offeredBy is what a node of the pool can be now.
func offeredBy(pool *snapshot.Pool) (all []outcome) {
	reqs := pool.NodePool.Spec.Template.Spec.Requirements
	for _, it := range pool.InstanceTypes {
		arch, _ := it.Requirements.Get(Arch).Single()
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if !o.Available || !allowed(reqs, Arch, arch) || !allowed(reqs, Zone, o.Zone) || !allowed(reqs, Capacity, o.CapacityType) {
				continue
			}
			if z, ok := pool.NodePool.Spec.Template.Labels[Zone]; ok && z != o.Zone {
				continue
			}
			all = append(all, outcome{it, o})
		}
	}
	return all
}
