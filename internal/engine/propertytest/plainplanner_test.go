package propertytest

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// plainPlanner plans pod by pod, without any search: large pods first, each onto the first existing node that takes it,
// else onto the first planned claim, else onto a new claim of the first pool by weight. Package validate decides what
// takes what, so the planner knows no rule of scheduling but what it needs to list choices. It drops preferences one by
// one, as Karpenter does.
type plainPlanner struct {
	s     *snapshot.Snapshot
	order claimOrder
	pools []*snapshot.Pool
	base  []requirement.Set // of pools
	nodes []*snapshot.Node
	// on are the pods placed on nodes, by the node's index in nodes.
	on     [][]*corev1.Pod
	claims []*plainClaim
	placed map[*corev1.Pod]bool
	// relaxed counts the preferences dropped for placed pods.
	relaxed int
}

// claimOrder is in which order a pod tries planned claims.
type claimOrder int

const (
	oldestFirst claimOrder = iota
	fewestPodsFirst
)

// plainClaim is a planned claim: all types that hold its pods.
type plainClaim struct {
	pool  *snapshot.Pool
	reqs  requirement.Set
	pods  []*corev1.Pod
	types []*catalog.InstanceType
}

// planPlainly returns the plan of the plain planner, which is valid, and how many preferences it drops; false if the
// cluster violates rules as it is.
func planPlainly(s *snapshot.Snapshot, order claimOrder) (p schedule.Plan, relaxed int, ok bool) {
	m := &plainPlanner{s: s, order: order, placed: map[*corev1.Pod]bool{}}
	for i := range s.Pools {
		if s.Pools[i].NodePool.Spec.Replicas == nil {
			m.pools = append(m.pools, &s.Pools[i])
		}
	}
	slices.SortFunc(m.pools, func(a, b *snapshot.Pool) int {
		return cmp.Or(cmp.Compare(poolWeight(b), poolWeight(a)), cmp.Compare(b.NodePool.Name, a.NodePool.Name))
	})
	m.pools = slices.DeleteFunc(m.pools, func(p *snapshot.Pool) bool {
		reqs, err := s.Labels.FromPool(p.NodePool, p.NodeClassLabel)
		if err == nil {
			m.base = append(m.base, reqs)
		}
		return err != nil
	})
	for i := range s.Nodes {
		m.nodes = append(m.nodes, &s.Nodes[i])
	}
	slices.SortFunc(m.nodes, func(a, b *snapshot.Node) int {
		if a.Initialized != b.Initialized {
			return map[bool]int{true: -1, false: 1}[a.Initialized]
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Claim, b.Claim))
	})
	m.on = make([][]*corev1.Pod, len(m.nodes))
	if !m.valid(nil) {
		return schedule.Plan{}, 0, false
	}
	m.nominated()
	m.run()
	return m.plan(), m.relaxed, true
}

func poolWeight(p *snapshot.Pool) int32 {
	if p.NodePool.Spec.Weight == nil {
		return 0
	}
	return *p.NodePool.Spec.Weight
}

// run places pods until a whole round places none.
func (m *plainPlanner) run() {
	queue := slices.DeleteFunc(slices.Clone(m.s.Pods), func(p *corev1.Pod) bool { return m.placed[p] })
	slices.SortStableFunc(queue, func(a, b *corev1.Pod) int {
		x, y := snapshot.Requests(a), snapshot.Requests(b)
		return cmp.Or(y.Cpu().Cmp(*x.Cpu()), y.Memory().Cmp(*x.Memory()), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.UID, b.UID))
	})
	for before := -1; before != len(queue); {
		before = len(queue)
		queue = slices.DeleteFunc(queue, m.place)
	}
}

// nominated places pods on the nodes that were launched for them.
func (m *plainPlanner) nominated() {
	for i, n := range m.nodes {
		for _, pod := range m.s.Pods {
			if !m.placed[pod] && slices.Contains(n.Nominated, pod.UID) && !n.Deleting {
				m.placeOn(i, pod, pod)
			}
		}
	}
}

// place drops alternatives of what the pod requires, and then preferences, until something takes it.
func (m *plainPlanner) place(pod *corev1.Pod) bool {
	wish := pod.DeepCopy()
	for dropped := 0; ; {
		if m.placeAs(pod, m.hardened(wish)) {
			m.relaxed += dropped
			return true
		}
		if dropAlternative(wish) {
			continue
		}
		if !m.relax(wish) {
			return false
		}
		dropped++
	}
}

// placeAs places a pod where the hardened copy of it can run.
func (m *plainPlanner) placeAs(pod, hard *corev1.Pod) bool {
	node, err := m.s.Labels.FromPod(&hard.Spec)
	if err != nil || node.Required != nil && len(node.Required) == 0 {
		return false
	}
	wants := node.Selector
	if len(node.Required) > 0 {
		wants = wants.Intersect(node.Required[0])
	}
	for i := range m.nodes {
		if _, blocked := snapshot.Untolerated(hard.Spec.Tolerations, m.nodes[i].Taints); !blocked && m.placeOn(i, pod, hard) {
			return true
		}
	}
	claims := slices.Clone(m.claims)
	if m.order == fewestPodsFirst {
		slices.SortStableFunc(claims, func(a, b *plainClaim) int { return cmp.Compare(len(a.pods), len(b.pods)) })
	}
	for _, c := range claims {
		if grown := m.grown(c, hard, wants); grown != nil {
			grown.pods[len(grown.pods)-1] = pod
			*c, m.placed[pod] = *grown, true
			return true
		}
	}
	for i, p := range m.pools {
		if grown := m.grown(&plainClaim{pool: p, reqs: m.base[i], types: m.withinLimits(p)}, hard, wants); grown != nil {
			grown.pods[0] = pod
			m.claims, m.placed[pod] = append(m.claims, grown), true
			return true
		}
	}
	return false
}

func (m *plainPlanner) placeOn(i int, pod, hard *corev1.Pod) bool {
	free := m.nodes[i].Allocatable.DeepCopy()
	for _, p := range slices.Concat(m.nodes[i].Pods, m.on[i], []*corev1.Pod{hard}) {
		if !snapshot.Terminal(p) && !slices.Contains(m.s.Pods, p) || slices.Contains(m.on[i], p) || p == hard {
			subtract(free, snapshot.Requests(p))
		}
	}
	for r := range snapshot.Requests(hard) {
		if q := free[r]; q.Sign() < 0 {
			return false
		}
	}
	m.on[i] = append(m.on[i], hard)
	ok := m.valid(hard)
	m.on[i][len(m.on[i])-1] = pod
	if !ok {
		m.on[i] = m.on[i][:len(m.on[i])-1]
		return false
	}
	m.placed[pod] = true
	return true
}

func subtract(from, what corev1.ResourceList) {
	for r, q := range what {
		left := from[r]
		left.Sub(q)
		from[r] = left
	}
}

// grown is the claim with one more pod; nil if that is not valid in any domain.
func (m *plainPlanner) grown(c *plainClaim, hard *corev1.Pod, wants requirement.Set) *plainClaim {
	if _, blocked := snapshot.Untolerated(hard.Spec.Tolerations, c.pool.NodePool.Spec.Template.Spec.Taints); blocked ||
		!c.reqs.Compatible(wants, m.s.Labels.WellKnown) {
		return nil
	}
	at := slices.Index(m.claims, c)
	for _, pins := range m.domainChoices(c, hard) {
		next := &plainClaim{pool: c.pool, reqs: c.reqs.Intersect(wants).With(pins...), pods: append(slices.Clone(c.pods), hard)}
		if next.types = m.holding(next, c.types); len(next.types) == 0 {
			continue
		}
		before := m.claims
		m.claims = slices.Clone(before)
		if at < 0 {
			m.claims = append(m.claims, next)
		} else {
			m.claims[at] = next
		}
		ok := m.valid(hard)
		m.claims = before
		if ok {
			return next
		}
	}
	return nil
}

// holding returns those of the types that hold the claim's pods and the daemons that may run beside them, cheapest first.
func (m *plainPlanner) holding(c *plainClaim, types []*catalog.InstanceType) []*catalog.InstanceType {
	total := corev1.ResourceList{}
	for _, p := range c.pods {
		quantity.AddTo(total, snapshot.Requests(p))
	}
	var out []*catalog.InstanceType
	for _, it := range types {
		if _, ok := it.Cheapest(c.reqs); !ok || !c.reqs.Overlaps(it.Requirements) {
			continue
		}
		with := total.DeepCopy()
		for i := range m.s.DaemonSets {
			if m.mayRun(m.s.DaemonSets[i].Pod, c, it) {
				quantity.AddTo(with, snapshot.DaemonRequests(m.s.DaemonSets[i].Pod))
			}
		}
		fits := true
		for r, q := range with {
			fits = fits && (q.Sign() <= 0 || q.Cmp(it.Allocatable[r]) <= 0)
		}
		if fits {
			out = append(out, it)
		}
	}
	slices.SortStableFunc(out, func(a, b *catalog.InstanceType) int {
		x, _ := a.Cheapest(c.reqs)
		y, _ := b.Cheapest(c.reqs)
		return cmp.Or(cmp.Compare(x.Price, y.Price), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// mayRun reports whether a pod of the DaemonSet may come with the type.
func (m *plainPlanner) mayRun(pod *corev1.Pod, c *plainClaim, it *catalog.InstanceType) bool {
	if pod == nil || len(pod.Spec.ResourceClaims) > 0 {
		return false
	}
	for _, t := range c.pool.NodePool.Spec.Template.Spec.Taints {
		_, blocked := snapshot.Untolerated(pod.Spec.Tolerations, []corev1.Taint{t})
		if blocked && t.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	node, err := m.s.Labels.FromPod(&pod.Spec)
	if err != nil {
		return false
	}
	reqs := c.reqs.Intersect(it.Requirements).With(
		requirement.In(karpv1.LabelInitialized, "true"), requirement.In(karpv1.LabelRegistered, "true"))
	return reqs.Compatible(node.Selector, m.s.Labels.WellKnown) &&
		(node.Required == nil || slices.ContainsFunc(node.Required, func(t requirement.Set) bool {
			return reqs.Compatible(node.Selector.Intersect(t), m.s.Labels.WellKnown)
		}))
}

// withinLimits are the pool's types that its limits have left for, if each planned claim becomes its largest type.
func (m *plainPlanner) withinLimits(p *snapshot.Pool) []*catalog.InstanceType {
	left := corev1.ResourceList{}
	for r, limit := range p.NodePool.Spec.Limits {
		left[r] = quantity.Clamp(limit).DeepCopy()
	}
	counts := func(it *catalog.InstanceType, r corev1.ResourceName) resource.Quantity {
		if r == karpv1.ResourceNodes {
			return resource.MustParse("1")
		}
		return it.Capacity[r]
	}
	for r := range left {
		subtract(left, corev1.ResourceList{r: p.Used[r]})
		for _, c := range m.claims {
			var most resource.Quantity
			for _, it := range c.types {
				if q := counts(it, r); c.pool == p && q.Cmp(most) > 0 {
					most = q
				}
			}
			subtract(left, corev1.ResourceList{r: most})
		}
	}
	return slices.DeleteFunc(slices.Clone(p.InstanceTypes), func(it *catalog.InstanceType) bool {
		for r, q := range left {
			if n := counts(it, r); n.Sign() > 0 && n.Cmp(q) > 0 {
				return true
			}
		}
		return false
	})
}

// valid reports whether the plan so far violates no rule. The hardened copy, if any, stands for a pod of the snapshot.
func (m *plainPlanner) valid(hard *corev1.Pod) bool {
	s := m.s
	if hard != nil {
		with := *s
		with.Pods = slices.Clone(s.Pods)
		for i, p := range with.Pods {
			if p.UID == hard.UID {
				with.Pods[i] = hard
			}
		}
		s = &with
	}
	p := m.plan()
	p.Rejected = nil
	placed := map[*corev1.Pod]bool{}
	for _, pl := range p.Placements {
		for _, pod := range pl.Pods {
			placed[pod] = true
		}
	}
	for _, l := range p.Launches {
		for _, pod := range l.Pods {
			placed[pod] = true
		}
	}
	for _, pod := range s.Pods {
		if !placed[pod] {
			p.Rejected = append(p.Rejected, notYet(pod))
		}
	}
	return len(validate.Check(s, p)) == 0
}

func notYet(pod *corev1.Pod) schedule.Rejection {
	return schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{Code: schedule.Resources, Rule: &rejection.Rule{Stated: "not yet"}}}}
}

// plan is the plan so far.
func (m *plainPlanner) plan() schedule.Plan {
	p := schedule.Plan{Stats: schedule.Stats{Pods: len(m.s.Pods)}}
	for i, n := range m.nodes {
		if len(m.on[i]) > 0 {
			p.Placements = append(p.Placements, schedule.Placement{Node: n.Name, Claim: n.Claim, Pods: m.on[i]})
		}
	}
	for _, c := range m.claims {
		l := schedule.Launch{
			Pool: c.pool.NodePool, Requirements: c.reqs.Without(karpv1.LabelRegistered, karpv1.LabelInitialized, Host),
			InstanceTypes: c.types, Pods: c.pods, Requests: corev1.ResourceList{},
		}
		l.Offering, _ = c.types[0].Cheapest(c.reqs)
		for _, pod := range c.pods {
			quantity.AddTo(l.Requests, snapshot.Requests(pod))
		}
		p.Launches = append(p.Launches, l)
		p.Stats.HourlyCost += l.Offering.Price
		p.Stats.NodeCost += m.s.Settings.NodeCost
	}
	for _, pod := range m.s.Pods {
		if !m.placed[pod] {
			p.Rejected = append(p.Rejected, notYet(pod))
		}
	}
	return p
}
