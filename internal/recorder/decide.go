package recorder

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// KindLaunch is the kind of decisions to launch nodes for pods.
const KindLaunch = "launch"

// LaunchDecision is the decision to launch a node for pods of the snapshot.
func LaunchDecision(s *snapshot.Snapshot, l *schedule.Launch) Decision {
	d := Decision{
		ID: l.ID, Kind: KindLaunch, NodePool: l.Pool.Name, HourlyCost: number(l.Offering.Price),
		Launches: recordLaunches([]schedule.Launch{*l}),
		What:     fmt.Sprintf("launch %s for %s", offering(l), report.Plural(len(l.Pods), "pod")),
		Why:      fmt.Sprintf("%s on no existing node", map[bool]string{true: "the pod fits", false: "the pods fit"}[len(l.Pods) == 1]),
		Rule: Rule{
			Text:        "launch the nodes with the lowest price that have room for all pending pods",
			Preferences: string(s.Settings.PreferencePolicy),
		},
		PriceTable: priceTable(s, []schedule.Launch{*l}), Inputs: inputsOf(s),
	}
	d.Inputs.PoolGeneration = l.Pool.Generation
	for i, t := range l.InstanceTypes {
		a := Alternative{What: t.Name, Chosen: i == 0}
		if o, ok := t.Cheapest(l.Requirements); ok {
			a.What, a.HourlyCost = o.Key(t.Name).String(), number(o.Price)
		}
		if i > 0 {
			a.WhyNot = fmt.Sprintf("costs $%.4f/h more; may be launched where the cheaper ones are not available", float64(a.HourlyCost)-l.Offering.Price)
		}
		d.add(a)
		if i == 0 {
			for _, a := range unavailable(l) {
				d.add(a)
			}
		}
	}
	return d
}

// add adds an alternative, or counts it.
func (d *Decision) add(a Alternative) {
	if len(d.Alternatives) == maxAlternatives {
		d.MoreAlternatives++
		return
	}
	d.Alternatives = append(d.Alternatives, a)
}

// offering reads like "spot m7i.large in us-east-1a".
func offering(l *schedule.Launch) string {
	name := "a node"
	if len(l.InstanceTypes) > 0 {
		name = l.InstanceTypes[0].Name
	}
	return l.Offering.Key(name).String()
}

// Basis is what a command was decided on.
type Basis struct {
	Snapshot *snapshot.Snapshot
	// Allowances are what the budgets allowed for its reason, it and all that is disrupted included.
	Allowances []disrupt.Allowance
	// Found is the search that it is from; nil if it is from none.
	Found *consolidate.Result
}

// CommandDecision is the decision to disrupt nodes.
func CommandDecision(c *disrupt.Command, on Basis) Decision {
	d := Decision{
		ID: c.ID, Kind: strings.ToLower(string(c.Reason)), HourlySavings: number(c.Savings), HourlyCost: number(disrupt.LaunchCost(c.Plan)),
		Launches: recordLaunches(c.Plan.Launches), What: commandWhat(c), Why: commandWhy(c), Inputs: inputsOf(on.Snapshot),
	}
	d.Rule.Text = commandRule(c)
	for i := range c.Plan.Placements {
		d.Moves = append(d.Moves, PlacementRecord{c.Plan.Placements[i].Node, podNames(c.Plan.Placements[i].Pods)})
	}
	var types []string
	for _, n := range c.Candidates {
		d.Removes = append(d.Removes, nodeRecord(on.Snapshot, n))
		d.Evictions += len(n.Pods)
		types = append(types, n.Node.Labels[corev1.LabelInstanceTypeStable])
	}
	d.PriceTable = priceTable(on.Snapshot, c.Plan.Launches, types...)
	if len(c.Candidates) > 0 {
		d.rulesOf(c.Candidates[0].Pool)
	}
	for _, a := range on.Allowances {
		b := BudgetRecord{NodePool: a.Pool.Name, Nodes: a.Nodes, Allowed: a.Allowed, Disrupting: a.Disrupting}
		if a.Err != nil {
			b.Error = a.Err.Error()
		}
		d.Rule.Budgets = append(d.Rule.Budgets, b)
	}
	for _, v := range c.Verdicts {
		d.Rule.Scores = append(d.Rule.Scores, Score{
			VerdictRecord: VerdictRecord{v.Pool.Name, v.Approved, number(v.Score)},
			HourlySavings: number(v.Saved), PoolHourlyCost: number(v.PoolCost),
			Disturbed: number(v.Disturbed), PoolDisruption: number(v.PoolDisruption),
		})
		d.Rule.Threshold = consolidate.Threshold
	}
	if on.Found != nil {
		d.addAlternatives(c, on.Found)
	}
	return d
}

// rulesOf notes what a pool prescribes.
func (d *Decision) rulesOf(pool *karpv1.NodePool) {
	d.NodePool, d.Inputs.PoolGeneration = pool.Name, pool.Generation
	d.Rule.ConsolidationPolicy = string(pool.Spec.Disruption.ConsolidationPolicy)
	d.Rule.ConsolidateAfter = durationText(pool.Spec.Disruption.ConsolidateAfter)
}

// commandRule is the rule of a command in words.
func commandRule(c *disrupt.Command) string {
	switch {
	case c.Reboot:
		return "reboot a node that a reboot can repair, within the budgets"
	case c.TerminateFirst != "":
		return "where there is no room for a replacement, terminate one node at a time and launch its replacement afterwards"
	case c.ConsolidationType == disrupt.TypeEmpty:
		return "delete a node without pods that must move, within the budgets for empty nodes"
	case c.ConsolidationType != "":
		return "remove nodes if their pods fit elsewhere and that costs less, within the budgets; those first that save most per pod moved"
	}
	return "replace the node within the budgets, and launch its replacement first"
}

func durationText(v fmt.Stringer) string { return v.String() }

func nodeRecord(s *snapshot.Snapshot, c *disrupt.Candidate) NodeRecord {
	name := c.Node.Labels[corev1.LabelInstanceTypeStable]
	return NodeRecord{
		Name: c.Node.Name, NodeClaim: c.Node.Claim, NodePool: c.Node.Pool, InstanceType: name,
		Zone: c.Zone, CapacityType: c.CapacityType, Pods: podNames(c.Pods),
		HourlyCost: priceOf(s, c),
	}
}

// priceOf is what a candidate costs. One of a static NodePool, which launches nothing for pods, costs what other pools pay.
func priceOf(s *snapshot.Snapshot, c *disrupt.Candidate) number {
	if c.Price > 0 {
		return number(c.Price)
	}
	price, _ := fleet.PricesOf(fleet.Source{Pools: s.Pools}).OfNode(c.Node)
	return number(price)
}

func commandWhat(c *disrupt.Command) string {
	verb := "delete"
	switch {
	case c.Reboot:
		verb = "reboot"
	case c.TerminateFirst != "":
		verb = "terminate first"
	case len(c.Plan.Launches) > 0:
		verb = "replace"
	}
	names := make([]string, 0, len(c.Candidates))
	for _, n := range c.Candidates {
		names = append(names, n.Node.Name)
	}
	text := fmt.Sprintf("%s %s %s", verb, map[bool]string{true: "node", false: "nodes"}[len(names) == 1], strings.Join(names, ", "))
	for i := range c.Plan.Launches {
		text += map[bool]string{true: " by ", false: " and "}[i == 0] + offering(&c.Plan.Launches[i])
	}
	return text
}

func commandWhy(c *disrupt.Command) string {
	switch {
	case c.ConsolidationType == disrupt.TypeEmpty:
		return fmt.Sprintf("no pod needs it, and it costs $%.4f/h", c.Savings)
	case c.ConsolidationType != "" && len(c.Candidates) > 1:
		return fmt.Sprintf("their pods fit elsewhere for $%.4f/h less", c.Savings)
	case c.ConsolidationType != "":
		return fmt.Sprintf("its pods fit elsewhere for $%.4f/h less", c.Savings)
	}
	return "the node is " + strings.ToLower(string(c.Reason))
}

// addAlternatives adds the other commands of the search, what pools rejected, and the nodes that stay.
func (d *Decision) addAlternatives(chosen *disrupt.Command, found *consolidate.Result) {
	of := func(c *disrupt.Command) Alternative {
		a := Alternative{What: commandWhat(c), HourlySavings: number(c.Savings), HourlyCost: number(disrupt.LaunchCost(c.Plan))}
		for _, n := range c.Candidates {
			a.Evictions += len(n.Pods)
		}
		return a
	}
	first := of(chosen)
	first.Chosen = true
	d.add(first)
	for i := range found.Commands {
		if c := &found.Commands[i]; c.ID != chosen.ID {
			a := of(c)
			a.WhyNot = "decided as well, on its own"
			d.add(a)
		}
	}
	for i := range found.Rejected {
		c := &found.Rejected[i]
		a := of(c)
		for _, v := range c.Verdicts {
			if !v.Approved {
				a.WhyNot = fmt.Sprintf("NodePool %q scores it %.2f, below %.2f", v.Pool.Name, v.Score, consolidate.Threshold)
			}
		}
		d.add(a)
	}
	for _, k := range found.Unconsolidatable {
		d.add(Alternative{
			What: "delete node " + k.Candidate.Node.Name, HourlySavings: number(k.Candidate.Price),
			Evictions: len(k.Candidate.Pods), WhyNot: k.Message,
		})
	}
}
