package propertytest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// simplePlanner is a planner that shares no code with the engine: pods in some order, each onto the first node that
// takes it, existing ones first, then launches of this plan, then a new one of a fixed type and offering in the
// heaviest pool that takes the pod. It adds a pod if the plan so far is valid with it: package validate decides.
type simplePlanner struct {
	s     *snapshot.Snapshot
	r     *rand.Rand
	pools []*snapshot.Pool
	plan  schedule.Plan
	// waiting are the pods without a node.
	waiting []*corev1.Pod
	labels  map[*corev1.Pod][]requirement.Set // alternatives
}

func newSimplePlanner(s *snapshot.Snapshot, r *rand.Rand) *simplePlanner {
	p := &simplePlanner{s: s, r: r, waiting: slices.Clone(s.Pods), labels: map[*corev1.Pod][]requirement.Set{}}
	for i := range s.Pools {
		p.pools = append(p.pools, &s.Pools[i])
	}
	weight := func(p *snapshot.Pool) int32 {
		if p.NodePool.Spec.Weight == nil {
			return 0
		}
		return *p.NodePool.Spec.Weight
	}
	slices.SortStableFunc(p.pools, func(a, b *snapshot.Pool) int { return cmp.Compare(weight(b), weight(a)) })
	for _, pod := range s.Pods {
		node, err := s.Labels.FromPod(&pod.Spec)
		switch {
		case err != nil:
		case node.Required == nil:
			p.labels[pod] = []requirement.Set{node.Selector}
		default:
			for _, term := range node.Required {
				p.labels[pod] = append(p.labels[pod], node.Selector.Intersect(term))
			}
		}
	}
	return p
}

// valid reports whether the plan so far is, with the waiting pods rejected and the pod scheduled last.
func (p *simplePlanner) valid(pod *corev1.Pod) bool {
	plan := p.plan
	plan.Stats = schedule.Stats{Pods: len(p.s.Pods), NodeCost: p.s.Settings.NodeCost * float64(len(plan.Launches))}
	for i := range plan.Launches {
		plan.Stats.HourlyCost += plan.Launches[i].Offering.Price
	}
	for _, pod := range p.waiting {
		plan.Rejected = append(plan.Rejected, schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{Code: "none", Rule: &rejection.Rule{Stated: "none"}}}})
	}
	return len(validate.Check(p.s, plan)) == 0 && validate.SpreadHoldsLast(p.s, plan, pod)
}

// run plans the pods and returns how many have a node.
func (p *simplePlanner) run(order []*corev1.Pod) int {
	placed := 0
	for _, pod := range order {
		i := slices.Index(p.waiting, pod)
		p.waiting = slices.Delete(p.waiting, i, i+1)
		if p.place(pod) {
			placed++
		} else {
			p.waiting = append(p.waiting, pod)
		}
	}
	return placed
}

func (p *simplePlanner) place(pod *corev1.Pod) bool {
	for i := range p.s.Nodes {
		n := &p.s.Nodes[i]
		p.plan.Placements = append(p.plan.Placements, schedule.Placement{Node: n.Name, Claim: n.Claim, Pods: []*corev1.Pod{pod}})
		if p.valid(pod) {
			return true
		}
		p.plan.Placements = p.plan.Placements[:len(p.plan.Placements)-1]
	}
	for i := range p.plan.Launches {
		before := p.plan.Launches[i]
		for _, labels := range p.labels[pod] {
			if p.add(&p.plan.Launches[i], pod, labels) && p.valid(pod) {
				return true
			}
			p.plan.Launches[i] = before
		}
	}
	for _, pool := range p.pools {
		if p.launch(pod, pool) {
			return true
		}
	}
	return false
}

// add puts the pod on a launch; false if the type or the offering has other labels.
func (p *simplePlanner) add(l *schedule.Launch, pod *corev1.Pod, labels requirement.Set) bool {
	var drop []string
	for _, key := range labels.Keys() {
		if !l.Requirements.Defines(key) && !p.s.Labels.WellKnown[key] {
			drop = append(drop, key)
		}
	}
	l.Requirements = l.Requirements.Intersect(labels.Without(drop...))
	l.Pods = append(slices.Clone(l.Pods), pod)
	total := corev1.ResourceList{}
	for _, other := range l.Pods {
		for name, q := range snapshot.Requests(other) {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	l.Requests = total
	it := l.InstanceTypes[0]
	return l.Requirements.Overlaps(it.Requirements) && l.Requirements.Overlaps(l.Offering.Requirements)
}

// launch tries the offerings of the pool in a random order.
func (p *simplePlanner) launch(pod *corev1.Pod, pool *snapshot.Pool) bool {
	own, err := p.s.Labels.FromPool(pool.NodePool, pool.NodeClassLabel)
	if err != nil {
		return false
	}
	type choice struct {
		it *catalog.InstanceType
		o  *catalog.Offering
	}
	var choices []choice
	for _, it := range pool.InstanceTypes {
		for k := range it.Offerings {
			if o := &it.Offerings[k]; o.Available && own.Overlaps(it.Requirements) && own.Overlaps(o.Requirements) {
				choices = append(choices, choice{it, o})
			}
		}
	}
	p.r.Shuffle(len(choices), func(i, j int) { choices[i], choices[j] = choices[j], choices[i] })
	for _, c := range choices {
		for _, labels := range p.labels[pod] {
			l := schedule.Launch{
				Pool: pool.NodePool, InstanceTypes: []*catalog.InstanceType{c.it}, Offering: *c.o,
				Requirements: own.Intersect(c.o.Requirements),
			}
			if !p.add(&l, pod, labels) {
				continue
			}
			p.plan.Launches = append(p.plan.Launches, l)
			if p.valid(pod) {
				return true
			}
			p.plan.Launches = p.plan.Launches[:len(p.plan.Launches)-1]
		}
	}
	return false
}

// tinyWorld is a world of at most six pods, which no claim waits for.
func (d random) tinyWorld() *snapshot.Snapshot {
	s := d.world()
	for len(s.Pods) > 6 {
		k := d.n(len(s.Pods))
		s.Pods = slices.Delete(s.Pods, k, k+1)
	}
	s.Nodes = s.Nodes[:min(2, len(s.Nodes))]
	for i := range s.Nodes {
		s.Nodes[i].Nominated = nil
	}
	for i := range s.Pools {
		s.Pools[i].InstanceTypes = s.Pools[i].InstanceTypes[:min(3, len(s.Pools[i].InstanceTypes))]
		// A label for which a claim makes up a value is no domain that the engine counts on.
		reqs := &s.Pools[i].NodePool.Spec.Template.Spec.Requirements
		*reqs = slices.DeleteFunc(*reqs, func(r karpv1.Requirement) bool { return !s.Labels.IsWellKnown(r.Key) && r.Operator != in })
	}
	return s
}

// considered are the pods that planning considers at all.
func considered(s *snapshot.Snapshot, plan schedule.Plan) []*corev1.Pod {
	out := slices.Clone(s.Pods)
	for i := range plan.Rejected {
		r := &plan.Rejected[i]
		if slices.ContainsFunc(r.Reasons, func(why schedule.Reason) bool {
			return why.Code == schedule.DeviceClaims || r.Ignored() && why.Code != schedule.VolumeInUse
		}) {
			out = slices.DeleteFunc(out, func(p *corev1.Pod) bool { return p == r.Pod })
		}
	}
	return out
}

const (
	// tinyWorlds sets how many worlds a test run compares with the simple planner, ordersPerWorld in how many orders of
	// the pods each.
	tinyWorlds     = 300
	ordersPerWorld = 6
)

// TestNoSimplePlannerPlacesMorePods compares plans of tiny worlds with those of a simple planner in random orders.
func TestNoSimplePlannerPlacesMorePods(t *testing.T) {
	first, count := worldRange(t, tinyWorlds)
	compared, failed := 0, 0
	for seed := first; seed < first+count && failed < 3; seed++ {
		s := seeded(2_000_000 + seed).tinyWorld()
		plan := schedule.Solve(s, schedule.Budget{})
		pods := considered(s, plan)
		r := rand.New(rand.NewPCG(seed, 4))
		for range ordersPerWorld {
			if len(plan.Rejected) == len(s.Pods)-len(pods) {
				break // all pods that count have a node
			}
			compared++
			r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			simple := newSimplePlanner(s, r)
			if n, want := len(s.Pods)-len(plan.Rejected), simple.run(pods); n < want {
				failed++
				t.Errorf("world %d: the plan places %d pods, first fit in some order %d:\n%s\nfirst fit:\n%s\n%s",
					seed, n, want, Describe(plan), Describe(simple.plan), Show(s))
				break
			}
		}
	}
	if compared < int(count) {
		t.Errorf("only %d orders compared in %d worlds", compared, count)
	}
}
