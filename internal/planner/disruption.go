package planner

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// Stays states why the node is not replaced; empty if it is.
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
		out.Nodes[at].Stays = outcome.Why().Message
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
	if outcome.Why().Message == "" {
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
	if outcome.Why().Message == "" {
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
