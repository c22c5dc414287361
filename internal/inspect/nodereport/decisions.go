package nodereport

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// Decisions describes what the engine decides about all nodes of a view: what it would remove now, and why it keeps the rest.
// They cost one plan; and one pass of consolidation, once they are requested a node that nothing protects.
type Decisions struct {
	*inspect.View
	// Classified are the nodes of the snapshot: candidates for removal, and those that something protects.
	Classified *disrupt.View
	Plan       schedule.Plan
	// incoming are the pending pods that the plan puts on existing nodes, by node.
	incoming map[string]*schedule.Placement
	// blocked are the nodes that no command may remove, with the engine's words.
	blocked map[*snapshot.Node]string
	found   *decided // nil before the first use
	pdbs    []snapshot.Budget
	// allowances are by reason, made on first use.
	allowances map[karpv1.DisruptionReason][]disrupt.Allowance
	// problem is that of the snapshot, compiling while it is made. To compile it takes most of the time of a report.
	problem   *schedule.Problem
	compiling *parallel.Future[*schedule.Problem]
	// driftRank counts how many drifted nodes of its pool come before a node; made on first use.
	driftRank map[*snapshot.Node]int
	// byName finds objects; made on first use.
	byName *index
	// fleets holds what the soaks of new nodes have shown, by pool; made on first use.
	fleets map[string]breaker.Fleet
	// priced holds what nodes cost; made on first use.
	priced *fleet.Prices
}

// Decide runs the engine over a view.
func Decide(v *inspect.View) *Decisions {
	d := &Decisions{
		View: v, incoming: map[string]*schedule.Placement{}, blocked: map[*snapshot.Node]string{},
		pdbs: snapshot.Budgets(v.Snapshot.PDBs), allowances: map[karpv1.DisruptionReason][]disrupt.Allowance{},
		fleets: map[string]breaker.Fleet{},
	}
	if len(v.Snapshot.Pods) > 0 { // a plan for no pods costs as much as for few
		d.compiling = parallel.Begin(func() *schedule.Problem { return consolidate.Compile(v.Snapshot) })
		d.Plan = schedule.Solve(v.Snapshot, schedule.DefaultBudget())
	}
	for i := range d.Plan.Placements {
		d.incoming[d.Plan.Placements[i].Node] = &d.Plan.Placements[i]
	}
	d.Classified = disrupt.NewView(v.Snapshot)
	for _, k := range d.Classified.BlockedNodes {
		d.blocked[k.Node] = k.Message
	}
	return d
}

// Known describes what is known of the nodes of a view without a plan. It costs little.
type Known struct{ decisions *Decisions }

// KnownOf returns what is known of a view.
func KnownOf(v *inspect.View) *Known {
	return &Known{&Decisions{
		View: v, pdbs: snapshot.Budgets(v.Snapshot.PDBs), allowances: map[karpv1.DisruptionReason][]disrupt.Allowance{},
	}}
}

// Allowance returns what the budgets of a pool allow for a reason now.
func (k *Known) Allowance(pool string, reason karpv1.DisruptionReason) disrupt.Allowance {
	return k.decisions.Allowance(pool, reason)
}

// index finds claims by name, Nodes by name and by the provider ID of their instance.
type index struct {
	claims           map[string]*karpv1.NodeClaim
	nodes, instances map[string]*corev1.Node
}

func (d *Decisions) prices() *fleet.Prices {
	if d.priced == nil {
		d.priced = d.PriceList()
	}
	return d.priced
}

func (d *Decisions) index() *index {
	if d.byName == nil {
		d.byName = &index{map[string]*karpv1.NodeClaim{}, map[string]*corev1.Node{}, map[string]*corev1.Node{}}
		for _, c := range d.NodeClaims {
			d.byName.claims[c.Name] = c
		}
		for _, n := range slices.Backward(d.Nodes) { // the first of several
			d.byName.nodes[n.Name], d.byName.instances[n.Spec.ProviderID] = n, n
		}
	}
	return d.byName
}

// decided is one pass of consolidation over all nodes.
type decided struct {
	*planner.Consolidation
	command map[string]*disrupt.Command
	kept    map[string]string
}

// consolidation is the pass; the first call searches.
func (d *Decisions) consolidation() *decided {
	if d.found != nil {
		return d.found
	}
	found := planner.ConsolidateCompiled(d.compiled(), d.Snapshot, &d.Plan, d.Search)
	d.found = &decided{found, map[string]*disrupt.Command{}, map[string]string{}}
	for i := range d.found.Commands {
		for _, c := range d.found.Commands[i].Candidates {
			d.found.command[c.Node.Name] = &d.found.Commands[i]
		}
	}
	for _, k := range d.found.Kept {
		d.found.kept[k.Node] = k.Message
	}
	return d.found
}

// Command is the command that removes a node now, as it is empty or underutilized; nil if none does.
func (d *Decisions) Command(n *snapshot.Node) *disrupt.Command {
	if _, blocked := d.blocked[n]; blocked || d.incoming[n.Name] != nil {
		return nil // without a search: it is no candidate
	}
	return d.consolidation().command[n.Name]
}

// Kept returns why consolidation keeps a node, in the engine's words; empty if it does not, or has not come to it.
func (d *Decisions) Kept(n *snapshot.Node) string {
	if why, blocked := d.blocked[n]; blocked {
		return why
	}
	return d.consolidation().kept[n.Name]
}

// driftSimulations sets how many drifted nodes of a pool a limited search simulates, those first that are replaced first: 1 to
// 3 s of CPU time, measured at 20 to 55 ms each among 2,000 nodes.
const driftSimulations = 50

// limited reports whether the search stops earlier than a controller's.
func (d *Decisions) limited() bool {
	return d.Search.MaxSteps > 0 && d.Search.MaxSteps < consolidate.DefaultMaxSteps
}

// Stopped reports whether the pass of consolidation was stopped at its limit, so that some candidates were not examined.
func (d *Decisions) Stopped() bool { return d.found != nil && d.found.TimedOut }

// Pool is the NodePool of a name; nil if the cluster has none.
func (d *Decisions) Pool(name string) *karpv1.NodePool {
	if i := slices.IndexFunc(d.NodePools, func(p *karpv1.NodePool) bool { return p.Name == name }); i >= 0 {
		return d.NodePools[i]
	}
	return nil
}

// Allowance returns what the budgets of a pool allow for a reason now.
func (d *Decisions) Allowance(pool string, reason karpv1.DisruptionReason) disrupt.Allowance {
	all := d.allowed(reason)
	if i := slices.IndexFunc(all, func(a disrupt.Allowance) bool { return a.Pool.Name == pool }); i >= 0 {
		return all[i]
	}
	return disrupt.Allowance{}
}

// allowed returns what the budgets of all pools allow for a reason now.
func (d *Decisions) allowed(reason karpv1.DisruptionReason) []disrupt.Allowance {
	all, known := d.allowances[reason]
	if !known {
		all = disrupt.Allowances(d.Snapshot, reason)
		d.allowances[reason] = all
	}
	return all
}

// ahead returns how many drifted nodes of its pool are replaced before a node.
func (d *Decisions) ahead(n *snapshot.Node) int {
	if d.driftRank == nil {
		d.driftRank = map[*snapshot.Node]int{}
		for _, static := range []bool{false, true} {
			inPool := map[string]int{}
			for _, c := range new(disrupt.DriftBackoff).DriftOrder(d.Classified.Drifted(static), d.Snapshot.Now) {
				d.driftRank[c.Node] = inPool[c.Node.Pool]
				inPool[c.Node.Pool]++
			}
		}
	}
	return d.driftRank[n]
}

// candidate is the candidate of a node for drift: a node that only its pods block is one if its drain is bounded.
func (d *Decisions) candidate(n *snapshot.Node) *disrupt.Candidate {
	for _, list := range [][]*disrupt.Candidate{d.Classified.Candidates, d.Classified.BoundedDrain} {
		if i := slices.IndexFunc(list, func(c *disrupt.Candidate) bool { return c.Node == n }); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// compiled is the snapshot as a Problem.
func (d *Decisions) compiled() *schedule.Problem {
	switch {
	case d.problem != nil:
	case d.compiling != nil:
		d.problem, d.compiling = d.compiling.Wait(), nil
	default:
		d.problem = consolidate.Compile(d.Snapshot)
	}
	return d.problem
}
