package planner

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Consolidation describes what passes would do to the nodes, and why the others remain.
type Consolidation struct {
	Commands []disrupt.Command
	Kept     []Kept
	// Steps holds what the search took: see consolidate.Result.
	Steps int
	// TimedOut is true if the search was stopped at Settings.MaxSteps. Candidates that it did not come to are kept without a
	// reason.
	TimedOut bool
}

// Kept is a node that stays, and why.
type Kept struct {
	Node, NodePool string
	disrupt.Why
}

// Disruption returns what the next passes would do to the nodes of a snapshot, as far as budgets allow at once: remove empty nodes, replace
// drifted ones, and remove nodes that cost more than their replacement. Nodes that get pods by the plan remain, as they would after it.
func Disruption(s *snapshot.Snapshot, plan *schedule.Plan, settings consolidate.Settings) *Consolidation {
	return consolidationOf(pass.Input{
		Snapshot: s, Plan: plan, Work: pass.Ahead(s),
		Settings: pass.Settings{Consolidation: settings, MaxDrift: pass.ManyDrifted, MaxDriftRejections: pass.ManyRejected},
	})
}

// Consolidate is Disruption without the drifted nodes.
func Consolidate(s *snapshot.Snapshot, plan *schedule.Plan, settings consolidate.Settings) *Consolidation {
	return ConsolidateCompiled(nil, s, plan, settings)
}

// ConsolidateCompiled is Consolidate for a caller that has the Problem of the snapshot. The Problem is unchanged when it returns.
func ConsolidateCompiled(
	problem *schedule.Problem, s *snapshot.Snapshot, plan *schedule.Plan, settings consolidate.Settings,
) *Consolidation {
	return consolidationOf(pass.Input{
		Snapshot: s, Problem: problem, Plan: plan, Work: pass.Empty | pass.Savings, Settings: pass.Settings{Consolidation: settings},
	})
}

func consolidationOf(in pass.Input) *Consolidation {
	d, _ := pass.Decide(in)
	out := &Consolidation{Commands: d.Commands()}
	if d.Found != nil {
		out.Steps, out.TimedOut = d.Found.Steps, d.Found.TimedOut != ""
	}
	for _, stays := range d.Stay {
		out.Kept = append(out.Kept, Kept{stays.Node.Name, stays.Node.Pool, stays.Why})
	}
	return out
}
