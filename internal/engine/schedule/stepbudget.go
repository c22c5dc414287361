package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
)

const (
	// defaultSteps is the lookahead budget of a plan in a cluster. Of the workloads that BenchmarkSolve measures, the
	// most expensive takes 100 million steps (100,000 pods of batch jobs, 3.5 s at 35 ns a step), the others up to 36
	// million. Three times as much leaves them unchanged, and stops any plan within about 20 s.
	defaultSteps = 300_000_000
	// firstRunShare, laterRunShare and explainShare are the shares of MaxSteps that all pods with very many terms have
	// together: of the first run of a plan, of each other run, and of explaining those that are left. That is a third
	// of a second for the first, and a tenth for each other.
	firstRunShare, laterRunShare, explainShare = 64, 256, 512
	// simulationShare is the share of MaxSteps that each class of pods with very many terms has in a simulation.
	simulationShare = 64
)

// DefaultBudget is the budget of a plan in a cluster.
func DefaultBudget() Budget { return Budget{LookaheadSteps: defaultSteps, MaxSteps: 2 * defaultSteps} }

// stopRequested reports whether the plan is abandoned.
func (sv *solver) stopRequested() bool {
	if !sv.abandoned && sv.budget.Stop != nil && sv.budget.Stop() {
		sv.abandoned = true
	}
	return sv.abandoned
}

// outOfSteps reports whether the plan may place no more pods.
func (sv *solver) outOfSteps() bool { return sv.budget.MaxSteps > 0 && sv.steps > sv.budget.MaxSteps }

// shares divide the steps that pods with very many terms may take: equally among their namespaces, and in each among its
// classes of constraints. So the pods of one tenant take no steps from those of another. The zero value has no pods.
type shares struct {
	// classes counts the classes by namespace.
	classes map[string]int
	// of is what each class has taken in this run, with the explanation; total is the sum, and beside, what is done for
	// several of them at once and for explanations: it is not among the steps of the solver.
	of            map[*podclass.Constraints]int
	total, beside int
	// explained are the steps of explanations in this run.
	explained int
	// later is true in all runs but the first of a plan. spent is by namespace what its pods have taken in all of them.
	later bool
	spent map[string]int
}

// begin counts the classes of a run.
func (h *shares) begin(classes []*class) {
	h.classes, h.of, h.total, h.beside, h.explained = nil, nil, 0, 0, 0
	for _, c := range classes {
		if !c.ManyTerms() {
			continue
		}
		if h.of == nil {
			h.classes, h.of = map[string]int{}, map[*podclass.Constraints]int{}
		}
		if _, counted := h.of[c.Constraints]; !counted {
			h.of[c.Constraints] = 0
			h.classes[c.namespace()]++
		}
	}
}

// most is how many steps all pods with very many terms may take in this run.
func (sv *solver) mostForManyTerms() int {
	if sv.shares.later {
		return sv.budget.MaxSteps / laterRunShare
	}
	return sv.budget.MaxSteps / firstRunShare
}

// shareOfClass is how many steps the class may take in this run.
func (sv *solver) shareOfClass(c *class) int {
	if sv.budget.FirstFitOnly {
		return sv.budget.MaxSteps / simulationShare
	}
	h := &sv.shares
	return sv.mostForManyTerms() / max(1, len(h.classes)) / max(1, h.classes[c.namespace()])
}

// shareSpent reports whether pods of the class may take no more steps in this run.
func (sv *solver) shareSpent(c *class) bool {
	if !c.ManyTerms() || sv.budget.MaxSteps == 0 {
		return false
	}
	return sv.shares.of[c.Constraints] > sv.shareOfClass(c) || !sv.budget.FirstFitOnly && sv.shares.total > sv.mostForManyTerms()
}

// nextLevel is the relaxation level to try instead of level i, for pods with many terms. Once their class of constraints has
// taken half of its share, it is the last level, which has no preferences. Once it has taken all of it, it is -1: none. In
// this attempt the class has taken steps since began.
func (sv *solver) nextLevel(c *class, i, began int) int {
	if sv.budget.MaxSteps == 0 {
		return i
	}
	if sv.shareSpent(c) {
		return -1
	}
	switch most, used := sv.shareOfClass(c), sv.shares.of[c.Constraints]+sv.steps-began; {
	case used <= most/2:
		return i
	case used > most:
		return -1
	}
	return len(c.Levels()) - 1
}

// chargeSteps records what an attempt to schedule a pod with many terms has cost.
func (sv *solver) chargeSteps(c *class, steps int) {
	h := &sv.shares
	if h.of == nil { // a simulation that begins with other pods
		h.of = map[*podclass.Constraints]int{}
	}
	h.of[c.Constraints] += steps
	h.total += steps
	if h.spent == nil {
		h.spent = map[string]int{}
	}
	h.spent[c.namespace()] += steps
}

// chargeBeside records what was done for the classes with many terms among some classes.
func (sv *solver) chargeBeside(classes map[*class]bool, steps int) {
	namespaces := map[string]bool{}
	for c := range classes {
		if c.ManyTerms() {
			namespaces[c.namespace()] = true
		}
	}
	if len(namespaces) == 0 {
		return
	}
	h := &sv.shares
	h.total += steps
	h.beside += steps
	if h.spent == nil {
		h.spent = map[string]int{}
	}
	for name := range namespaces {
		h.spent[name] += steps / len(namespaces)
	}
}

// costly are the namespaces with pods of very many terms that the plan leaves, sorted, and what these have taken.
func (sv *solver) costly(rejected []Rejection) []plan.Costly {
	if len(sv.shares.spent) == 0 {
		return nil
	}
	pods := map[string][]*corev1.Pod{}
	for i := range rejected {
		if pod := rejected[i].Pod; podclass.HasManyTerms(pod) {
			pods[pod.Namespace] = append(pods[pod.Namespace], pod)
		}
	}
	var out []plan.Costly
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if steps := sv.shares.spent[name]; steps > 0 {
			out = append(out, plan.Costly{Namespace: name, Steps: steps, Pods: pods[name]})
		}
	}
	return out
}

func (c *class) namespace() string { return c.Pod().Namespace }
