package schedule

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Retries in other orders. First fit places pods one after the other and takes none back, so the order of the queue
// decides which pods are left when limits, anti-affinity, host ports or claims for one pod exclude each other. To place
// the most pods is maximum set packing, which is NP-hard. What is guaranteed:
//
//   - If the pods that can be placed at all have at most maxOrders distinct orders, every order is tried: no order of
//     the queue places more pods by first fit than the plan does. Six pods or fewer always do.
//   - Else, if they are of at most maxClassesInOrder classes, every order of whole classes is tried, within the steps
//     for retries.
//   - Else the orders are those of betterOrders, within the steps for retries.
//   - No plan places fewer pods than without retries, and a plan without rejected pods costs no step more.

const (
	// maxOrders is the number of orders up to which all are tried: those of six different pods. Seven would be 5,040.
	maxOrders = 720
	// maxClassesInOrder is the number of classes of which all orders are tried: 720 again.
	maxClassesInOrder = 6
	// minRetrySteps are steps that retries may take in any case.
	minRetrySteps = 100_000
	// allOrdersSteps bounds the steps of trying all orders.
	allOrdersSteps = 10_000_000
)

// solveWithRetries is solve, and then tries other orders of the queue if pods are left that another order may place.
func (sv *solver) solveWithRetries(queue []*queuedPod, budget Budget) Plan {
	plan := sv.solve(queue, budget)
	if plan.Abandoned || budget.FirstFitOnly || len(plan.Rejected) == 0 || budget.MaxSteps > 0 && plan.Stats.Steps >= budget.MaxSteps {
		return plan
	}
	o := newOrderSearch(sv, queue, &plan)
	defer func() { sv.budget = budget }()
	if o == nil {
		return plan
	}
	o.stop = budget.Stop
	o.search(plan.Stats.Steps)
	if sv.abandoned {
		return Plan{Abandoned: true}
	}
	taken := o.steps + plan.Stats.Steps
	if o.best != nil {
		for _, again := range o.plans(budget, taken) {
			taken += again.Stats.Steps
			if again.Abandoned {
				return again
			}
			if len(again.Rejected) < len(plan.Rejected) {
				plan = again
			}
		}
	}
	plan.Stats.Steps = taken
	return plan
}

// orderSearch looks for an order of the queue in which first fit leaves fewer pods.
type orderSearch struct {
	sv   *solver
	stop func() bool
	// pods are those of the queue that some order may place, in queue order; hopeless are the others.
	pods, hopeless []*queuedPod
	// rejected are those of the pods that have no node in the plan.
	rejected map[*queuedPod]bool
	// best is the best order so far, nil if none is better than the plan's; left is how many of the pods it leaves.
	best []*queuedPod
	left int
	// steps are those that the search has taken, most is how many it may take.
	steps, most int
}

// newOrderSearch is nil if no order can place any of the rejected pods.
func newOrderSearch(sv *solver, queue []*queuedPod, plan *Plan) *orderSearch {
	waiting := make(map[*corev1.Pod]bool, len(plan.Rejected))
	for i := range plan.Rejected {
		waiting[plan.Rejected[i].Pod] = true
	}
	o := &orderSearch{sv: sv, rejected: map[*queuedPod]bool{}, most: math.MaxInt}
	alone := map[*class]bool{}
	for _, q := range queue {
		if !waiting[q.pod] {
			o.pods = append(o.pods, q)
			continue
		}
		possible, known := alone[q.class]
		if !known {
			possible = o.possible(q)
			alone[q.class] = possible
		}
		if !possible {
			o.hopeless = append(o.hopeless, q)
			continue
		}
		o.pods = append(o.pods, q)
		o.rejected[q] = true
	}
	if o.left = len(o.rejected); o.left == 0 {
		return nil
	}
	return o
}

// possible reports whether some order may place the pod: it fits alone, or depends on other pods.
func (o *orderSearch) possible(q *queuedPod) bool {
	c := q.class
	if len(c.Invalid()) > 0 || c.unplaceable() {
		return false
	}
	last := c.Levels()[len(c.Levels())-1]
	return slices.ContainsFunc(last.Groups(), func(g *topology.Group) bool { return g.NeedsDomain() }) ||
		len(o.try([]*queuedPod{q})) == 0
}

// try plans the pods in an order by first fit, and returns those that are left.
func (o *orderSearch) try(order []*queuedPod) (left []*queuedPod) {
	sv := o.sv
	defer sv.undoRun()
	sv.budget = Budget{MaxSteps: max(1, o.most-o.steps), Stop: o.stop, FirstFitOnly: true}
	sv.strategy, sv.costCeiling = firstFit, math.Inf(1)
	for _, q := range order {
		q.placed = false
	}
	rest, _ := sv.splitUnplaceable(sv.applyNominations(sv.startRun(order)))
	sv.placeAll(rest)
	o.steps += sv.steps
	for _, q := range order {
		if !q.placed {
			left = append(left, q)
		}
	}
	return left
}

// improve tries an order, and keeps it if it is better than the best. It returns what the order leaves.
func (o *orderSearch) improve(order []*queuedPod) []*queuedPod {
	left := o.try(order)
	if len(left) < o.left {
		o.best, o.left = slices.Clone(order), len(left)
	}
	return left
}

// done reports whether the search is over: all pods have a node, or the steps are spent.
func (o *orderSearch) done() bool { return o.left == 0 || o.steps >= o.most || o.sv.abandoned }

// search tries orders. The plan took so many steps.
func (o *orderSearch) search(planned int) {
	units := o.byClass()
	if few(units) {
		o.most = o.steps + allOrdersSteps
		o.permute(units, make([]*queuedPod, 0, len(o.pods)))
		return
	}
	o.most = o.steps + max(minRetrySteps, planned/2)
	if len(units) <= maxClassesInOrder {
		whole := make([]orderUnits, len(units))
		for i, u := range units {
			whole[i] = orderUnits{slices.Concat(u...)}
		}
		o.permute(whole, make([]*queuedPod, 0, len(o.pods)))
	}
	o.betterOrders()
}

// orderUnits are units of pods that keep their order among each other: the pods of one class, one by one or all at once.
type orderUnits [][]*queuedPod

// byClass are the pods by class, in the order of the first pods, each pod a unit.
func (o *orderSearch) byClass() []orderUnits {
	index := map[*class]int{}
	var out []orderUnits
	for _, q := range o.pods {
		i, known := index[q.class]
		if !known {
			i = len(out)
			index[q.class], out = i, append(out, nil)
		}
		out[i] = append(out[i], []*queuedPod{q})
	}
	return out
}

// few reports whether the units have at most maxOrders distinct orders: the multinomial coefficient of their numbers.
func few(units []orderUnits) bool {
	orders, n := 1, 0
	for _, u := range units {
		for k := range u {
			n++
			if orders = orders * n / (k + 1); orders > maxOrders {
				return false
			}
		}
	}
	return true
}

// permute tries all orders that begin with prefix and go on with the units.
func (o *orderSearch) permute(units []orderUnits, prefix []*queuedPod) {
	rest := false
	for i, u := range units {
		if len(u) == 0 {
			continue
		}
		rest = true
		units[i] = u[1:]
		o.permute(units, append(prefix, u[0]...))
		units[i] = u
		if o.done() {
			return
		}
	}
	if !rest {
		o.improve(prefix)
	}
}

// betterOrders tries a few orders that often place more, then improves the best one: pods that are left go to the front
// (squeaky wheel optimization, Joslin and Clements 1999), and each class in turn to the end, until neither helps.
func (o *orderSearch) betterOrders() {
	for _, key := range []func(*queuedPod) int{
		func(q *queuedPod) int { return btoi(!o.rejected[q]) },
		func(q *queuedPod) int { return len(o.sv.candidateLists(q.class.Constraints)) },
		func(q *queuedPod) int { return btoi(!q.class.isRequired()) },
	} {
		if o.squeak(sortedBy(o.pods, key)); o.done() {
			return
		}
	}
	reversed := slices.Clone(o.pods)
	slices.Reverse(reversed) // smallest first
	o.squeak(reversed)
	for before := math.MaxInt; o.left < before && !o.done(); {
		before = o.left
		o.postponeClasses()
	}
}

// isRequired reports whether other pods follow the pods of the class: they have affinity to them.
func (c *class) isRequired() bool {
	return slices.ContainsFunc(c.Matches(), func(g *topology.Group) bool { return g.Type() == topology.Affinity })
}

// maxSqueaks is how often the pods that an order leaves are moved to the front of it.
const maxSqueaks = 8

// squeak tries an order, then the same with the pods that it leaves in front, and so on while that places more.
func (o *orderSearch) squeak(order []*queuedPod) {
	fewest := math.MaxInt
	for range maxSqueaks {
		left := o.improve(order)
		if o.done() || len(left) >= fewest {
			return
		}
		fewest = len(left)
		squeaky := make(map[*queuedPod]bool, len(left))
		for _, q := range left {
			squeaky[q] = true
		}
		order = sortedBy(order, func(q *queuedPod) int { return btoi(!squeaky[q]) })
	}
}

// postponeClasses tries the best order with each of its classes at the end.
func (o *orderSearch) postponeClasses() {
	order := o.best
	if order == nil {
		order = o.pods
	}
	for _, u := range o.byClass() {
		last := u[0][0].class
		if o.squeak(sortedBy(order, func(q *queuedPod) int { return btoi(q.class == last) })); o.done() {
			return
		}
	}
}

// sortedBy are the pods by a key, and in their own order where the key is equal.
func sortedBy(pods []*queuedPod, key func(*queuedPod) int) []*queuedPod {
	keys := make(map[*queuedPod]int, len(pods))
	for _, q := range pods {
		keys[q] = key(q)
	}
	out := slices.Clone(pods)
	slices.SortStableFunc(out, func(a, b *queuedPod) int { return cmp.Compare(keys[a], keys[b]) })
	return out
}

// plans are plans of the whole queue in the best order: by all strategies, and by first fit where that leaves fewer, or
// where the lookahead budget is spent.
func (o *orderSearch) plans(budget Budget, spent int) (out []Plan) {
	order := slices.Concat(o.best, o.hopeless)
	if budget.LookaheadSteps == 0 || spent < budget.LookaheadSteps {
		plan := o.sv.solve(order, budget)
		if out = append(out, plan); plan.Abandoned || len(plan.Rejected) <= o.left+len(o.hopeless) {
			return out
		}
	}
	// The lower bound needs the values of the pods that are in the queue in this order: who uses a claim for one pod
	// depends on it.
	o.sv.budget, o.sv.prices.market = budget, nil
	switch again := o.sv.runStrategy(order, firstFit, math.Inf(1), new(int)); {
	case o.sv.abandoned:
		return []Plan{{Abandoned: true}}
	case again != nil:
		out = append(out, again.Plan)
	}
	return out
}
