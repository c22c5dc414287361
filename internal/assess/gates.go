package assess

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	enginepass "github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// PassGate is a feature gate that a pass reads.
type PassGate struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
	// Text states what it does.
	Text string `json:"text"`
}

// passGate is a feature gate that a pass reads, and where a View has it.
type passGate struct {
	name, text string
	of         func(*inspect.View) *bool
}

// GetName is its name.
func (g passGate) GetName() string { return g.name }

// passGates are all of them.
var passGates = []passGate{
	{SpotToSpot, "spot nodes may replace spot nodes", func(v *inspect.View) *bool { return &v.Search.SpotToSpot }},
	{
		"TerminateFirstDrift", "a drifted node whose replacement has no slot goes first",
		func(v *inspect.View) *bool { return &v.Gates.TerminateFirstDrift },
	},
	{
		"TerminateFirstRepair", "an unhealthy node whose replacement has no slot goes first",
		func(v *inspect.View) *bool { return &v.Gates.TerminateFirstRepair },
	},
	{
		"RebootForRepair", "instances are rebooted where that may repair the node",
		func(v *inspect.View) *bool { return &v.Gates.Reboots },
	},
	{
		"NodeLifecycleConditions", "nodes with the condition MaintenancePlanned go first",
		func(v *inspect.View) *bool { return &v.LifecycleConditions },
	},
}

// PassGates lists the feature gates that passes over a cluster read, with their values.
func PassGates(v *inspect.View) []PassGate {
	out := make([]PassGate, len(passGates))
	for i, g := range passGates {
		out[i] = PassGate{Name: g.name, On: *g.of(v), Text: g.text}
	}
	return out
}

// UnknownGateError is the error of a name that is no feature gate that a pass reads.
type UnknownGateError struct{ Name string }

// Error implements error.
func (e *UnknownGateError) Error() string {
	if near := inspect.NotFound("feature gate", e.Name, passGates).Others; len(near) > 0 {
		return fmt.Sprintf("no pass reads a feature gate %q: did you mean %s?", e.Name, strings.Join(near, " or "))
	}
	names := make([]string, len(passGates))
	for i, g := range passGates {
		names[i] = g.name
	}
	return fmt.Sprintf("no pass reads a feature gate %q: passes read %s", e.Name, strings.Join(names, ", "))
}

// gateSteps bounds the consolidation of each side, in steps of consolidate.Result: a second or two. The first pass of more replacements may
// cost more than one of fewer, and what counts is where they come to: the numbers then agree with those of an assessment.
const gateSteps = 30_000_000

// NextPass is what the next pass starts, as far as budgets allow at once.
type NextPass struct {
	// Before is with the gates as they are, After with the others.
	Before []Step `json:"before"`
	After  []Step `json:"after"`
}

// CompareGates computes what other values of feature gates do, by their names: what the next pass starts, and where that goes. The error is
// an UnknownGateError for a name that no pass reads.
//
// Cost: that of Compare with more passes, see gateSteps, and two passes.
func (b *Baseline) CompareGates(gates map[string]bool) (*Comparison, error) {
	edited := *b.view
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		at := slices.IndexFunc(passGates, func(g passGate) bool { return g.name == name })
		if at < 0 {
			return nil, &UnknownGateError{name}
		}
		*passGates[at].of(&edited) = gates[name]
	}
	if edited.LifecycleConditions != b.view.LifecycleConditions {
		with, err := edited.With(edited.ClusterState)
		if err != nil {
			return nil, err
		}
		edited = *with
	}
	after := b.farTo(&edited)
	after.settings.Consolidation.SpotToSpot = edited.Search.SpotToSpot
	alike := edited.Search.SpotToSpot == b.view.Search.SpotToSpot && edited.LifecycleConditions == b.view.LifecycleConditions
	out := compare(b.farther, after, alike)
	out.Now = b.now
	out.Next = &NextPass{Before: b.of(b.view).next(), After: after.next()}
	return out, nil
}

// next is what the next pass starts. Like a pass of the controller, it leaves alone the nodes that pending pods get.
func (a *assessment) next() []Step {
	s, out := a.view.Snapshot, []Step{}
	plan := schedule.Solve(s, a.settings.Budget)
	decided, _ := enginepass.Decide(enginepass.Input{
		Snapshot: s, Plan: &plan, Work: enginepass.Repair | enginepass.Replicas | enginepass.Ahead(s),
		Settings: enginepass.Settings{
			Consolidation: consolidate.Settings{MaxSteps: editSteps, SpotToSpot: a.view.Search.SpotToSpot},
			MaxDrift:      enginepass.ManyDrifted, MaxDriftRejections: enginepass.ManyRejected, Reboots: a.view.Gates.Reboots,
			TerminateFirstDrift: a.view.Gates.TerminateFirstDrift, TerminateFirstRepair: a.view.Gates.TerminateFirstRepair,
		},
	})
	for i := range decided.Start {
		out = append(out, a.stepOf(&decided.Start[i].Command))
	}
	return out
}

// stepOf is what a command does.
func (a *assessment) stepOf(c *disrupt.Command) Step {
	out := a.step(strings.ToLower(string(c.Reason)), c.Candidates, &c.Plan)
	switch {
	case c.Reboot:
		out.How, out.Cost = Reboot, 0
	case c.TerminateFirst != "":
		out.How = TerminateFirst
	}
	return out
}
