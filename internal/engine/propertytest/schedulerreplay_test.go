package propertytest_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// schedulerWorlds is how many worlds a test run compares with the rules of the scheduler.
	schedulerWorlds = 400
	// replaysPerWorld is how many outcomes of the launches are replayed at most, ordersPerReplay in how many orders pods are tried.
	replaysPerWorld, ordersPerReplay = 24, 400
	// fewestReplays are enough where no rejected pod would be accepted.
	fewestReplays = 3
)

// mendedWorlds are those after the first schedulerWorlds in which plans once differed: two policies of one constraint were one group, a
// node for other pods made a domain that counted, pods without a rule sat on a node before its zone was chosen, rules of two apps crossed.
var mendedWorlds = []uint64{595, 691, 746, 1694, 1922, 2285, 3597, 4459, 5975}

// TestTheSchedulerAcceptsPlans carries plans out under the scheduler's rules: the launches come up, as any of what they may
// become, and daemons start. Then there is an order in which the scheduler accepts each pod on its node, and after it no pod
// that was rejected would be accepted by an existing node, or by one more node that can be launched.
// DOVETAIL_WORLDS=first,count compares others.
func TestTheSchedulerAcceptsPlans(t *testing.T) {
	schedulerAccepts(t, func(seed uint64) *snapshot.Snapshot { return seeded(3_000_000 + seed).schedulerWorld() }, nil, mendedWorlds...)
}

// TestTheSchedulerAcceptsPlansOverFullHosts does the same for clusters of which each node has pods that spread over hosts, and mostly no
// room for more: how many of them a new host may hold depends on those.
func TestTheSchedulerAcceptsPlansOverFullHosts(t *testing.T) {
	schedulerAccepts(t, func(seed uint64) *snapshot.Snapshot { return seeded(5_000_000 + seed).fullHostsWorld() }, openWorlds)
}

// openWorlds are worlds over full hosts whose plans the scheduler does not follow, and why. A plan that comes to be right leaves the list.
var openWorlds = map[uint64]string{
	157: "rejected", // a pod that keeps a DaemonSet's pod off its zone: the plan counts that pod on the new node all the same
}

func schedulerAccepts(t *testing.T, world func(seed uint64) *snapshot.Snapshot, open map[uint64]string, more ...uint64) {
	first, count := worldRange(t, schedulerWorlds)
	placed, rejected, failed := 0, 0, 0
	all := os.Getenv("DOVETAIL_FINDINGS") != "" // list every difference, each as found
	var seeds []uint64
	for seed := first; seed < first+count; seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range append(seeds, more...) {
		if failed == 3 && !all {
			break
		}
		s := world(seed)
		plan := schedule.Solve(s, schedule.Budget{})
		why := schedulerDisagrees(s, plan, seed)
		placed, rejected = placed+len(s.Pods)-len(plan.Rejected), rejected+len(plan.Rejected)
		kind, _, _ := strings.Cut(why, ":")
		if known, isOpen := open[seed]; isOpen {
			if known != kind {
				t.Errorf("world %d is open: got %q, want %s; if its plan is right now, remove it from the list", seed, why, known)
			}
			continue
		}
		if why == "" {
			continue
		}
		failed++
		small := shrink(s, func(w *snapshot.Snapshot) bool {
			if len(w.Pools) == 0 {
				return false
			}
			found := schedulerDisagrees(w, schedule.Solve(w, schedule.Budget{}), seed)
			return strings.HasPrefix(found, kind+":")
		})
		smallPlan := schedule.Solve(small, schedule.Budget{})
		t.Errorf("world %d: %s\nshrunk: %s\n%s%s", seed, why, schedulerDisagrees(small, smallPlan, seed), show(small), describe(smallPlan))
	}
	if failed == 0 && (placed < 2*int(count) || rejected < int(count)/2) {
		t.Errorf("too little happened: %d pods placed, %d rejected", placed, rejected)
	}
	t.Logf("%d pods placed, %d rejected, %d of %d worlds differ", placed, rejected, failed, count)
}

// schedulerDisagrees is what the scheduler would not do as planned; empty if nothing. Of a rejected pod it must be the same
// on the same node whatever the launches become: where the plan cannot know, the next one will.
func schedulerDisagrees(s *snapshot.Snapshot, plan schedule.Plan, seed uint64) string {
	d := seeded(seed)
	var accepted map[acceptance]bool
	for replay := range replaysPerWorld {
		c, why := carryOut(s, plan, replay, d)
		if why != "" {
			return why
		}
		now := wronglyRejected(s, plan, c)
		gone := wronglyRejected(s, plan, c.withoutTerminating())
		maps.DeleteFunc(now, func(a acceptance, _ bool) bool { return !gone[a] })
		if accepted == nil {
			accepted = now
		}
		maps.DeleteFunc(accepted, func(a acceptance, _ bool) bool { return !now[a] })
		if replay >= fewestReplays && len(accepted) == 0 {
			return ""
		}
	}
	for a := range accepted {
		return "rejected: " + a.pod + " fits on " + a.node
	}
	return ""
}

// rulesAboutOthers is how many rules about other pods the pod has.
func rulesAboutOthers(p *corev1.Pod) int {
	return len(p.Spec.TopologySpreadConstraints) + len(nearOf(p)) + len(antiTerms(p))
}

// binding is a pod and the node that the plan has for it.
type binding struct {
	pod  *corev1.Pod
	node *schedNode
}

// carryOut is the cluster after the plan, or the pod that the scheduler refuses, with the pods that terminate now and without them.
func carryOut(s *snapshot.Snapshot, plan schedule.Plan, replay int, d random) (*schedCluster, string) {
	c := &schedCluster{namespaces: s.Namespaces}
	var todo []binding
	for i := range s.Nodes {
		n := &s.Nodes[i]
		node := &schedNode{name: n.Name, labels: n.Labels, taints: n.Taints, allocatable: n.Allocatable, pods: slices.Clone(n.Pods)}
		c.nodes = append(c.nodes, node)
		for _, p := range plan.Placements {
			if p.Node == n.Name {
				todo = appendBindings(todo, p.Pods, node)
			}
		}
	}
	existing := len(c.nodes)
	for i := range plan.Launches {
		node := launchedNode(s, &plan.Launches[i], fmt.Sprintf("new-%d", i), replay, d)
		c.nodes = append(c.nodes, node)
		todo = appendBindings(todo, plan.Launches[i].Pods, node)
	}
	for _, node := range c.nodes[existing:] {
		c.startDaemons(s, node)
	}
	var stuck []binding
	late := map[string]int{}
	for try := range ordersPerReplay {
		from := c
		if try/2%2 == 1 {
			from = c.withoutTerminating()
		}
		after := from.copy()
		fresh := map[*schedNode]*schedNode{}
		for i, n := range c.nodes {
			fresh[n] = after.nodes[i]
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
		if stuck = after.bind(queue, try%2 == 0); len(stuck) == 0 {
			return after.withTerminatingOf(c), ""
		}
		for _, b := range stuck {
			late[b.pod.Name]++
		}
		if try == ordersPerReplay-1 {
			b := stuck[0]
			return nil, fmt.Sprintf("refused: %s on %s: %s", b.pod.Name, b.node.name, after.filter(b.pod, b.node))
		}
	}
	return c, ""
}

// copy is a cluster with the same pods, to which others can be bound.
func (c *schedCluster) copy() *schedCluster {
	out := &schedCluster{namespaces: c.namespaces}
	for _, n := range c.nodes {
		cp := *n
		cp.pods = slices.Clone(n.pods)
		out.nodes = append(out.nodes, &cp)
	}
	return out
}

// withoutTerminating is the cluster once the pods that terminate are gone.
func (c *schedCluster) withoutTerminating() *schedCluster {
	out := c.copy()
	for _, n := range out.nodes {
		n.pods = slices.DeleteFunc(n.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	}
	return out
}

// withTerminatingOf is the cluster with those pods of another that terminate.
func (c *schedCluster) withTerminatingOf(other *schedCluster) *schedCluster {
	out := c.withoutTerminating()
	for i, n := range other.nodes {
		for _, p := range n.pods {
			if p.DeletionTimestamp != nil {
				out.nodes[i].pods = append(out.nodes[i].pods, p)
			}
		}
	}
	return out
}

func appendBindings(list []binding, pods []*corev1.Pod, node *schedNode) []binding {
	for _, p := range pods {
		list = append(list, binding{p, node})
	}
	return list
}

// bind binds each pod as soon as its node accepts it, and returns those that are left. It begins again after each pod, or
// goes through all in turn.
func (c *schedCluster) bind(queue []binding, again bool) []binding {
	for progress := true; progress; {
		progress = false
		for i := 0; i < len(queue); {
			if c.filter(queue[i].pod, queue[i].node) != "" {
				i++
				continue
			}
			queue[i].node.pods = append(queue[i].node.pods, queue[i].pod)
			queue = slices.Delete(slices.Clone(queue), i, i+1)
			if progress = true; again {
				i = 0
			}
		}
	}
	return queue
}

// startDaemons binds the pods of DaemonSets that belong on the node and that it accepts.
func (c *schedCluster) startDaemons(s *snapshot.Snapshot, node *schedNode) {
	for i := range s.DaemonSets {
		if p := daemonPodFor(&s.DaemonSets[i], node.name); c.filter(p, node) == "" {
			node.pods = append(node.pods, p)
		}
	}
}

// launchedNode is one of the nodes that the launch may become: the first in the first replay, the last in the second, then any.
func launchedNode(s *snapshot.Snapshot, l *schedule.Launch, name string, replay int, d random) *schedNode {
	type outcome struct {
		it *catalog.InstanceType
		o  *catalog.Offering
	}
	var outcomes []outcome
	reqs := l.ClaimRequirements()
	for _, it := range l.InstanceTypes {
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.Available && allowed(reqs, Zone, o.Zone) && allowed(reqs, Capacity, o.CapacityType) {
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
		out = pick(d, outcomes[:min(len(outcomes), 256)]...)
	}
	return newSchedNode(name, l.Pool, out.it, out.o, l.ClaimLabels(s.Labels))
}

// newSchedNode is a node as it is once it is initialized.
func newSchedNode(name string, pool *karpv1.NodePool, it *catalog.InstanceType, o *catalog.Offering, more map[string]string) *schedNode {
	n := &schedNode{name: name, labels: map[string]string{}, taints: pool.Spec.Template.Spec.Taints, allocatable: it.Allocatable}
	maps.Copy(n.labels, pool.Spec.Template.Labels)
	maps.Copy(n.labels, more)
	for _, r := range it.Requirements.All() {
		if v, ok := r.Single(); ok {
			n.labels[r.Key()] = v
		}
	}
	maps.Copy(n.labels, map[string]string{
		Zone: o.Zone, Capacity: o.CapacityType, Host: name, corev1.LabelInstanceTypeStable: it.Name, karpv1.LabelNodePool: pool.Name,
		karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
	})
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

func wronglyRejected(s *snapshot.Snapshot, plan schedule.Plan, c *schedCluster) map[acceptance]bool {
	out := map[acceptance]bool{}
	// A plan spreads pods over hosts as if one more were there: nodes for other pods may be. kube-scheduler binds pods to the nodes that
	// there are before anything is planned for them.
	c.emptyHost = true
	for i := range plan.Rejected {
		r := &plan.Rejected[i]
		for _, n := range c.nodes[:len(s.Nodes)] {
			if c.filter(r.Pod, n) == "" {
				out[acceptance{r.Pod.Name, n.name}] = true
			}
		}
		for k := range s.Pools {
			for _, node := range c.acceptedByMore(s, plan, &s.Pools[k], r.Pod) {
				out[acceptance{r.Pod.Name, node}] = true
			}
		}
	}
	return out
}

// acceptedByMore is what one more node of the pool could be that would take the pod. A pool at its limit has none.
func (c *schedCluster) acceptedByMore(s *snapshot.Snapshot, plan schedule.Plan, pool *snapshot.Pool, pod *corev1.Pod) (out []string) {
	launches := int64(0)
	for i := range plan.Launches {
		if plan.Launches[i].Pool.Name == pool.NodePool.Name {
			launches++
		}
	}
	if limit, ok := pool.NodePool.Spec.Limits[karpv1.ResourceNodes]; ok && launches >= limit.Value() {
		return nil
	}
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
			node := newSchedNode("one-more", pool.NodePool, it, o, map[string]string{pool.NodeClassLabel[0]: pool.NodeClassLabel[1]})
			with := &schedCluster{nodes: append(slices.Clone(c.nodes), node), namespaces: c.namespaces, emptyHost: true}
			with.startDaemons(s, node)
			if with.filter(pod, node) == "" {
				out = append(out, fmt.Sprintf("one more %s of %s in %s as %s", it.Name, pool.NodePool.Name, o.Zone, o.CapacityType))
			}
		}
	}
	return out
}
