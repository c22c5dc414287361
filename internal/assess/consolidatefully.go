package assess

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

const (
	// maxPasses stops a search that goes on for very long. With a budget of one node at a time, a fleet of 2,000 nodes that loses half
	// of them needs a thousand passes; the report then states that more can be saved.
	maxPasses = 100
	// leastShare stops a search when a pass saves less than this share of what the passes before it saved on average. It depends on
	// neither the size of the fleet nor that of its budgets: with a budget of one node, all passes save about the same.
	leastShare = 0.02
	// leastSaved keeps it from finishing while a pass saves more than this share of what the nodes cost, however much the first pass saved:
	// of 200 nodes without budgets, the first pass saves 77 %, and the ten after it a third of the rest.
	leastSaved = 0.0025
	// passTime sets how long the nodes of a pass take to be replaced: boot, drain and the 15 s for which a command must stay valid.
	passTime = 3 * time.Minute
	// oldEnough is the age from which on the engine does not count a node as young: see checkSavings of package consolidate.
	oldEnough = time.Hour
	// windowStep and horizon: how finely and how far ahead budgets are searched for a window in which they allow something. Budgets
	// are cron schedules, nearly all of which repeat within a week.
	windowStep, horizon = 15 * time.Minute, 7 * 24 * time.Hour
)

// pass describes what one pass of consolidation does to the cluster.
type pass struct {
	// at is the time when it begins, counted from the view.
	at       time.Duration
	commands []disrupt.Command
}

// savings returns what a pass saves, in $/h.
func (p *pass) savings() (sum float64) {
	for i := range p.commands {
		sum += p.commands[i].Savings
	}
	return sum
}

// endState is a cluster in which consolidation finds nothing more to do, or hardly anything.
type endState struct {
	*future
	passes []pass
	// kept are the nodes that the last pass keeps, with its reasons.
	kept []planner.Kept
	// steps holds what the passes took, and most what they may take: see consolidate.Result. Zero means no bound.
	steps, most int
	// cut is true if maxPasses or most stopped the search.
	cut bool
}

// consolidateFully lets consolidation run, pass after pass, until a pass saves next to nothing: see leastShare and leastSaved. A pass
// that finds nothing is followed by one more after the time in which something can change: see untilChange. Each pass lowers the cost of
// the fleet, so it comes to an end.
//
// Cost: one compilation and one search for each pass. Compilation takes a fifth of it with 2,000 nodes and 20,000 pods. All
// passes together take as many steps as are given, 0 for no bound.
func (a *assessment) consolidateFully(from *future, steps int) endState {
	own := *from // which the caller consolidates again, in other ways
	out := endState{future: &own, most: steps}
	begin, waited := own.Now, false
	for len(out.passes) < maxPasses && out.within() {
		found := a.consolidate(&out)
		if len(found.Commands) == 0 {
			wait := untilChange(&own)
			if waited || wait == 0 {
				out.cut = found.TimedOut
				return out
			}
			waited = true
			own.wait(wait)
			continue
		}
		waited = false
		p := pass{at: own.Now.Sub(begin), commands: found.Commands}
		own.apply(p.commands)
		own.wait(passTime)
		if a.isLast(&p, &out) {
			out.passes = append(out.passes, p)
			return out
		}
		out.passes = append(out.passes, p)
	}
	out.cut = true
	return out
}

// consolidate is one pass.
func (a *assessment) consolidate(s *endState) *planner.Consolidation {
	how := a.settings.Consolidation
	if s.most > 0 {
		how.MaxSteps = max(1, s.most-s.steps)
	}
	found := planner.Consolidate(s.Snapshot, &schedule.Plan{}, how)
	s.steps += found.Steps
	s.kept = found.Kept
	return found
}

// isLast reports whether a pass saved so little that no other follows.
func (a *assessment) isLast(p *pass, s *endState) bool {
	before := 0.0
	for i := range s.passes {
		before += s.passes[i].savings()
	}
	average := before / float64(max(1, len(s.passes)))
	hourly, _ := cost(s.Snapshot, a.prices)
	return p.savings() < min(leastShare*average, leastSaved*hourly)
}

// within reports whether the search has enough steps left for a pass: a hundredth of them.
func (s *endState) within() bool { return s.most == 0 || s.steps < s.most-s.most/100 }

// untilChange returns how long nothing changes that keeps nodes: until no node is young, and the budgets that are closed now
// open. It is zero if time changes nothing.
func untilChange(f *future) time.Duration {
	var out time.Duration
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Claim != "" {
			out = max(out, oldEnough-f.Now.Sub(n.CreatedAt))
		}
	}
	if window, opens := untilWindow(f); opens {
		out = max(out, window)
	}
	return out
}

// untilWindow returns how long it takes until the budgets of a pool allow something that they do not allow now.
func untilWindow(f *future) (time.Duration, bool) {
	closed := map[string]bool{}
	reasons := []karpv1.DisruptionReason{karpv1.DisruptionEmpty, karpv1.DisruptionUnderutilized}
	for _, reason := range reasons {
		for _, a := range disrupt.Allowances(f.Snapshot, reason) {
			if a.Nodes > 0 && a.Available() == 0 && a.Err == nil && scheduled(a.Pool) {
				closed[string(reason)+"/"+a.Pool.Name] = true
			}
		}
	}
	if len(closed) == 0 {
		return 0, false
	}
	later := *f.Snapshot
	for wait := windowStep; wait <= horizon; wait += windowStep {
		later.Now = f.Now.Add(wait)
		for _, reason := range reasons {
			for _, a := range disrupt.Allowances(&later, reason) {
				if closed[string(reason)+"/"+a.Pool.Name] && a.Available() > 0 {
					return wait, true
				}
			}
		}
	}
	return 0, false
}

// scheduled reports whether the budgets of a pool depend on the time.
func scheduled(pool *karpv1.NodePool) bool {
	for _, b := range pool.Spec.Disruption.Budgets {
		if b.Schedule != nil {
			return true
		}
	}
	return false
}

// guard describes what keeps nodes from being disrupted.
type guard int

const (
	guardBudgets guard = iota
	guardPDBs
	guardDoNotDisrupt
	guardPolicies
)

// objectGuards are the guards that block single nodes. Budgets bound how many nodes change at once.
var objectGuards = []guard{guardPDBs, guardDoNotDisrupt, guardPolicies}

var allGuards = append([]guard{guardBudgets}, objectGuards...)

// without returns the cluster without some guards. It shares with f what does not change.
func (f *future) without(guards ...guard) *future {
	next := *f.Snapshot
	for _, g := range guards {
		switch g {
		case guardBudgets:
			next.Pools = changed(next.Pools, func(d *karpv1.Disruption) { d.Budgets = []karpv1.Budget{} }) // no bound
		case guardPolicies:
			next.Pools = changed(next.Pools, func(d *karpv1.Disruption) {
				if heldBack(d) != "" {
					d.ConsolidationPolicy, d.ConsolidateAfter = karpv1.ConsolidationWhenEmptyOrUnderutilized, karpv1.After(0)
				}
			})
			next.Nodes = append(next.Nodes[:0:0], next.Nodes...)
			for i := range next.Nodes {
				next.Nodes[i].Consolidatable = next.Nodes[i].Claim != ""
			}
		case guardPDBs:
			next.PDBs = nil
		case guardDoNotDisrupt:
			next.Nodes = append(next.Nodes[:0:0], next.Nodes...)
			for i := range next.Nodes {
				n := &next.Nodes[i]
				n.Annotations = withoutKey(n.Annotations, karpv1.AnnotationDoNotDisrupt)
				n.Pods = evictable(n.Pods)
			}
		}
	}
	return &future{Snapshot: &next, launched: f.launched}
}

// changed returns copies of pools with other settings of disruption.
func changed(pools []snapshot.Pool, change func(*karpv1.Disruption)) []snapshot.Pool {
	out := append(pools[:0:0], pools...)
	for i := range out {
		out[i].NodePool = out[i].NodePool.DeepCopy()
		change(&out[i].NodePool.Spec.Disruption)
	}
	return out
}

// heldBack returns the setting of a NodePool that keeps consolidation from nodes with pods; empty if none does.
func heldBack(d *karpv1.Disruption) string {
	switch {
	case d.ConsolidateAfter.IsNever():
		return "consolidateAfter: Never"
	case d.ConsolidationPolicy == karpv1.ConsolidationWhenEmpty:
		return "consolidationPolicy: WhenEmpty"
	}
	return ""
}

// evictable returns the pods without do-not-disrupt: the pods themselves if none has it.
func evictable(pods []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for i, p := range pods {
		if _, has := p.Annotations[karpv1.AnnotationDoNotDisrupt]; !has {
			continue
		}
		if out == nil {
			out = append(out, pods...)
		}
		own := *p
		own.Annotations = withoutKey(p.Annotations, karpv1.AnnotationDoNotDisrupt)
		out[i] = &own
	}
	if out == nil {
		return pods
	}
	return out
}

func withoutKey(from map[string]string, key string) map[string]string {
	if _, has := from[key]; !has {
		return from
	}
	out := make(map[string]string, len(from))
	for k, v := range from {
		if k != key {
			out[k] = v
		}
	}
	return out
}
