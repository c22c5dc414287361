package planner

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Drift is the drifted nodes, and their replacements.
type Drift struct {
	Nodes []Drifted
	// Pending is the plan for pending pods, which comes first.
	Pending schedule.Plan
	// Plan has the nodes for the pods of replaced nodes, pending pods among them. Its launches are the replacements.
	Plan schedule.Plan
}

// Drifted is a drifted node.
type Drifted struct {
	Node *snapshot.Node
	Why  manifest.Drift
	// Price of the node, in $/h; 0 if it is not known.
	Price float64
	// Stays is why the node is not replaced; empty if it is.
	Stays string
}

// FindDrift finds the replacements of the nodes that drift, by NodeClaim; nil if none does. It is the final state: it
// ignores the budgets of NodePools, which limit how many nodes go at a time, and no pod moves to another drifted node.
func FindDrift(s *snapshot.Snapshot, drifted map[string]manifest.Drift) *Drift {
	if len(drifted) == 0 {
		return nil
	}
	out := &Drift{}
	going := out.list(s, drifted)
	if len(out.Nodes) == 0 {
		return nil
	}
	problem := schedule.Compile(s)
	defer problem.Revert()
	pending := schedule.Simulation{}
	plan := problem.Simulate(pending)
	out.Pending = plan
	problem.Apply(pending, &plan) // pending pods keep the capacity that they take
	q := simulation{problem, s, map[string][]*corev1.Pod{}}
	for _, pl := range plan.Placements {
		q.guests[pl.Node] = append(q.guests[pl.Node], pl.Pods...)
	}
	// Replace all nodes together, except those with pods that fit nowhere then; then try these one by one.
	var alone []*disrupt.Candidate
	for len(going) > 0 {
		stuck := out.replace(q, going)
		if len(stuck) == 0 {
			break
		}
		alone = append(alone, stuck...)
		going = slices.DeleteFunc(going, func(c *disrupt.Candidate) bool { return slices.Contains(stuck, c) })
	}
	for _, c := range alone {
		outcome := out.simulate(q, []*disrupt.Candidate{c})
		at := slices.IndexFunc(out.Nodes, func(d Drifted) bool { return d.Node == c.Node })
		out.Nodes[at].Stays = outcome.Message()
	}
	return out
}

// list records the nodes that drift, in the order of the snapshot, and returns the candidates for replacement.
func (d *Drift) list(s *snapshot.Snapshot, drifted map[string]manifest.Drift) (going []*disrupt.Candidate) {
	view := disrupt.NewView(s)
	candidates := map[string]*disrupt.Candidate{}
	for _, c := range slices.Concat(view.Candidates, view.BoundedDrain) {
		candidates[c.Node.Claim] = c
	}
	kept := map[string]string{}
	for _, k := range view.BlockedNodes {
		kept[k.Node.Claim] = k.Message
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		why, drifts := drifted[n.Claim]
		if !drifts || n.Claim == "" {
			continue
		}
		node := Drifted{Node: n, Why: why}
		switch c := candidates[n.Claim]; {
		case c == nil:
			node.Stays = cmp.Or(kept[n.Claim], "nothing may disrupt it now")
		case c.Pool.Spec.Replicas != nil:
			node.Price, node.Stays = c.Price, "its NodePool keeps a fixed number of nodes, and replaces it by one more of its own"
		default:
			node.Price = c.Price
			going = append(going, c)
		}
		d.Nodes = append(d.Nodes, node)
	}
	return going
}

// simulation is the state in which replacements are simulated. guests are the pending pods that are planned for each
// node.
type simulation struct {
	*schedule.Problem
	snapshot *snapshot.Snapshot
	guests   map[string][]*corev1.Pod
}

// replace replaces candidates together, unless some of them have pods that fit nowhere: it returns these.
func (d *Drift) replace(p simulation, candidates []*disrupt.Candidate) (stuck []*disrupt.Candidate) {
	outcome := d.simulate(p, candidates)
	if outcome.Message() == "" {
		return nil
	}
	unschedulable := map[types.UID]bool{}
	for i := range outcome.Unschedulable {
		unschedulable[outcome.Unschedulable[i].Pod.UID] = true
	}
	for _, c := range candidates {
		if slices.ContainsFunc(slices.Concat(c.Pods, p.guests[c.Node.Name]), func(pod *corev1.Pod) bool { return unschedulable[pod.UID] }) {
			stuck = append(stuck, c)
		}
	}
	if len(stuck) == 0 {
		return slices.Clone(candidates)
	}
	return stuck
}

// simulate schedules the pods of candidates without these nodes. If all pods fit, it applies the result.
func (d *Drift) simulate(p simulation, candidates []*disrupt.Candidate) disrupt.RemovalOutcome {
	var q schedule.Simulation
	var judged []*disrupt.Candidate
	for _, c := range candidates {
		with := *c
		with.Pods = slices.Concat(c.Pods, p.guests[c.Node.Name])
		judged = append(judged, &with)
		q.Removed, q.Pods = append(q.Removed, c.Index), append(q.Pods, c.Pods...)
	}
	answer := p.Simulate(q)
	outcome := disrupt.EvaluateRemoval(p.snapshot, judged, answer)
	if outcome.Message() == "" {
		p.Apply(q, &answer)
		d.Plan.Launches = append(d.Plan.Launches, outcome.Plan.Launches...)
		d.Plan.Placements = append(d.Plan.Placements, outcome.Plan.Placements...)
	}
	return outcome
}

// Costs returns the costs of the replaced nodes and of their replacements, in $/h.
func (d *Drift) Costs() (before, after float64) {
	for i := range d.Nodes {
		if d.Nodes[i].Stays == "" {
			before += d.Nodes[i].Price
		}
	}
	return before, disrupt.LaunchCost(d.Plan)
}

// Consolidation is what consolidation would do to the nodes, and why the others remain.
type Consolidation struct {
	Commands []disrupt.Command
	Kept     []Kept
	// Steps is what the search took: see consolidate.Result.
	Steps int
	// TimedOut is true if the search was stopped at Settings.MaxSteps. Candidates that it did not come to are kept without a
	// reason.
	TimedOut bool
}

// Kept is a node that consolidation does not change.
type Kept struct{ Node, NodePool, Why string }

// Consolidate runs one pass of consolidation over a snapshot, as the controller would: first empty nodes, then nodes
// that cost more than their replacement, as far as the budgets of NodePools allow at once. Nodes that get pods by the
// plan remain, as they would after it.
func Consolidate(s *snapshot.Snapshot, plan *schedule.Plan, settings consolidate.Settings) *Consolidation {
	return ConsolidateCompiled(consolidate.Compile(s), s, plan, settings)
}

// ConsolidateCompiled is Consolidate for a caller that has the Problem of the snapshot. The Problem is unchanged when it returns.
func ConsolidateCompiled(
	problem *schedule.Problem, s *snapshot.Snapshot, plan *schedule.Plan, settings consolidate.Settings,
) *Consolidation {
	s = nominated(s, plan) // the Problem does not depend on it
	view := disrupt.NewView(s)
	out := &Consolidation{}
	keep := func(n *snapshot.Node, why string) { out.Kept = append(out.Kept, Kept{n.Name, n.Pool, why}) }
	for _, k := range view.BlockedNodes {
		keep(k.Node, k.Message)
	}
	room := view.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionEmpty))
	empty, _ := view.Empty()
	for _, c := range empty {
		one := []*disrupt.Candidate{c}
		if !room.Allow(one) {
			keep(c.Node, "the node is empty, and a budget of its NodePool holds it back for now")
			continue
		}
		room.Use(one)
		out.Commands = append(
			out.Commands,
			disrupt.Command{Reason: karpv1.DisruptionEmpty, ConsolidationType: "empty", Candidates: one, Savings: c.Price},
		)
	}
	others := slices.DeleteFunc(slices.Clone(view.Candidates), func(c *disrupt.Candidate) bool { return slices.Contains(empty, c) })
	totals, _ := new(disrupt.PoolCosts).Update(view)
	allowances := view.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionUnderutilized)).Allowances()
	found := consolidate.Find(
		consolidate.Input{
			Problem:    problem,
			Snapshot:   s,
			Candidates: others,
			Budgets:    allowances,
			Totals:     consolidate.PoolTotals(s, view.Candidates, totals),
		},
		settings,
	)
	out.Commands, out.TimedOut = append(out.Commands, found.Commands...), found.TimedOut != ""
	out.Steps = found.Steps
	for _, left := range found.Unconsolidatable {
		keep(left.Candidate.Node, left.Message)
	}
	return out
}

// nominated returns the snapshot after the pods of the plan are nominated to their nodes.
func nominated(s *snapshot.Snapshot, plan *schedule.Plan) *snapshot.Snapshot {
	takes := map[string]bool{}
	for i := range plan.Placements {
		takes[plan.Placements[i].Node] = true
	}
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	for i := range out.Nodes {
		if n := &out.Nodes[i]; takes[n.Name] {
			n.NominatedUntil = s.Now.Add(time.Minute) // any time after now: no time passes here
		}
	}
	return &out
}
