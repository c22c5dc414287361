package consolidate

import (
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Settings are the user's choices, the limits of a search, and what an earlier search did not reach.
type Settings struct {
	// SpotToSpot allows spot nodes to be replaced by spot nodes (the feature gate SpotToSpotConsolidation).
	SpotToSpot bool `json:"spotToSpot,omitempty"`
	// MaxSteps limits the work, in steps (see Result.Steps), so that the result does not depend on the speed of the
	// computer. It is checked between simulations: a search that has taken so many steps stops with what it has found.
	// Zero means no limit, a negative number no simulation at all.
	MaxSteps int `json:"maxSteps,omitempty"`
	// PoolsFirst are the pools that are searched first: the Unexamined of an earlier search.
	PoolsFirst []string `json:"poolsFirst,omitempty"`
}

// Result describes what a search has found.
type Result struct {
	// Commands, those first that save most per disruption. All of them can be started at once under the budgets.
	Commands []disrupt.Command
	// Unconsolidatable are the candidates that stay, in their order.
	Unconsolidatable []disrupt.Unconsolidatable
	// Rejected are the moves of single nodes that a pool of policy Balanced rejected; and if no command removes
	// several nodes, the last rejected move of several.
	Rejected []disrupt.Command
	// OverBudget is true if a candidate stays because of the budgets of its pool.
	OverBudget bool
	// NextChange is the first instant at which time alone makes a rejected move right: it saves money, and its nodes are still
	// young. It is zero if there is no such move.
	NextChange time.Time
	// TimedOut is Multi or Single if Settings.MaxSteps stopped that part of the search, as its first; empty if nothing
	// stopped it.
	TimedOut string
	// Interrupted is true if Input.Interrupt stopped the search. The result has nothing else then.
	Interrupted bool
	// Unexamined are the pools of which no candidate was examined when MaxSteps stopped the search, sorted.
	Unexamined []string
	// Examined counts how many candidates were examined.
	Examined int
	// Simulations counts how many simulations were run. Steps holds what they cost: their steps (see schedule.Budget), times
	// lookaheadFactor if they look ahead, and simulationSteps for each.
	Simulations, Steps int
}

const (
	// DefaultMaxSteps is the limit of a search in a cluster: 16 to 83 s of CPU time, since BenchmarkPass counts 12 to 62
	// million steps per CPU second in fleets of 2,000 to 10,000 nodes. Karpenter searches for a minute for a multi-node
	// consolidation, and for three minutes for a single-node one. The largest of these fleets takes 101 million steps.
	DefaultMaxSteps = 1_000_000_000
	// simulationSteps states what a simulation counts besides its own steps: it copies what it changes, and reverts it.
	simulationSteps = 1000
	// lookaheadFactor states what a step of a simulation with lookahead counts, since the linear programs that it solves have
	// no steps: measured at 0.6 µs a step, without lookahead at 0.06 µs.
	lookaheadFactor = 10
)

// Compile prepares a snapshot for a search. Unlike schedule.Compile, it treats arriving and virtual pods as pending,
// so that the room that they will take, or reserve, stays free.
func Compile(s *snapshot.Snapshot) *schedule.Problem {
	if len(s.Virtual)+len(s.Arriving) == 0 {
		return schedule.Compile(s)
	}
	with := *s
	with.Pods = slices.Concat(s.Pods, s.Arriving, s.Virtual)
	return schedule.Compile(&with)
}
