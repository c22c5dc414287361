package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxOrderTrials is how often pods of gangs may be tried on nodes, all together, to find out whether they fit in kube-scheduler's order:
// some tenths of a second. Gangs that are left then are not tried: their part of the plan is as likely to fit as that of any pods.
const maxOrderTrials = 1_000_000

// inOrder is the plan, or one with more room for the gangs that do not fit on its nodes in the order of kube-scheduler. That takes the pods
// of a gang, which have one priority, one by one by age, each to the node with the most room, and never takes one back: small pods may
// fill the only node for a large one, and then it binds none of them. A node with room for the largest of the gang's pods in place of each
// of them holds them in any order.
//
// Cost: for gangs with pods of different requests, their pods times the nodes with room for one, at most maxOrderTrials; and one more plan
// if such a gang does not fit.
func inOrder(s *snapshot.Snapshot, groups snapshot.Groups, plan Plan, again func(*snapshot.Snapshot) Plan) Plan {
	larger := map[types.UID]corev1.ResourceList{}
	for _, m := range outOfOrder(s, groups, &plan) {
		for _, pod := range m.pods {
			larger[pod.UID] = m.most
		}
	}
	if len(larger) == 0 {
		return plan
	}
	roomy := *s
	roomy.Recreated = maps.Clone(s.Recreated)
	if roomy.Recreated == nil {
		roomy.Recreated = map[types.UID]corev1.ResourceList{}
	}
	maps.Copy(roomy.Recreated, larger)
	other := again(&roomy)
	if other.Abandoned || len(other.Rejected) > len(plan.Rejected) {
		return plan // limits, or capacity, leave no room for more
	}
	if len(outOfOrder(&roomy, groups, &other)) > 0 {
		return plan
	}
	other.Stats.Steps += plan.Stats.Steps
	return other
}

// outOfOrder are the gangs that do not fit in the order of kube-scheduler, of those that are tried.
func outOfOrder(s *snapshot.Snapshot, groups snapshot.Groups, plan *Plan) (out []*mixedGang) {
	gangs := mixedGangs(s, groups, plan)
	if len(gangs) == 0 {
		return nil
	}
	rooms := roomsOf(s, plan, gangs)
	for _, m := range gangs {
		if !m.fits(s, rooms) {
			out = append(out, m)
		}
	}
	return out
}

// mixedGang is a gang with pods of different requests that a plan places.
type mixedGang struct {
	group *snapshot.Group
	// pods are those without a node, in the order of kube-scheduler.
	pods []*corev1.Pod
	// most is the most that any of them requests.
	most corev1.ResourceList
}

func mixedGangs(s *snapshot.Snapshot, groups snapshot.Groups, plan *Plan) (out []*mixedGang) {
	if len(groups.All()) == 0 {
		return nil
	}
	byGroup := map[*snapshot.Group]*mixedGang{}
	each(plan, func(pod *corev1.Pod) {
		g := groups.Of(pod)
		if g == nil || !g.Gang || g.Held != nil || pod.Spec.NodeName != "" {
			return
		}
		if byGroup[g] == nil {
			byGroup[g] = &mixedGang{group: g, most: corev1.ResourceList{}}
		}
		byGroup[g].pods = append(byGroup[g].pods, pod)
	})
	for _, g := range groups.All() {
		m := byGroup[g]
		if m == nil || len(m.pods) < 2 {
			continue
		}
		slices.SortFunc(m.pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		mixed := false
		for i, pod := range m.pods {
			requests := s.Settings.Compared(&pod.Spec, snapshot.Requests(pod))
			for name, q := range requests {
				if have, known := m.most[name]; !known || q.Cmp(have) > 0 {
					m.most[name], mixed = q, mixed || i > 0
				}
			}
			mixed = mixed || len(requests) < len(m.most) || !quantity.Fits(m.most, requests)
		}
		if mixed {
			out = append(out, m)
		}
	}
	return out
}

// each calls f with each pod that the plan places.
func each(plan *Plan, f func(*corev1.Pod)) {
	for i := range plan.Placements {
		for _, pod := range plan.Placements[i].Pods {
			f(pod)
		}
	}
	for i := range plan.Launches {
		for _, pod := range plan.Launches[i].Pods {
			f(pod)
		}
	}
}

// roomFor is a node with what a plan leaves of it.
type roomFor struct {
	labels      requirement.Set
	undefined   map[string]bool
	taints      []corev1.Taint
	allocatable corev1.ResourceList
	free        corev1.ResourceList
	// largest is the CPU of the largest of the gang's pods that the plan has there, in cores: of equal nodes, others take that.
	largest float64
	// own is true for a copy that one gang is tried on.
	own bool
}

// copied is the room for one gang.
func (n *roomFor) copied() *roomFor {
	out := *n
	out.free, out.own = n.free.DeepCopy(), true
	return &out
}

// rooms are the nodes of a plan and those that exist. Gangs share them, since most nodes are the same for each.
type rooms struct {
	nodes []*roomFor
	// of is the index of the node that has a pod of a gang.
	of map[*corev1.Pod]int
	// trials are how many are left.
	trials int
}

// fits reports whether kube-scheduler finds nodes for as many of the gang's pods as it binds at once. Rules about other pods are left out:
// the plan follows them.
func (m *mixedGang) fits(s *snapshot.Snapshot, all *rooms) bool {
	nodes := m.nodes(all)
	if all.trials -= len(m.pods) * len(nodes); all.trials < 0 {
		return true
	}
	placed := 0
	for _, pod := range m.pods {
		requests := s.Settings.Compared(&pod.Spec, snapshot.Requests(pod))
		selection, err := s.NodeSelection(&pod.Spec)
		if err != nil {
			continue
		}
		best := -1
		for i, n := range nodes {
			if n.takes(pod, requests, selection) && (best < 0 || n.leastAllocated(requests) > nodes[best].leastAllocated(requests)) {
				best = i
			}
		}
		if best < 0 {
			continue
		}
		if !nodes[best].own {
			nodes[best] = nodes[best].copied()
		}
		take(nodes[best].free, requests)
		placed++
	}
	return placed >= min(m.group.Need(0), len(m.pods))
}

// nodes are those with room for one of the gang's pods, as kube-scheduler finds them before it tries the first.
func (m *mixedGang) nodes(all *rooms) (out []*roomFor) {
	changed := map[int]*roomFor{}
	least := snapshot.Requests(m.pods[0])[corev1.ResourceCPU]
	for _, pod := range m.pods {
		requests := snapshot.Requests(pod)
		if cpu := requests[corev1.ResourceCPU]; cpu.Cmp(least) < 0 {
			least = cpu
		}
		i, has := all.of[pod]
		if !has {
			continue
		}
		if changed[i] == nil {
			changed[i] = all.nodes[i].copied()
		}
		changed[i].largest = max(changed[i].largest, requests.Cpu().AsApproximateFloat64())
		give(changed[i].free, requests)
	}
	for i, n := range all.nodes {
		if own := changed[i]; own != nil {
			n = own
		}
		if free := n.free[corev1.ResourceCPU]; least.IsZero() || free.Cmp(least) >= 0 {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b *roomFor) int { return cmp.Compare(b.largest, a.largest) })
	return out
}

// roomsOf are the nodes that exist and those of the plan, with all pods that they run or get.
func roomsOf(s *snapshot.Snapshot, plan *Plan, gangs []*mixedGang) *rooms {
	out := &rooms{of: map[*corev1.Pod]int{}, trials: maxOrderTrials}
	member := map[*corev1.Pod]bool{}
	for _, m := range gangs {
		for _, pod := range m.pods {
			member[pod] = true
		}
	}
	planned := map[string][]*corev1.Pod{}
	for i := range plan.Placements {
		planned[plan.Placements[i].Node] = plan.Placements[i].Pods
	}
	moving := map[types.UID]bool{}
	for _, pod := range s.Pods {
		moving[pod.UID] = true
	}
	add := func(r *roomFor, pods []*corev1.Pod) {
		r.free = r.allocatable.DeepCopy()
		for _, pod := range pods {
			take(r.free, snapshot.Requests(pod))
			if member[pod] {
				out.of[pod] = len(out.nodes)
			}
		}
		out.nodes = append(out.nodes, r)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Deleting || !n.Launched && n.Claim != "" {
			continue
		}
		running := slices.DeleteFunc(slices.Clone(n.Pods), func(p *corev1.Pod) bool { return snapshot.Terminal(p) || moving[p.UID] })
		r := &roomFor{labels: s.Labels.FromNode(n.Labels), taints: n.Taints, allocatable: n.Allocatable}
		if !n.Initialized {
			r.undefined = s.Labels.WellKnown
		}
		add(r, slices.Concat(running, planned[n.Name]))
	}
	for i := range plan.Launches {
		l := &plan.Launches[i]
		r := &roomFor{
			labels: l.Requirements, undefined: s.Labels.WellKnown, taints: l.Pool.Spec.Template.Spec.Taints,
			allocatable: smallest(l.InstanceTypes),
		}
		add(r, l.Pods)
		daemons := l.Requests.DeepCopy() // with what the plan takes for the pods
		for _, pod := range l.Pods {
			counted := s.Recreated[pod.UID]
			if counted == nil {
				counted = s.Settings.Compared(&pod.Spec, snapshot.Requests(pod))
			}
			take(daemons, counted)
		}
		take(r.free, daemons)
	}
	return out
}

// smallest is the least of each resource that one of the types has.
func smallest(types []*catalog.InstanceType) corev1.ResourceList {
	out := types[0].Allocatable.DeepCopy()
	for _, it := range types[1:] {
		for name, q := range out {
			if have := it.Allocatable[name]; have.Cmp(q) < 0 {
				out[name] = have
			}
		}
	}
	return out
}

// take subtracts amounts.
func take(from, amounts corev1.ResourceList) {
	for name, q := range amounts {
		left := from[name].DeepCopy()
		left.Sub(q)
		from[name] = left
	}
}

// give is the opposite of take.
func give(to, amounts corev1.ResourceList) {
	for name, q := range amounts {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

// takes reports whether the node has room for the pod, and its labels and taints allow it.
func (n *roomFor) takes(pod *corev1.Pod, requests corev1.ResourceList, selection requirement.Pod) bool {
	if _, blocked := snapshot.UntoleratedHard(pod.Spec.Tolerations, n.taints); blocked || !quantity.Fits(requests, n.free) {
		return false
	}
	if !n.labels.Compatible(selection.Selector, n.undefined) {
		return false
	}
	return selection.Required == nil || slices.ContainsFunc(selection.Required, func(term requirement.Set) bool {
		return n.labels.Compatible(term, n.undefined)
	})
}

// leastAllocated is the score of NodeResourcesFit, from 0 to 1: the part of CPU and memory that is left with the pod.
func (n *roomFor) leastAllocated(requests corev1.ResourceList) (score float64) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		all, left, want := n.allocatable[name], n.free[name], requests[name]
		if total := all.AsApproximateFloat64(); total > 0 {
			score += (left.AsApproximateFloat64() - want.AsApproximateFloat64()) / total / 2
		}
	}
	return score
}
