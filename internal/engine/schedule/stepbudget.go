package schedule

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// defaultSteps is the budget of a plan in a cluster. Of the workloads that BenchmarkSolve measures, the most expensive takes 100
	// million steps (100,000 pods of batch jobs, 3.5 s at 35 ns a step), the others up to 36 million; three times as much leaves them as
	// they are, and ends any plan within some 20 s.
	defaultSteps = 300_000_000
	// shares is how many kinds of pods of very many terms can spend the budget among them: one takes a sixth of a second at most.
	manyTermShares = 64
)

// Bounded is the budget of a plan in a cluster.
func Bounded() Budget { return Budget{Steps: defaultSteps, Most: 2 * defaultSteps} }

// budgetSpentMessage say why a pod has no node that the plan did not come to.
const budgetSpentMessage = "planning stopped before the pod's turn, since this plan had taken all the steps that it may; " +
	"the pod is planned again in the next pass"

// stopped tells whether the plan is abandoned.
func (sv *solver) stopRequested() bool {
	if !sv.abandoned && sv.budget.Stop != nil && sv.budget.Stop() {
		sv.abandoned = true
	}
	return sv.abandoned
}

// exhausted tells whether nothing more is to be placed.
func (sv *solver) outOfSteps() bool { return sv.budget.Most > 0 && sv.steps > sv.budget.Most }

// next is the shape of pods of many terms that is to be tried instead of shape i: the last, which has no preferences, once the kind has
// taken its share of the budget, and none, which is -1, once it has taken twice that. In this attempt it has taken steps since began.
func (sv *solver) nextLevel(c *class, i, began int) int {
	most, used := sv.budget.Most/manyTermShares/2, sv.stepsOfClass[c.constraintClass]+sv.steps-began
	switch {
	case most == 0 || used <= most:
		return i
	case used > 2*most:
		return -1
	}
	return len(c.levels) - 1
}

// take notes what an attempt to place a pod of many terms has cost.
func (sv *solver) chargeSteps(c *class, began int) {
	if sv.stepsOfClass == nil {
		sv.stepsOfClass = map[*constraintClass]int{}
	}
	sv.stepsOfClass[c.constraintClass] += sv.steps - began
}

// reasons say why pods of the class have no place.
func (sv *solver) rejectionReasons(c *class) []Reason {
	if sv.outOfSteps() || c.manyTerms && sv.budget.Most > 0 && sv.stepsOfClass[c.constraintClass] > sv.budget.Most/manyTermShares {
		return []Reason{{Code: BudgetSpent, Message: budgetSpentMessage}}
	}
	out := sv.poolReasons(c)
	if n := requiredTerms(c.pod); n > MaxAlternatives {
		out = append(slices.Clone(out), Reason{
			Code:    TooComplex,
			Message: fmt.Sprintf("of the pod's %d terms of required node affinity only the first %d are considered; use fewer terms", n, MaxAlternatives),
		})
	}
	return out
}

func requiredTerms(pod *corev1.Pod) int {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return len(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	return 0
}
