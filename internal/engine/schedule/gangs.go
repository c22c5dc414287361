package schedule

import (
	"math/bits"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxGangPlans bounds the plans that a gangSearch makes to find the gangs that fit; those not found by then wait for the next pass.
// Each plan takes as long as one without gangs.
const maxGangPlans = 24

// solveQueue plans a queue of compiled pods.
func (sv *solver) solveQueue(queue []*queuedPod, budget Budget) Plan {
	if g := newGangSearch(sv, queue, budget); g != nil {
		return g.search()
	}
	return sv.solveWithPolicy(queue, budget)
}

// search is solveWithPolicy for a queue with pods of PodGroups: of a gang at least as many pods get nodes as kube-scheduler binds at
// once, or none does. kube-scheduler takes groups by priority and age. So if some do not fit, each group in that order gets nodes if it
// fits with the groups before it, and the others leave their room.
//
// Invariant: no group is short in the plan of the groups that are in. Cost: one plan if all gangs fit. Otherwise groups are tried by
// halves, which is about k*log(n) plans if k of n groups do not fit; see admitLong if that is more than maxGangPlans, which is the bound.
// The plans have one budget of lookahead together.
func (g *gangSearch) search() Plan {
	plan := g.solve()
	if short := g.short(&plan); !plan.Abandoned && len(short) > 0 {
		tried := g.tried()
		for _, group := range tried {
			g.members[group].why = &Reason{Code: BudgetSpent, Rule: &rejection.Rule{Bound: &rejection.Bound{Of: rejection.StepsOfPlan}}}
		}
		switch {
		case len(tried) == 1:
			g.members[tried[0]].why = g.shortReason(short, tried[0])
		case len(short)*bits.Len(uint(len(tried))) > maxGangPlans:
			g.admitLong(tried, short)
		default:
			g.admit(tried[:len(tried)/2])
			g.admit(tried[len(tried)/2:])
		}
		if plan = g.best; !g.found {
			plan = g.solve()
		}
	}
	if plan.Abandoned || g.sv.abandoned {
		return Plan{Abandoned: true}
	}
	return g.finish(plan)
}

// gangSearch looks for the gangs that fit.
type gangSearch struct {
	sv     *solver
	budget Budget
	queue  []*queuedPod
	// members are the groups with pods in the queue, and order is these groups in the order of kube-scheduler.
	members map[*snapshot.Group]*gangMembers
	order   []*snapshot.Group
	// best is the plan of the groups that are in, once it is found.
	best  Plan
	found bool
	// plans and steps are what was made so far.
	plans, steps int
}

// gangMembers are the pods of a group in the queue.
type gangMembers struct {
	pods int
	// losing is how many of them have a node, which they lose.
	losing int
	// why is the reason why the group is out of the plan; nil if it is in.
	why *Reason
}

// newGangSearch is nil if the queue has no pods of groups.
func newGangSearch(sv *solver, queue []*queuedPod, budget Budget) *gangSearch {
	if len(sv.groups.All()) == 0 {
		return nil
	}
	g := &gangSearch{sv: sv, budget: budget, queue: queue, members: map[*snapshot.Group]*gangMembers{}}
	for _, q := range queue {
		group := sv.groups.Of(q.pod)
		if group == nil {
			continue
		}
		m := g.members[group]
		if m == nil {
			m = &gangMembers{why: group.Held}
			if of, asked := sv.domains[group]; group.TopologyKey != "" && m.why == nil && of.value == "" {
				m.why = outOfDomains(group, of, asked)
			}
			g.members[group] = m
		}
		m.pods++
		if group.Has(q.pod) {
			m.losing++
		}
	}
	if len(g.members) == 0 {
		return nil
	}
	for _, group := range sv.groups.All() {
		if g.members[group] != nil {
			g.order = append(g.order, group)
		}
	}
	return g
}

// solve plans the queue without the groups that are left out.
func (g *gangSearch) solve() Plan {
	rest := make([]*queuedPod, 0, len(g.queue))
	for _, q := range g.queue {
		if group := g.sv.groups.Of(q.pod); group == nil || g.members[group].why == nil {
			rest = append(rest, q)
		}
	}
	budget := g.budget
	if budget.LookaheadSteps > 0 {
		budget.LookaheadSteps = max(1, budget.LookaheadSteps-g.steps)
	}
	plan := g.sv.solveWithPolicy(rest, budget)
	g.plans++
	g.steps += plan.Stats.Steps
	return plan
}

// tried are the groups that kube-scheduler tries, in its order, without those that have no domain.
func (g *gangSearch) tried() (out []*snapshot.Group) {
	for _, group := range g.order {
		if g.members[group].why == nil {
			out = append(out, group)
		}
	}
	return out
}

// admit takes those of the groups in that fit with the ones that are.
func (g *gangSearch) admit(groups []*snapshot.Group) {
	if g.plans >= maxGangPlans || g.sv.abandoned {
		return
	}
	before := make([]*Reason, len(groups))
	for i, group := range groups {
		before[i], g.members[group].why = g.members[group].why, nil
	}
	plan := g.solve()
	short := g.short(&plan)
	if len(short) == 0 {
		g.best, g.found = plan, true
		return
	}
	for i, group := range groups {
		g.members[group].why = before[i]
	}
	if len(groups) == 1 {
		g.members[groups[0]].why = g.shortReason(short, groups[0])
		return
	}
	g.admit(groups[:len(groups)/2])
	g.admit(groups[len(groups)/2:])
}

// admitLong takes those of the groups in that fit, where so many are short that the plans do not suffice to find them by halves: those that
// fit would wait for them in each pass. So the groups that are not short come first, and then each of the others alone; if there are more
// than plans, namespaces and their groups take turns.
//
// One of the others that would fit before the groups that come first waits for what these leave. It is not overtaken for long:
// kube-scheduler tries it before them, on their nodes, too.
func (g *gangSearch) admitLong(tried []*snapshot.Group, short []shortGang) {
	var others []*snapshot.Group
	isShort := make(map[*snapshot.Group]bool, len(short))
	for _, s := range short {
		others = append(others, s.group)
		isShort[s.group] = true
		g.members[s.group].why = g.shortReason(short, s.group)
	}
	first := slices.DeleteFunc(slices.Clone(tried), func(group *snapshot.Group) bool { return isShort[group] })
	if len(first) > 0 {
		g.admit(first)
	}
	if len(others) > maxGangPlans-g.plans {
		others = inTurn(others, turnOf(g.sv.s.Now))
	}
	for _, group := range others {
		g.admit([]*snapshot.Group{group})
	}
}

// shortGang is a group of which too few pods have nodes in a plan.
type shortGang struct {
	group  *snapshot.Group
	placed int
	// first is one of its pods without a node.
	first *Rejection
}

// short are the groups of which a plan places too few pods, in the order of kube-scheduler.
func (g *gangSearch) short(plan *Plan) (out []shortGang) {
	left := map[*snapshot.Group][]*Rejection{}
	for i := range plan.Rejected {
		if group := g.sv.groups.Of(plan.Rejected[i].Pod); group != nil {
			left[group] = append(left[group], &plan.Rejected[i])
		}
	}
	for _, group := range g.order {
		m := g.members[group]
		// A group that needs one pod is never short: that pod has reasons of its own.
		if need := group.Need(m.losing); m.why == nil && need > 1 && m.pods-len(left[group]) < need {
			s := shortGang{group: group, placed: m.pods - len(left[group])}
			if len(left[group]) > 0 {
				s.first = left[group][0]
			}
			out = append(out, s)
		}
	}
	return out
}

// shortReason is why a group is not in the plan: it is short, or would make another group short.
func (g *gangSearch) shortReason(short []shortGang, group *snapshot.Group) *Reason {
	i := slices.IndexFunc(short, func(s shortGang) bool { return s.group == group })
	if i < 0 {
		return groupReason(&rejection.GroupOfPods{Name: group.Name, Cause: rejection.GroupNotFirst, Before: short[0].group.Name})
	}
	return groupReason(g.tooFew(short[i]))
}

func groupReason(why *rejection.GroupOfPods) *Reason {
	return &Reason{Code: PodGroup, Rule: &rejection.Rule{PodGroup: why}}
}

// tooFew is how many pods of a group fit, and why one does not.
func (g *gangSearch) tooFew(s shortGang) *rejection.GroupOfPods {
	m := g.members[s.group]
	out := &rejection.GroupOfPods{
		Name: s.group.Name, Cause: rejection.GroupTooFew, MinCount: s.group.MinCount, Pods: m.pods, Placed: s.placed,
		Scheduled: s.group.Scheduled() - m.losing,
	}
	if of := g.sv.domains[s.group]; of.value != "" {
		out.Key, out.Domain = s.group.TopologyKey, of.value
		if of.tried < of.known {
			out.Domains, out.Tried = of.known, of.tried
		}
	}
	if s.first != nil && len(s.first.Reasons) > 0 {
		why := closest(s.first.Reasons)
		out.Pod, out.Why = s.first.Pod.Name, &rejection.PodReason{Code: why.Code, NodePool: why.NodePool, Rule: why.Rule}
	}
	return out
}

// closest is the first reason of a pool with requirements that match the pod's, or the first of all if there is none.
func closest(reasons []Reason) Reason {
	mismatched := rejection.Mismatched(reasons)
	at := slices.IndexFunc(reasons, func(r Reason) bool { return !mismatched[r.NodePool] })
	return reasons[max(at, 0)]
}

// finish adds the pods of the groups that are left out.
func (g *gangSearch) finish(plan Plan) Plan {
	for _, q := range g.queue {
		if group := g.sv.groups.Of(q.pod); group != nil && g.members[group].why != nil {
			plan.Rejected = append(plan.Rejected, Rejection{Pod: q.pod, Reasons: []Reason{*g.members[group].why}})
			plan.Stats.Pods++
		}
	}
	slices.SortStableFunc(plan.Rejected, compareRejections)
	plan.Stats.Steps = g.steps
	return plan
}
