package consolidate

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// node is a candidate as the search sees it.
type node struct {
	*disrupt.Candidate
	// podValue is the dual value of its pods, freeValue that of the pods that its free room could hold besides; in $/h.
	podValue, freeValue float64
	// removed is set once a move removes it, destination once pods of another node move here.
	removed, destination bool
	// why it stays, by the last simulation.
	why disrupt.Why
	// until is the time when the reason finishes by time alone; zero if it does not.
	until    time.Time
	examined bool
}

// pricePerDisruption orders candidates: the node's price per pod that would have to move.
func (n *node) pricePerDisruption() float64 { return n.Price / n.Cost }

// reducedCost is the reduced cost of the node in the linear program, price less dual value, per pod that would have to
// move: what could be saved if all of the pods needed new nodes.
func (n *node) reducedCost() float64 { return (n.Price - n.podValue) / n.Cost }

// search is the state of one Find.
type search struct {
	problem  *schedule.Problem
	snap     *snapshot.Snapshot
	settings Settings
	totals   Totals
	// budget counts how many nodes of each pool may still be disrupted.
	budget map[string]int
	// nodes are the eligible candidates, best first; byIndex finds them by the index of the node.
	nodes   []*node
	byIndex []*node
	// destinations are the nodes of the snapshot that may take pods, in the order in which they are filled.
	destinations      []int
	destinationBuffer []int // reused by openDestinations
	// pendingOn are the pending pods that will run on existing nodes, by the index of the node.
	pendingOn map[int][]*corev1.Pod
	// allocatedDevices is set once a move allocates devices: which are left is only known when it is carried out.
	allocatedDevices bool
	moves            []*move
	// rejected are the moves of one node that a pool of policy Balanced rejected, rejectedMulti is the last of several
	// nodes.
	rejected      map[*node]*move
	rejectedMulti *move
	// freeValue holds what the free room of each node of the snapshot could hold, in $/h.
	freeValue   []float64
	nodeIndexes map[[2]string]int
	// pendingApplied counts how many plans are applied before the first move is.
	pendingApplied int
	interrupt      func() bool
	result         Result
}

// Input describes what Find searches.
type Input struct {
	Problem  *schedule.Problem // that of the snapshot, see Compile
	Snapshot *snapshot.Snapshot
	// Candidates are the nodes that nothing blocks from disruption.
	Candidates []*disrupt.Candidate
	// Budgets are for reason Underutilized.
	Budgets []disrupt.Allowance
	Totals  Totals
	// Interrupt stops the search as soon as it is true. It is called before each simulation. Nil never stops it.
	Interrupt func() bool
}

// Find searches for the commands that save most per disruption. They come best first, and all of them can be started at
// once under the budgets. The Problem is unchanged when Find returns.
//
// It costs a constant number of dual values (see computeValues), and for each trial (see runTrials) at most
// maxGroupSimulations simulations per group of nodes and one per candidate.
func Find(in Input, st Settings) Result {
	p := in.Problem
	x := newSearch(p, in.Snapshot, in.Totals, st)
	x.interrupt = in.Interrupt
	for i := range in.Budgets {
		x.budget[in.Budgets[i].Pool.Name] = in.Budgets[i].Available()
	}
	unconsolidatable := x.filterEligible(in.Candidates)
	if len(x.nodes) > 0 && st.MaxSteps >= 0 && x.canLaunch() {
		defer p.Revert()
		for _, step := range []func(){x.placePending, x.computeValues, x.sortNodes, x.runTrials} {
			if !x.isInterrupted() {
				step()
			}
		}
	}
	if x.result.Interrupted {
		return Result{Interrupted: true}
	}
	x.result.Commands = x.commands()
	x.result.Rejected = x.rejectedCommands()
	x.result.Unconsolidatable = append(unconsolidatable, x.unconsolidatable()...)
	slices.SortStableFunc(
		x.result.Unconsolidatable,
		func(a, b disrupt.Unconsolidatable) int { return cmp.Compare(a.Candidate.Index, b.Candidate.Index) },
	)
	x.recordTimeout()
	return x.result
}

func newSearch(p *schedule.Problem, s *snapshot.Snapshot, totals Totals, st Settings) *search {
	return &search{
		problem:   p,
		snap:      s,
		settings:  st,
		totals:    totals,
		budget:    map[string]int{},
		byIndex:   make([]*node, len(s.Nodes)),
		pendingOn: map[int][]*corev1.Pod{},
	}
}

// canLaunch reports whether some pool could launch nodes. Without one, nothing is consolidated.
func (x *search) canLaunch() bool {
	return slices.ContainsFunc(x.snap.Pools, func(p snapshot.Pool) bool { return p.NodePool.Spec.Replicas == nil })
}

// filterEligible keeps the candidates that consolidation may remove, and returns the others with the reason.
func (x *search) filterEligible(candidates []*disrupt.Candidate) []disrupt.Unconsolidatable {
	var out []disrupt.Unconsolidatable
	for _, c := range candidates {
		if why := ineligible(c); why.Reason != "" {
			out = append(out, disrupt.Unconsolidatable{Candidate: c, Why: why})
			continue
		}
		n := &node{Candidate: c}
		if math.IsNaN(c.Price) {
			own := *c
			own.Price, n.Candidate = 0, &own
		}
		x.nodes = append(x.nodes, n)
		x.byIndex[c.Index] = n
	}
	return out
}

// receivesNoPods reports whether no running pods move to the node: they would keep it from ever being consolidated inside its pool's
// consolidateAfter, and would have to move again if a maintenance is planned.
func (x *search) receivesNoPods(n *snapshot.Node, pools map[string]*karpv1.NodePool) bool {
	if n.MaintenancePlanned {
		return true
	}
	pool := pools[n.Pool]
	if pool == nil || pool.Spec.Replicas != nil || n.Claim == "" || n.Consolidatable {
		return false
	}
	after := pool.Spec.Disruption.ConsolidateAfter
	return after.Duration != nil && *after.Duration > 0 && !after.IsNever()
}

// aboutToBeRemoved reports whether the node is empty and about to be removed for it: pods that moved there would keep
// it. A nomination of pods that have gone elsewhere only delays the removal; pods that are still pending are placed
// by now.
func (x *search) aboutToBeRemoved(i int) bool {
	n := &x.snap.Nodes[i]
	return n.Claim != "" && n.Initialized && n.Consolidatable && n.Virtual == 0 && len(x.pendingOn[i]) == 0 &&
		n.Annotations[karpv1.AnnotationDoNotDisrupt] != "true" &&
		!slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return disrupt.PreventsEmptiness(p) || !snapshot.Disruptable(p, x.snap.Now) })
}

// placePending schedules the pending pods first: the room that they will take is not free.
func (x *search) placePending() {
	q := schedule.Simulation{Budget: schedule.DefaultBudget()}
	q.Budget.FirstFitOnly, q.Budget.Unexplained = true, true
	plan := x.simulate(q)
	x.problem.Apply(q, &plan)
	x.pendingApplied = x.problem.AppliedPlans()
	x.allocatedDevices = len(plan.Launches) > 0 &&
		slices.ContainsFunc(plan.Launches, func(l schedule.Launch) bool { return len(l.Devices) > 0 })
	for _, pl := range plan.Placements {
		i := x.nodeIndex(pl)
		x.pendingOn[i] = append(x.pendingOn[i], pl.Pods...)
		x.allocatedDevices = x.allocatedDevices || len(pl.Devices) > 0
	}
}

// simulate runs one scheduling simulation, and counts its cost.
func (x *search) simulate(q schedule.Simulation) schedule.Plan {
	plan := x.problem.Simulate(q)
	steps := plan.Stats.Steps
	if !q.Budget.FirstFitOnly {
		steps *= lookaheadFactor
	}
	x.result.Simulations++
	x.result.Steps += simulationSteps + steps
	return plan
}

// isInterrupted reports whether the search was to end early.
func (x *search) isInterrupted() bool {
	x.result.Interrupted = x.result.Interrupted || x.interrupt != nil && x.interrupt()
	return x.result.Interrupted
}

// limitReached reports whether the search is interrupted, or has taken all the steps that it may. The part of the search, Multi or Single,
// that is the first to find this out counts as the one that timed out.
func (x *search) limitReached(part string) bool {
	if x.isInterrupted() {
		return true
	}
	if x.settings.MaxSteps == 0 || x.result.Steps < x.settings.MaxSteps {
		return false
	}
	x.result.TimedOut = cmp.Or(x.result.TimedOut, part)
	return true
}

// computeValues finds the dual values of pods and of free room: the optimal dual solution of the linear program that
// covers all pods of candidates by fractions of new nodes (see Problem.Appraise). It bounds the search; no rule of
// scheduling depends on it. Its cost is one solution of that program.
func (x *search) computeValues() {
	var pods []*corev1.Pod
	for _, n := range x.nodes {
		pods = append(pods, n.Pods...)
	}
	w := x.problem.DualValues(pods)
	for _, n := range x.nodes {
		for _, p := range n.Pods {
			n.podValue += w.Pod(p)
		}
	}
	x.freeValue = make([]float64, len(x.snap.Nodes))
	for i := range x.snap.Nodes {
		x.freeValue[i] = w.Room(i)
	}
	for _, n := range x.nodes {
		n.freeValue = x.freeValue[n.Index]
	}
}

// sortNodes sorts candidates by their price per pod, those with a planned maintenance first. Destinations that will stay come first.
func (x *search) sortNodes() {
	slices.SortStableFunc(x.nodes, func(a, b *node) int {
		return cmp.Or(disrupt.ByMaintenance(a.Candidate, b.Candidate), cmp.Compare(b.pricePerDisruption(), a.pricePerDisruption()),
			cmp.Compare(a.Node.Name, b.Node.Name))
	})
	pools := map[string]*karpv1.NodePool{}
	for i := range x.snap.Pools {
		pools[x.snap.Pools[i].NodePool.Name] = x.snap.Pools[i].NodePool
	}
	for _, np := range x.snap.Closed {
		pools[np.Name] = np
	}
	for i := range x.snap.Nodes {
		if n := &x.snap.Nodes[i]; !x.receivesNoPods(n, pools) && !x.aboutToBeRemoved(i) {
			x.destinations = append(x.destinations, i)
		}
	}
	reducedCost := func(i int) float64 {
		if n := x.byIndex[i]; n != nil {
			return n.reducedCost()
		}
		return math.Inf(-1)
	}
	slices.SortStableFunc(x.destinations, func(a, b int) int {
		na, nb := &x.snap.Nodes[a], &x.snap.Nodes[b]
		if usable := na.Usable(); usable != nb.Usable() {
			if usable {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(reducedCost(a), reducedCost(b)), cmp.Compare(na.Name, nb.Name))
	})
}

// openDestinations are the destinations that are neither removed nor closed. The next call overwrites the list.
func (x *search) openDestinations(closed map[int]bool) []int {
	x.destinationBuffer = x.destinationBuffer[:0]
	for _, i := range x.destinations {
		if n := x.byIndex[i]; (n == nil || !n.removed) && (len(closed) == 0 || !closed[i]) {
			x.destinationBuffer = append(x.destinationBuffer, i)
		}
	}
	return x.destinationBuffer
}

// unconsolidatable lists the candidates that no move removes.
func (x *search) unconsolidatable() []disrupt.Unconsolidatable {
	var out []disrupt.Unconsolidatable
	for _, n := range x.nodes {
		if n.removed {
			continue
		}
		out = append(out, disrupt.Unconsolidatable{Candidate: n.Candidate, Why: n.why, Until: n.until})
	}
	return out
}

// recordTimeout records what the search did not reach.
func (x *search) recordTimeout() {
	seen, all := map[string]bool{}, map[string]bool{}
	for _, n := range x.nodes {
		all[n.Pool.Name] = true
		if n.examined {
			x.result.Examined++
			seen[n.Pool.Name] = true
		}
	}
	if x.settings.MaxSteps < 0 && len(x.nodes) > 0 {
		x.result.TimedOut = Multi
	}
	if x.result.TimedOut == "" {
		return
	}
	for name := range all {
		if !seen[name] {
			x.result.Unexamined = append(x.result.Unexamined, name)
		}
	}
	slices.Sort(x.result.Unexamined)
}
