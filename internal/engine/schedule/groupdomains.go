package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxGroupDomains bounds the domains that are tried for a PodGroup, and maxDomainPlans all plans that find domains. A plan of the whole
// snapshot takes as long as one without groups.
const (
	maxGroupDomains = 8
	maxDomainPlans  = 24
)

// domains are the domains that plans put groups in: a value of the group's topology key. A group that needs one and has none is out.
type domains map[*snapshot.Group]string

// solveDomains plans a snapshot with groups of which all pods must be in one domain. Group by group, in the order of kube-scheduler, it
// plans each domain, and keeps the one in which the most pods fit, then the cheapest. Groups before it keep their domain, and those after
// it wait.
//
// Cost: one plan per domain of each group.
func solveDomains(s *snapshot.Snapshot, groups snapshot.Groups, budget Budget) Plan {
	chosen, steps, plans := fixedDomains(groups), 0, 0
	plan, planned := Plan{}, false
	for _, g := range openGroups(s, groups) {
		best := ""
		for _, value := range candidateDomains(s, g) {
			if plans >= maxDomainPlans || budget.MaxSteps > 0 && steps >= budget.MaxSteps {
				break
			}
			chosen[g] = value
			again := solveIn(s, groups, chosen, budget)
			if again.Abandoned {
				return again
			}
			plans++
			steps += again.Stats.Steps
			budget.Compiled = nil
			if best == "" || !planned || betterIn(&again, &plan, g) {
				best, plan, planned = value, again, true
			}
		}
		if delete(chosen, g); best != "" {
			chosen[g] = best
		}
	}
	if !planned {
		plan = solveIn(s, groups, chosen, budget)
	}
	plan.Stats.Steps += steps
	return plan
}

// betterIn reports whether a plan is better for a group than another plan.
func betterIn(a, b *Plan, g *snapshot.Group) bool {
	left := func(p *Plan) (n int) {
		for i := range p.Rejected {
			if name, _ := snapshot.PodGroupOf(p.Rejected[i].Pod); name.Name == g.Name && name.Namespace == g.Namespace {
				n++
			}
		}
		return n
	}
	return cmp.Or(cmp.Compare(left(a), left(b)), cmp.Compare(len(a.Rejected), len(b.Rejected)), cmp.Compare(a.Cost(), b.Cost())) < 0
}

// fixedDomains are those of groups with pods on nodes: kube-scheduler keeps the group there.
func fixedDomains(groups snapshot.Groups) domains {
	out := domains{}
	for _, g := range groups.All() {
		if g.TopologyKey != "" && g.Domain != "" {
			out[g] = g.Domain
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

// candidateDomains are the values of the group's key that nodes have, or that new ones can be launched with, sorted. Nodes that wait for
// pods of the group leave no choice: their pods stay there.
func candidateDomains(s *snapshot.Snapshot, g *snapshot.Group) []string {
	values, started := map[string]bool{}, map[string]bool{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		value, known := domainOf(s, n, g.TopologyKey)
		if n.Deleting || !known {
			continue
		}
		values[value] = true
		if slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
			name, in := snapshot.PodGroupOf(p)
			return in && name.Name == g.Name && name.Namespace == g.Namespace && slices.Contains(n.Nominated, p.UID) && n.KeepsNominated(p.UID)
		}) {
			started[value] = true
		}
	}
	if len(started) > 0 {
		return slices.Sorted(maps.Keys(started))[:1]
	}
	for i := range s.Pools {
		for _, it := range s.Pools[i].InstanceTypes {
			for _, o := range it.Offerings {
				if value, one := o.Requirements.Get(g.TopologyKey).Single(); one && o.Available {
					values[value] = true
				}
			}
			if value, one := it.Requirements.Get(g.TopologyKey).Single(); one {
				values[value] = true
			}
		}
		template := &s.Pools[i].NodePool.Spec.Template
		if value, has := template.Labels[g.TopologyKey]; has {
			values[value] = true
		}
		for _, r := range template.Spec.Requirements {
			if r.Key == g.TopologyKey && r.Operator == corev1.NodeSelectorOpIn {
				for _, value := range r.Values {
					values[value] = true
				}
			}
		}
	}
	all := slices.Sorted(maps.Keys(values))
	return all[:min(len(all), maxGroupDomains)]
}

// domainOf is the value of the key on a node, or the only one that the node of a claim can have.
func domainOf(s *snapshot.Snapshot, n *snapshot.Node, key string) (string, bool) {
	if value, has := n.Labels[key]; has {
		return value, true
	}
	reqs, err := s.Labels.FromAPI(n.Requirements)
	if err != nil {
		return "", false
	}
	return reqs.Get(key).Single()
}

// outOfDomains is why a group without a domain is out of the plan.
func outOfDomains(g *snapshot.Group) *Reason {
	return groupReason(&rejection.GroupOfPods{Name: g.Name, Cause: rejection.GroupNoDomain, Key: g.TopologyKey})
}

// asPlanned is the pod as it is planned: in the domain of its group, if it must be in one.
func (sv *solver) asPlanned(pod *corev1.Pod) *corev1.Pod {
	if len(sv.domains) == 0 {
		return pod
	}
	if g := sv.groups.Of(pod); g != nil && sv.domains[g] != "" {
		return inDomain(pod, g.TopologyKey, sv.domains[g])
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
