package consolidate

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// move is a set of nodes to remove, with the part of a plan that schedules their pods elsewhere.
type move struct {
	removed  []*node
	plan     schedule.Plan
	savings  float64
	verdicts []disrupt.Verdict
}

// pods returns how many pods have to move.
func (m *move) pods() int {
	n := 0
	for _, c := range m.removed {
		n += len(c.Pods)
	}
	return n
}

// disruptionCost returns what moving the pods costs, in plain pods.
func (m *move) disruptionCost() float64 {
	total := 0.0
	for _, c := range m.removed {
		total += c.Cost
	}
	return total
}

// rejection states why nodes cannot be removed together.
type rejection struct {
	disrupt.Why
	// nodes are the nodes that are the reason; nil if the whole set is.
	nodes []*node
	// until is the time when the reason finishes by time alone; zero if it does not.
	until time.Time
}

// removalQuestion is the simulation of removing the nodes. A plain one skips the search for cheaper launches.
func (x *search) removalQuestion(removed []*node, into []int, plain bool) schedule.Simulation {
	q := schedule.Simulation{Targets: into, Budget: schedule.DefaultBudget()}
	q.Budget.FirstFitOnly = plain
	for _, n := range removed {
		n.examined = true
		q.Removed = append(q.Removed, n.Index)
		q.Pods = append(q.Pods, n.Pods...)
	}
	return q
}

// origins maps each pod that has to move to the node that it leaves: the node's own pods, and the pending pods that
// would have run there.
func (x *search) origins(removed []*node) map[*corev1.Pod]*node {
	out := map[*corev1.Pod]*node{}
	for _, n := range removed {
		for _, p := range n.Pods {
			out[p] = n
		}
		for _, p := range x.pendingOn[n.Index] {
			out[p] = n
		}
	}
	return out
}

// unschedulable returns the nodes with pods that the plan does not schedule, or only on an uninitialized node, and
// the reason.
func (x *search) unschedulable(plan *schedule.Plan, origins map[*corev1.Pod]*node) ([]*node, disrupt.Why) {
	var blockers []*node
	at := func(p *corev1.Pod) {
		if n := origins[p]; n != nil && !slices.Contains(blockers, n) {
			blockers = append(blockers, n)
		}
	}
	rejected := slices.Clone(plan.Rejected)
	for _, pl := range plan.Placements {
		i := x.nodeIndex(pl)
		if i < 0 || x.snap.Nodes[i].Usable() {
			continue
		}
		for _, p := range pl.Pods {
			if n := origins[p]; n != nil && slices.Contains(n.Pods, p) {
				rejected = append(rejected, disrupt.Uninitialized(p, pl.Claim, pl.Node))
			}
		}
	}
	if len(rejected) == 0 {
		return nil, disrupt.Why{}
	}
	for _, r := range rejected {
		at(r.Pod)
	}
	return blockers, unscheduled(rejected)
}

// nodeIndex is the index of a placement's node; -1 if it is not in the snapshot.
func (x *search) nodeIndex(pl schedule.Placement) int {
	if x.nodeIndexes == nil {
		x.nodeIndexes = make(map[[2]string]int, len(x.snap.Nodes))
		for i := range x.snap.Nodes {
			x.nodeIndexes[[2]string{x.snap.Nodes[i].Name, x.snap.Nodes[i].Claim}] = i
		}
	}
	if i, ok := x.nodeIndexes[[2]string{pl.Node, pl.Claim}]; ok {
		return i
	}
	return -1
}

// splitIndependent splits a plan into the connected components that share new nodes. Moves without launches come
// first, each of one node. Every pod of the plan that has to move is in exactly one component.
func splitIndependent(removed []*node, plan *schedule.Plan, origins map[*corev1.Pod]*node) []*move {
	root, launching := launchComponents(plan, origins)
	parts := map[*node]*move{}
	var deletes, replaces []*move
	for _, n := range removed {
		r := root(n)
		m := parts[r]
		if m == nil {
			m = &move{}
			parts[r] = m
			if launching[n] {
				replaces = append(replaces, m)
			} else {
				deletes = append(deletes, m)
			}
		}
		m.removed = append(m.removed, n)
	}
	of := func(p *corev1.Pod) *move { // nil for pods that do not have to move
		if n := origins[p]; n != nil {
			return parts[root(n)]
		}
		return nil
	}
	for _, pl := range plan.Placements {
		var seen []*move
		for _, p := range pl.Pods {
			m := of(p)
			if m == nil || slices.Contains(seen, m) {
				continue
			}
			seen = append(seen, m)
			own := schedule.Placement{Node: pl.Node, Claim: pl.Claim, Pods: filtered(pl.Pods, func(p *corev1.Pod) bool { return of(p) == m })}
			for _, d := range pl.Devices {
				if of(d.Pod) == m {
					own.Devices = append(own.Devices, d)
				}
			}
			m.plan.Placements = append(m.plan.Placements, own)
		}
	}
	for i := range plan.Launches {
		for _, p := range plan.Launches[i].Pods {
			if m := of(p); m != nil {
				m.plan.Launches = append(m.plan.Launches, plan.Launches[i])
				break
			}
		}
	}
	return append(deletes, replaces...)
}

// launchComponents finds the connected components of nodes with pods on the same launch, by union-find with path
// compression: nodes of one component have the same root. launching are the nodes with pods on any launch. The cost
// is almost linear in the number of pods.
func launchComponents(plan *schedule.Plan, origins map[*corev1.Pod]*node) (root func(*node) *node, launching map[*node]bool) {
	parent := map[*node]*node{}
	root = func(n *node) *node {
		if parent[n] == nil || parent[n] == n {
			return n
		}
		parent[n] = root(parent[n])
		return parent[n]
	}
	launching = map[*node]bool{}
	for i := range plan.Launches {
		var first *node
		for _, p := range plan.Launches[i].Pods {
			n := origins[p]
			if n == nil {
				continue
			}
			launching[n] = true
			if first == nil {
				first = root(n)
			} else if r := root(n); r != first {
				parent[r] = first
			}
		}
	}
	return root, launching
}

func filtered[T any](list []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(t T) bool { return !keep(t) })
}

// evaluate applies all rules to a move with pods that are scheduled. It narrows the launches and computes the
// savings. It returns nil if the move is acceptable.
func (x *search) evaluate(m *move) *rejection {
	price := 0.0
	for _, n := range m.removed {
		price += n.Price
	}
	if x.allocatedDevices && x.allocatesDevices(m) {
		return &rejection{Why: disrupt.Because(disrupt.DevicesTaken, "Devices are given out by another command first")}
	}
	m.savings = price
	if len(m.plan.Launches) > 0 {
		if len(m.removed) == 1 && len(m.plan.Launches) > 1 {
			return &rejection{Why: disrupt.Because(disrupt.SeveralLaunches, "Can't remove without creating %d candidates", len(m.plan.Launches))}
		}
		launches, equal, why := x.narrowLaunches(m.removed, m.plan.Launches)
		if why.Reason != "" {
			return &rejection{Why: why, nodes: equal}
		}
		m.plan.Launches = launches
		for i := range launches {
			m.savings -= launches[i].Offering.Price
		}
		if r := x.checkSavings(m, price); r != nil {
			return r
		}
	}
	verdicts, approved := x.verdicts(m.removed, m.savings)
	m.verdicts = verdicts
	if !approved {
		x.recordRejected(m)
		return &rejection{Why: tooDisruptive()}
	}
	m.plan.Stats = schedule.Stats{}
	for i := range m.plan.Launches {
		m.plan.Stats.HourlyCost += m.plan.Launches[i].Offering.Price
		m.plan.Stats.NodeCost += x.snap.Settings.NodeCost
	}
	m.plan.Stats.Pods = m.pods()
	return nil
}

// recordRejected remembers a move that a pool of policy Balanced rejects.
func (x *search) recordRejected(m *move) {
	if len(m.removed) == 1 {
		x.rejected[m.removed[0]] = m
	} else {
		x.rejectedMulti = m
	}
}

const (
	// bootTime sets how long a node and its replacement are paid for at the same time: launch, boot, registration, and
	// drain.
	bootTime = 3 * time.Minute
	// maxAssumedAge is the age from which on a node is assumed to be needed for good.
	maxAssumedAge = time.Hour
	// minSavingsShare is the share of the price that a move of several nodes, or to several, must save: less is not
	// worth the disruption of many pods, and is within the error of estimated prices.
	minSavingsShare = 0.05
)

// checkSavings rejects a move that saves too little to repay the time in which both the nodes and their replacements
// are paid for. How long a node will be needed is unknown; what has been needed for a minute may well be needed for
// one more minute only. So the savings must repay within the age of the youngest node, until that reaches
// maxAssumedAge. This is the break-even rule of the ski-rental problem: the cost is at most twice that of the best
// decision in hindsight.
func (x *search) checkSavings(m *move, price float64) *rejection {
	if r := x.checkAge(m, price-m.savings); r != nil {
		return r
	}
	overhead := x.snap.Settings.NodeCost * float64(len(m.plan.Launches)-len(m.removed))
	if m.savings-overhead <= 0 || len(m.removed) > 1 && m.savings-overhead < minSavingsShare*price {
		return &rejection{Why: notCheaper()}
	}
	return nil
}

// checkAge rejects a move of nodes that are younger than the time after which its savings repay the launches, which cost
// launched $/h. The rejection is of the first such node, and notes when the last of them is old enough.
func (x *search) checkAge(m *move, launched float64) *rejection {
	age, saves := repaymentAge(m.savings, launched)
	if !saves {
		return nil // whatever the age
	}
	var young *node
	var until time.Time
	for _, n := range m.removed {
		if at := n.Node.CreatedAt.Add(age); !n.Node.CreatedAt.IsZero() && at.After(x.snap.Now) {
			if young == nil {
				young = n
			}
			if at.After(until) {
				until = at
			}
		}
	}
	if young == nil {
		return nil
	}
	if next := x.result.NextChange; next.IsZero() || until.Before(next) {
		x.result.NextChange = until
	}
	return &rejection{
		Why: disrupt.Because(disrupt.TooYoung,
			"Node is young: its replacement saves $%.4f/h, which pays for the time in which both run once the node is %s old", m.savings, age),
		nodes: []*node{young},
		until: until,
	}
}

// repaymentAge is the age of a node from which on savings in $/h repay launches that cost launched $/h for bootTime: the age that a
// node needs for its replacement, in whole seconds. It is false if nothing is saved.
func repaymentAge(savings, launched float64) (age time.Duration, saves bool) {
	if savings <= 0 {
		return 0, false
	}
	seconds := math.Ceil(launched / savings * bootTime.Seconds())
	return time.Duration(min(seconds, maxAssumedAge.Seconds())) * time.Second, true
}

func (x *search) allocatesDevices(m *move) bool {
	return slices.ContainsFunc(m.plan.Placements, func(p schedule.Placement) bool { return len(p.Devices) > 0 }) ||
		slices.ContainsFunc(m.plan.Launches, func(l schedule.Launch) bool { return len(l.Devices) > 0 })
}

// apply accepts the move: its plan stays applied to the problem.
func (x *search) apply(m *move) {
	q := schedule.Simulation{}
	for _, n := range m.removed {
		n.removed = true
		q.Removed = append(q.Removed, n.Index)
		x.budget[n.Pool.Name]--
	}
	x.allocatedDevices = x.allocatedDevices || x.allocatesDevices(m)
	x.problem.Apply(q, &m.plan)
	for _, pl := range m.plan.Placements {
		if i := x.nodeIndex(pl); i >= 0 && x.byIndex[i] != nil {
			n := x.byIndex[i]
			n.destination, n.examined = true, true
			x.setWhy([]*node{n}, disrupt.Because(disrupt.TakesPods, "It takes in pods of nodes that are terminated"))
		}
	}
	x.moves = append(x.moves, m)
}
