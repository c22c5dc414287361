package consolidate

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Settings are the user's choices, the limits of a search, and what an earlier search did not reach.
type Settings struct {
	// SpotToSpot allows spot nodes to be replaced by spot nodes (the feature gate SpotToSpotConsolidation).
	SpotToSpot bool
	// MaxSimulations limits the work, in simulations, so that the result does not depend on the speed of the computer.
	// Zero means no limit, a negative number no simulation at all.
	MaxSimulations int
	// Stop is called between simulations; once it returns true, the search stops with what it has found. Nil means no
	// limit.
	Stop func() bool
	// PoolsFirst are the pools that are searched first: the Unseen of an earlier search.
	PoolsFirst []string
}

// Result is what a search has found.
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
	// TimedOut is true if Settings.Questions or Settings.Over stopped the search. Unseen are the pools of which no
	// candidate was examined by then, sorted.
	TimedOut   bool
	Unexamined []string
	// Examined is how many candidates were examined, Questions how many simulations that took.
	Examined, Simulations int
}

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
