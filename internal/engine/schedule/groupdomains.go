package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxGroupDomains bounds the domains that a pass tries for a PodGroup, and maxDomainPlans all plans that find domains. A plan of the whole
// snapshot takes as long as one without groups.
const (
	maxGroupDomains = 8
	maxDomainPlans  = 24
)

// domains are the domains that plans put groups in. A group that needs one and is not here has not been tried.
type domains map[*snapshot.Group]groupDomain

// groupDomain is the domain of a group.
type groupDomain struct {
	// value of the group's topology key; empty while the group has no domain, and is out of plans.
	value string
	// known is how many domains the group may be in, and tried how many of them have been planned; both 0 if nodes decide.
	known, tried int
}

// domainSearch finds the domains of groups.
type domainSearch struct {
	s      *snapshot.Snapshot
	groups snapshot.Groups
	budget Budget
	chosen domains
	// plan is that of the groups that have a domain, if planned.
	plan    Plan
	planned bool
	plans   int
	steps   int
}

// solveDomains plans a snapshot with groups of which all pods must be in one domain. Group by group, in the order of kube-scheduler, it
// plans some domains, the most promising first, and keeps the one in which the most pods fit, then the cheapest. Groups before it keep
// their domain, and those after it wait. What some passes do not try, others do: see sharePlans.
//
// Cost: one plan per domain that is tried, and one if a group does not fit in any of them.
func solveDomains(s *snapshot.Snapshot, groups snapshot.Groups, budget Budget) Plan {
	d := &domainSearch{s: s, groups: groups, budget: budget, chosen: fixedDomains(groups)}
	open := openGroups(s, groups)
	values, unfit, ok := d.values(open)
	if !ok {
		return Plan{Abandoned: true}
	}
	for _, g := range open {
		if n := len(values[g]); n == 1 && !unfit[g] {
			d.chosen[g] = groupDomain{values[g][0], 1, 1}
		} else {
			d.chosen[g] = groupDomain{known: n}
		}
	}
	turn := turnOf(s.Now)
	shares := sharePlans(open, func(g *snapshot.Group) int {
		if n := len(values[g]); n > 1 {
			return min(n, maxGroupDomains)
		}
		return 0
	}, turn, maxDomainPlans)
	rest := domains{}
	for _, g := range open {
		if unfit[g] {
			rest[g] = groupDomain{values[g][0], 1, 1}
		}
		if shares[g] == 0 {
			continue
		}
		if fits := d.choose(g, turnOver(values[g], shares[g], turn)); d.plan.Abandoned {
			return d.plan
		} else if !fits { // it would only take time from the plans for the others
			rest[g] = d.chosen[g]
			d.chosen[g] = groupDomain{known: len(values[g])}
			d.planned = false
		}
	}
	if maps.Copy(d.chosen, rest); !d.planned || len(rest) > 0 {
		d.solve()
	}
	d.plan.Stats.Steps = d.steps
	return d.plan
}

// values are the domains of each group in the order in which they are tried; unfit are the groups that fit in none. The result is not ok if
// the plan is abandoned.
func (d *domainSearch) values(open []*snapshot.Group) (values map[*snapshot.Group][]string, unfit map[*snapshot.Group]bool, ok bool) {
	sv := newSolver(d.s)
	sv.podGroups, sv.stop = podGroups{d.groups, d.chosen}, d.budget.Stop
	order := domainOrder{sv, sv.compile(nil)}
	if sv.abandoned {
		return nil, nil, false
	}
	values, unfit = map[*snapshot.Group][]string{}, map[*snapshot.Group]bool{}
	for _, g := range open {
		list, promising := order.of(g)
		values[g] = list
		unfit[g] = len(list) > 0 && !promising
	}
	d.steps += sv.steps
	return values, unfit, true
}

// solve plans the groups that have a domain.
func (d *domainSearch) solve() {
	d.plan, d.planned = solveIn(d.s, d.groups, d.chosen, d.budget), true
	d.plans++
	d.steps += d.plan.Stats.Steps
	d.budget.Compiled = nil
}

// choose tries domains for a group, and keeps the best. It reports whether as many of its pods fit there as it needs at once.
func (d *domainSearch) choose(g *snapshot.Group, values []string) (fits bool) {
	known, tried := d.chosen[g].known, 0
	best, plan := "", Plan{}
	for _, value := range values {
		if d.budget.MaxSteps > 0 && d.steps >= d.budget.MaxSteps {
			break
		}
		d.chosen[g] = groupDomain{value: value, known: known, tried: known}
		if d.solve(); d.plan.Abandoned {
			return false
		}
		if tried++; best == "" || betterIn(&d.plan, &plan, g) {
			best, plan = value, d.plan
		}
	}
	if tried == 0 {
		return true // and has no domain
	}
	d.chosen[g], d.plan = groupDomain{best, known, tried}, plan
	waiting := 0
	for _, pod := range d.s.Pods {
		if isOf(pod, g) {
			waiting++
		}
	}
	return waiting-leftOf(&plan, g) >= max(1, min(g.Need(0), waiting))
}

// betterIn reports whether a plan is better for a group than another plan.
func betterIn(a, b *Plan, g *snapshot.Group) bool {
	return cmp.Or(cmp.Compare(leftOf(a, g), leftOf(b, g)), cmp.Compare(len(a.Rejected), len(b.Rejected)), cmp.Compare(a.Cost(), b.Cost())) < 0
}

// leftOf is how many pods of the group have no node in the plan.
func leftOf(p *Plan, g *snapshot.Group) (n int) {
	for i := range p.Rejected {
		if isOf(p.Rejected[i].Pod, g) {
			n++
		}
	}
	return n
}

func isOf(pod *corev1.Pod, g *snapshot.Group) bool {
	name, in := snapshot.PodGroupOf(pod)
	return in && name.Name == g.Name && name.Namespace == g.Namespace
}

// fixedDomains are those of groups with pods on nodes: kube-scheduler keeps the group there.
func fixedDomains(groups snapshot.Groups) domains {
	out := domains{}
	for _, g := range groups.All() {
		if g.TopologyKey != "" && g.Domain != "" {
			out[g] = groupDomain{value: g.Domain}
		}
	}
	return out
}

// openGroups are the groups of pods to schedule that may choose their domain.
func openGroups(s *snapshot.Snapshot, groups snapshot.Groups) []*snapshot.Group {
	waiting := map[*snapshot.Group]bool{}
	for _, pod := range s.Pods {
		if g := groups.Of(pod); g != nil {
			waiting[g] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(groups.All()), func(g *snapshot.Group) bool {
		return !waiting[g] || g.TopologyKey == "" || g.Domain != "" || g.Held != nil
	})
}

// outOfDomains is why a group without a domain is out of the plan: it has none, or is not tried in this pass.
func outOfDomains(g *snapshot.Group, of groupDomain, asked bool) *Reason {
	if asked && of.known == 0 {
		return groupReason(&rejection.GroupOfPods{Name: g.Name, Cause: rejection.GroupNoDomain, Key: g.TopologyKey})
	}
	out := groupReason(&rejection.GroupOfPods{Name: g.Name, Cause: rejection.GroupNotTried, Key: g.TopologyKey, Domains: of.known})
	out.Code = BudgetSpent
	return out
}

// asPlanned is the pod as it is planned: in the domain of its group, if it must be in one.
func (sv *solver) asPlanned(pod *corev1.Pod) *corev1.Pod {
	if len(sv.domains) == 0 {
		return pod
	}
	if g := sv.groups.Of(pod); g != nil && sv.domains[g].value != "" {
		return inDomain(pod, g.TopologyKey, sv.domains[g].value)
	}
	return pod
}

// inDomain is the pod with its group's domain as a requirement.
func inDomain(pod *corev1.Pod, key, value string) *corev1.Pod {
	out := *pod
	out.Spec.Affinity = &corev1.Affinity{}
	if pod.Spec.Affinity != nil {
		*out.Spec.Affinity = *pod.Spec.Affinity
	}
	affinity := &corev1.NodeAffinity{}
	if out.Spec.Affinity.NodeAffinity != nil {
		*affinity = *out.Spec.Affinity.NodeAffinity
	}
	must := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{must}}}}
	if own := affinity.RequiredDuringSchedulingIgnoredDuringExecution; own != nil {
		selector.NodeSelectorTerms = nil
		for _, term := range own.NodeSelectorTerms {
			if len(term.MatchExpressions)+len(term.MatchFields) > 0 { // an empty term matches no node
				term.MatchExpressions = append(slices.Clone(term.MatchExpressions), must)
			}
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
		}
	}
	affinity.RequiredDuringSchedulingIgnoredDuringExecution = selector
	out.Spec.Affinity.NodeAffinity = affinity
	return &out
}
