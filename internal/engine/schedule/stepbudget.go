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
func (m *meter) stopRequested() bool {
	if !m.abandoned && m.stop != nil && m.stop() {
		m.abandoned = true
	}
	return m.abandoned
}

// outOfSteps reports whether the plan may place no more pods.
func (r *run) outOfSteps() bool { return r.budget.MaxSteps > 0 && r.steps > r.budget.MaxSteps }

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
}

// begin counts the classes of a run.
func (h *shares) begin(classes []*class) {
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
func (r *run) mostForManyTerms() int {
	if r.later {
		return r.budget.MaxSteps / laterRunShare
	}
	return r.budget.MaxSteps / firstRunShare
}

// shareOfClass is how many steps the class may take in this run.
func (r *run) shareOfClass(c *class) int {
	if r.budget.FirstFitOnly {
		return r.budget.MaxSteps / simulationShare
	}
	h := &r.shares
	return r.mostForManyTerms() / max(1, len(h.classes)) / max(1, h.classes[c.namespace()])
}

// shareSpent reports whether pods of the class may take no more steps in this run.
func (r *run) shareSpent(c *class) bool {
	if !c.ManyTerms() || r.budget.MaxSteps == 0 {
		return false
	}
	return r.shares.of[c.Constraints] > r.shareOfClass(c) || !r.budget.FirstFitOnly && r.shares.total > r.mostForManyTerms()
}

// nextLevel is the relaxation level to try instead of level i, for pods with many terms. Once their class of constraints has
// taken half of its share, it is the last level, which has no preferences. Once it has taken all of it, it is -1: none. In
// this attempt the class has taken steps since began.
func (r *run) nextLevel(c *class, i, began int) int {
	if r.budget.MaxSteps == 0 {
		return i
	}
	if r.shareSpent(c) {
		return -1
	}
	switch most, used := r.shareOfClass(c), r.shares.of[c.Constraints]+r.steps-began; {
	case used <= most/2:
		return i
	case used > most:
		return -1
	}
	return len(c.Levels()) - 1
}

// chargeSteps records what an attempt to schedule a pod with many terms has cost.
func (r *run) chargeSteps(c *class, steps int) {
	h := &r.shares
	if h.of == nil { // a simulation that begins with other pods
		h.of = map[*podclass.Constraints]int{}
	}
	h.of[c.Constraints] += steps
	h.total += steps
	r.spendOnManyTerms(c.namespace(), steps)
}

// chargeBeside records what was done for the classes with many terms among some classes.
func (r *run) chargeBeside(classes map[*class]bool, steps int) {
	namespaces := map[string]bool{}
	for c := range classes {
		if c.ManyTerms() {
			namespaces[c.namespace()] = true
		}
	}
	if len(namespaces) == 0 {
		return
	}
	h := &r.shares
	h.total += steps
	h.beside += steps
	for name := range namespaces {
		r.spendOnManyTerms(name, steps/len(namespaces))
	}
}

// spendOnManyTerms records steps for pods with many terms of a namespace.
func (m *meter) spendOnManyTerms(namespace string, steps int) {
	if m.spentOnManyTerms == nil {
		m.spentOnManyTerms = map[string]int{}
	}
	m.spentOnManyTerms[namespace] += steps
}

// costly are the namespaces with pods of very many terms that the plan leaves, sorted, and what these have taken.
func (sv *solver) costly(rejected []Rejection) []plan.Costly {
	if len(sv.spentOnManyTerms) == 0 {
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
		if steps := sv.spentOnManyTerms[name]; steps > 0 {
			out = append(out, plan.Costly{Namespace: name, Steps: steps, Pods: pods[name]})
		}
	}
	return out
}

func (c *class) namespace() string { return c.Pod().Namespace }
