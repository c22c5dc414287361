package schedule

import "github.com/dovetail-k8s/dovetail/internal/engine/podclass"

const (
	// defaultSteps is the lookahead budget of a plan in a cluster. Of the workloads that BenchmarkSolve measures, the
	// most expensive takes 100 million steps (100,000 pods of batch jobs, 3.5 s at 35 ns a step), the others up to 36
	// million. Three times as much leaves them unchanged, and ends any plan within about 20 s.
	defaultSteps = 300_000_000
	// manyTermShares is into how many shares the budget of pods with very many terms is divided: one class of constraints
	// takes a sixth of a second at most.
	manyTermShares = 64
)

// DefaultBudget is the budget of a plan in a cluster.
func DefaultBudget() Budget { return Budget{LookaheadSteps: defaultSteps, MaxSteps: 2 * defaultSteps} }

// budgetSpentMessage is the reason for pods that the plan did not reach.
const budgetSpentMessage = "planning stopped before the pod's turn, since this plan had taken all the steps that it may; " +
	"the pod is planned again in the next pass"

// stopRequested reports whether the plan is abandoned.
func (sv *solver) stopRequested() bool {
	if !sv.abandoned && sv.budget.Stop != nil && sv.budget.Stop() {
		sv.abandoned = true
	}
	return sv.abandoned
}

// outOfSteps reports whether the plan may place no more pods.
func (sv *solver) outOfSteps() bool { return sv.budget.MaxSteps > 0 && sv.steps > sv.budget.MaxSteps }

// nextLevel is the relaxation level to try instead of level i, for pods with many terms. Once their class of constraints has
// taken its share of the budget, it is the last level, which has no preferences. Once it has taken twice that, it is
// -1: none. In this attempt the class has taken steps since began.
func (sv *solver) nextLevel(c *class, i, began int) int {
	most, used := sv.budget.MaxSteps/manyTermShares/2, sv.stepsOfClass[c.Constraints]+sv.steps-began
	switch {
	case most == 0 || used <= most:
		return i
	case used > 2*most:
		return -1
	}
	return len(c.Levels()) - 1
}

// chargeSteps records what an attempt to schedule a pod with many terms has cost.
func (sv *solver) chargeSteps(c *class, began int) {
	if sv.stepsOfClass == nil {
		sv.stepsOfClass = map[*podclass.Constraints]int{}
	}
	sv.stepsOfClass[c.Constraints] += sv.steps - began
}
