package consolidate

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Settings are the user's choices, and what an earlier search left undone.
type Settings struct {
	// SpotToSpot allows that spot nodes are replaced by spot nodes (the feature gate SpotToSpotConsolidation).
	SpotToSpot bool
	// Questions bounds the work, in questions asked of the Problem, so that the result does not depend on the machine. Zero
	// means that there is no bound, a negative number that nothing may be asked.
	Questions int
	// Over is asked between questions; once it says so, the search ends with what it has. Nil never does.
	Over func() bool
	// First are pools that go first: the Unseen of an earlier search.
	First []string
}

// Result is what a search has found.
type Result struct {
	// Commands, those first that save most for what they disturb. All of them can be started at once under the budgets.
	Commands []disrupt.Command
	// Left are the other candidates, in their order.
	Left []disrupt.Left
	// Rejected are moves of single nodes that a pool of policy Balanced found to disturb more than they save; and where no command
	// ends several, the last such move of several.
	Rejected []disrupt.Command
	// OverBudget tells that some candidate was left for the budgets of its pool.
	OverBudget bool
	// TimedOut tells that the work was cut short by Settings.Questions or Settings.Over; Unseen are the pools of which no candidate was looked
	// at by then, sorted.
	TimedOut bool
	Unseen   []string
	// Examined is how many candidates were asked about, Questions how many questions that took.
	Examined, Questions int
}

// Compile prepares a snapshot for a search. It is schedule.Compile but for pods that are arriving, and virtual ones: the room
// that they will take, or stand for, is kept, as if they were pending.
func Compile(s *snapshot.Snapshot) *schedule.Problem {
	if len(s.Virtual)+len(s.Arriving) == 0 {
		return schedule.Compile(s)
	}
	with := *s
	with.Pods = slices.Concat(s.Pods, s.Arriving, s.Virtual)
	return schedule.Compile(&with)
}
