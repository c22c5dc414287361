package schedule

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Budget bounds the work of a Solve, in steps, so that the result does not depend on the machine. One step is
// one instance type looked at. When the budget is spent the plan is finished without looking ahead: it
// is as correct as ever, but may cost more.
type Budget struct {
	// Steps is the bound; zero means that there is none.
	Steps int
}

// Policies of snapshot.Settings.
const (
	preferIgnore = "Ignore"
	bestEffort   = "BestEffort"
)

// solver is the state of one Solve.
type solver struct {
	s          *snapshot.Snapshot
	budget     Budget
	respect    bool // soft constraints count until they stand in the way
	bestEffort bool // minValues may be lowered
	softTaints bool // some pool has a taint of effect PreferNoSchedule

	axes      axes
	simulated map[types.UID]bool // pods that this Solve places
	daemons   []*daemon
	templates []*template
	nodes     []*node
	bins      []*bin
	classes   []*class
	groups    []*group
	groupByID map[string]*group

	market *market
	listed int // candidates made so far

	steps int
	// generation counts placements: a pod that failed is not tried again before something has changed.
	generation int
	rejected   []Rejection
}

// Solve places the snapshot's pods: on nodes that exist or are on their way first, then into new claims of the
// heaviest pool that can take them. Soft constraints are respected as long as they can be. Whatever the
// budget, every pod of the snapshot is in the plan exactly once.
func Solve(s *snapshot.Snapshot, budget Budget) Plan {
	sv := &solver{
		s: s, budget: budget, groupByID: map[string]*group{}, simulated: map[types.UID]bool{}, generation: 1,
		respect: s.Settings.PreferencePolicy != preferIgnore, bestEffort: s.Settings.MinValuesPolicy == bestEffort,
	}
	queue := sv.compile()
	queue = sv.honourNominations(queue)
	sv.appraise()
	queue = sv.placeAll(queue)
	return sv.plan(queue)
}

// compile brings the snapshot into the form that placement works on, in an order that does not depend on the snapshot's.
func (sv *solver) compile() []*queued {
	s := sv.s
	pods := make([]*corev1.Pod, 0, len(s.Pods))
	for _, p := range s.Pods {
		if !sv.simulated[p.UID] {
			sv.simulated[p.UID] = true
			pods = append(pods, p)
		}
	}
	for i := range s.DaemonSets {
		if d, ok := newDaemon(s.Labels, &s.DaemonSets[i]); ok {
			sv.daemons = append(sv.daemons, d)
		}
	}
	requests := make([]corev1.ResourceList, len(pods), len(pods)+len(sv.daemons))
	for i, p := range pods {
		requests[i] = snapshot.Requests(p)
	}
	for _, d := range sv.daemons {
		requests = append(requests, d.requests)
	}
	// A node that has handed out more than it has of these takes nothing more, whatever the pod asks for.
	always := corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}}
	sv.axes = newAxes(append(requests, always)...)
	for _, d := range sv.daemons {
		d.vec = sv.axes.vec(d.requests)
	}

	nodes := make([]*snapshot.Node, len(s.Nodes))
	for i := range s.Nodes {
		nodes[i] = &s.Nodes[i]
	}
	slices.SortFunc(nodes, nodeOrder)
	for i, n := range nodes {
		sv.nodes = append(sv.nodes, sv.node(n, i))
	}
	pools := make([]*snapshot.Pool, 0, len(s.Pools))
	for i := range s.Pools {
		if s.Pools[i].NodePool.Spec.Replicas == nil {
			pools = append(pools, &s.Pools[i])
		}
	}
	slices.SortFunc(pools, poolOrder)
	types := 0 // of the templates so far
	for i, p := range pools {
		t := sv.template(p)
		t.index, t.first = i, types
		types += len(t.types)
		sv.templates = append(sv.templates, t)
		sv.softTaints = sv.softTaints || slices.ContainsFunc(t.taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
	}
	return sv.classify(pods, requests[:len(pods)])
}

// classify groups pods into classes and returns them in the order of placement.
func (sv *solver) classify(pods []*corev1.Pod, requests []corev1.ResourceList) []*queued {
	queue := make([]*queued, len(pods))
	for i, p := range pods {
		cpu, memory := requests[i][corev1.ResourceCPU], requests[i][corev1.ResourceMemory]
		queue[i] = &queued{pod: p, requests: requests[i], cpu: units(corev1.ResourceCPU, cpu), memory: units(corev1.ResourceMemory, memory)}
	}
	slices.SortFunc(queue, queueOrder)
	known := map[string]*class{}
	refused := map[string][]Reason{}
	out := queue[:0]
	for _, q := range queue {
		ports := hostPorts(q.pod)
		key, err := classKey(q.pod, q.requests, ports)
		if err != nil {
			sv.rejected = append(sv.rejected, Rejection{Pod: q.pod, Reasons: []Reason{{Code: InvalidPod, Message: err.Error()}}})
			continue
		}
		if known[key] == nil && refused[key] == nil {
			known[key], refused[key] = sv.class(q.pod, q.requests, ports)
		}
		if known[key] == nil {
			sv.rejected = append(sv.rejected, Rejection{Pod: q.pod, Reasons: refused[key]})
			continue
		}
		q.class = known[key]
		q.class.count++
		out = append(out, q)
	}
	sv.countDeclared()
	for _, c := range sv.classes {
		for _, g := range sv.groups {
			switch selected := g.selects(c.pod); {
			case selected && g.kind == inverse:
				c.blockedBy = append(c.blockedBy, g)
			case selected:
				c.matches = append(c.matches, g)
			}
		}
	}
	return out
}

// class compiles what all pods like this one need, or says why they cannot be considered.
func (sv *solver) class(pod *corev1.Pod, requests corev1.ResourceList, ports []hostPort) (*class, []Reason) {
	node, reasons := sv.validate(pod)
	if len(reasons) > 0 {
		return nil, reasons
	}
	volumes := podVolumes(sv.s, pod)
	alternatives, reasons := volumeAlternatives(sv.s.Labels, volumes)
	if len(reasons) > 0 {
		return nil, reasons
	}
	c := &class{pod: pod, node: node, requests: sv.axes.vec(requests), ports: ports, volumes: alternatives, attached: attachments(volumes)}
	c.shapes = sv.shapes(pod, node)
	for _, term := range requiredAnti(pod) {
		c.declares = append(c.declares, sv.affinityGroup(inverse, pod, &term))
	}
	sv.classes = append(sv.classes, c)
	return c, nil
}

// honourNominations places pods on the claims that were bought for them. A claim that is not up yet keeps
// its pods whatever else has changed; a node that is up keeps those that still fit.
func (sv *solver) honourNominations(queue []*queued) []*queued {
	byUID := make(map[types.UID]*queued, len(queue))
	for _, q := range queue {
		byUID[q.pod.UID] = q
	}
	for _, n := range sv.nodes {
		if n.src.Deleting {
			continue
		}
		for _, uid := range slices.Sorted(slices.Values(n.src.Nominated)) {
			q, ok := byUID[uid]
			if !ok || (n.src.Initialized && !sv.stillFits(n, q.class)) {
				continue
			}
			delete(byUID, uid)
			sv.join(n, q.class, q.pod)
			q.class.count--
		}
	}
	return slices.DeleteFunc(queue, func(q *queued) bool { return byUID[q.pod.UID] == nil })
}

func (sv *solver) stillFits(n *node, c *class) bool {
	return slices.ContainsFunc(c.shapes, func(sh *shape) bool {
		ok, _ := sv.joins(n, c, sh)
		return ok
	})
}

// placeAll goes through the queue until a whole pass places nothing, since one pod's place can be what another
// waits for, and returns what is left.
func (sv *solver) placeAll(queue []*queued) []*queued {
	for {
		before := sv.generation
		var left []*queued
		for i, q := range queue {
			if q.class.failedAt == sv.generation || !sv.place(q, queue[i:]) {
				q.class.failedAt = sv.generation
				left = append(left, q)
				continue
			}
			q.class.count--
			sv.generation++
		}
		if queue = left; len(queue) == 0 || sv.generation == before {
			return queue
		}
	}
}

// place finds a home for one pod, giving up its preferences one by one.
func (sv *solver) place(q *queued, rest []*queued) bool {
	for _, sh := range q.class.shapes {
		if sv.placeOnNode(q, sh) || sv.placeInBin(q, sh, thrifty) || sv.placeInNewBin(q, sh, rest) || sv.placeInBin(q, sh, pressing) {
			return true
		}
	}
	return false
}

func (sv *solver) placeOnNode(q *queued, sh *shape) bool {
	for _, n := range sv.nodes {
		if sh.deadNodes.has(n.index) {
			continue
		}
		ok, never := sv.joins(n, q.class, sh)
		if ok {
			sv.join(n, q.class, q.pod)
			return true
		}
		if never {
			sh.deadNodes.add(n.index)
		}
	}
	return false
}

func (sv *solver) placeInBin(q *queued, sh *shape, u urgency) bool {
	for len(sh.refused) < len(sv.bins) {
		sh.refused = append(sh.refused, 0)
	}
	for _, b := range sv.bins {
		if sh.deadBins.has(b.index) || (u == thrifty && sh.refused[b.index] == b.version+1) {
			continue
		}
		g, why := sv.grow(b, q.class, sh, u)
		if why == nil {
			b.ceiling = max(b.ceiling, g.types[0].price)
			sv.put(b, q.class, sh, q.pod, g)
			return true
		}
		if why.never {
			sh.deadBins.add(b.index)
		}
		if why.code == Resources {
			sh.refused[b.index] = b.version + 1
		}
	}
	return false
}

func (sv *solver) placeInNewBin(q *queued, sh *shape, rest []*queued) bool {
	for _, t := range sv.templates {
		if t.broken.Code != "" {
			continue
		}
		b := sv.newBin(t)
		g, why := sv.grow(b, q.class, sh, pressing)
		if why != nil {
			continue
		}
		b.ceiling = sv.ceiling(b, q.class, g, rest)
		sv.bins = append(sv.bins, b)
		sv.put(b, q.class, sh, q.pod, g)
		return true
	}
	return false
}

// plan turns the solver's state into the answer.
func (sv *solver) plan(left []*queued) Plan {
	p := Plan{Rejected: sv.rejected}
	why := map[*class][]Reason{}
	for _, q := range left {
		if why[q.class] == nil {
			why[q.class] = sv.explain(q.class)
		}
		p.Rejected = append(p.Rejected, Rejection{Pod: q.pod, Reasons: why[q.class]})
	}
	for _, n := range sv.nodes {
		if len(n.placed) > 0 {
			p.Placements = append(p.Placements, Placement{Node: n.src.Name, Claim: n.src.Claim, Pods: n.placed})
		}
	}
	for _, b := range sv.bins {
		launch, why := sv.launch(b)
		if why.Code != "" {
			for _, pod := range b.pods {
				p.Rejected = append(p.Rejected, Rejection{Pod: pod, Reasons: []Reason{why}})
			}
			continue
		}
		p.Launches = append(p.Launches, launch)
		p.Stats.HourlyCost += launch.Offering.Price
	}
	slices.SortStableFunc(p.Rejected, func(a, b Rejection) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	p.Stats.Pods, p.Stats.Classes, p.Stats.Steps = len(sv.simulated), len(sv.classes), sv.steps
	p.Stats.LowerBound = sv.lowerBound()
	for _, t := range sv.templates {
		p.Stats.InstanceTypes += len(t.types)
	}
	return p
}
