package assess

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// measured is new nodes for all pods, with what constraints cost there.
type measured struct {
	repack
	rules []Rule
	// unmeasured are the constraints that Settings.RuleSteps did not reach.
	unmeasured []string
}

// measure finds out what the constraints of pods and pools cost: how much less the repacked pods cost without each. Costs overlap:
// the sum of two may be more or less than both together cost.
//
// Cost: that of attribution.Attribute, and a plan for each requirement and each limit of a NodePool, until together they have taken
// Settings.RuleSteps.
func (a *assessment) measure(r repack) measured {
	out := measured{repack: r, rules: []Rule{}, unmeasured: []string{}}
	if len(r.plan.Launches) == 0 {
		return out
	}
	found := attribution.Attribute(r.snapshot, &r.plan, attribution.Settings{
		Budget: a.settings.Budget, OwnerSteps: a.settings.RuleSteps, Steps: a.settings.RuleSteps,
		Owner: workload,
	})
	for _, rule := range found.Unmeasured {
		out.unmeasured = append(out.unmeasured, string(rule))
	}
	for _, c := range found.Costs {
		if len(c.Owners) != 1 || c.Unmeasured > 0 {
			all := newRule(string(c.Rule), "", c.Hourly)
			all.Unmeasured = c.Unmeasured
			out.rules = append(out.rules, all)
		}
		for _, o := range c.Owners {
			out.rules = append(out.rules, newRule(string(c.Rule), o.Owner, o.Hourly))
		}
	}
	a.measurePools(&out, found.Steps)
	slices.SortStableFunc(out.rules, func(x, y Rule) int {
		return cmp.Or(cmp.Compare(y.HourlyCost, x.HourlyCost), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Owner, y.Owner))
	})
	return out
}

// workload names the workload of a pod, with its kind.
func workload(p *corev1.Pod) string {
	kind, name := planner.Workload(p)
	return kind + " " + name
}

func newRule(name, owner string, hourly float64) Rule {
	return Rule{Rule: name, Owner: owner, HourlyCost: hourly, MonthlyCost: monthly(hourly)}
}

// measurePools measures the limits and requirements of pools one by one; the plans so far have taken steps.
func (a *assessment) measurePools(r *measured, steps int) {
	now := r.plan.Stats.HourlyCost + r.plan.Stats.NodeCost
	measure := func(name string, pool int, change func(*karpv1.NodePoolSpec)) {
		rule := newRule(name, "NodePool "+r.snapshot.Pools[pool].NodePool.Name, 0)
		if a.settings.RuleSteps > 0 && steps >= a.settings.RuleSteps {
			r.unmeasured = append(r.unmeasured, rule.summary())
			return
		}
		plan := schedule.Solve(withPool(r.snapshot, pool, change), a.settings.Budget)
		steps += plan.Stats.Steps
		saved := now - plan.Stats.HourlyCost - plan.Stats.NodeCost
		if saved >= leastCost && len(plan.Rejected) <= len(r.plan.Rejected) && !plan.Abandoned {
			r.rules = append(r.rules, newRule(rule.Rule, rule.Owner, saved))
		}
	}
	for i := range r.snapshot.Pools {
		spec := &r.snapshot.Pools[i].NodePool.Spec
		if len(spec.Limits) > 0 {
			measure(Limits, i, func(s *karpv1.NodePoolSpec) { s.Limits = nil })
		}
		for _, key := range choosable(spec) {
			measure(key, i, func(s *karpv1.NodePoolSpec) {
				s.Template.Spec.Requirements = slices.DeleteFunc(s.Template.Spec.Requirements,
					func(x karpv1.Requirement) bool { return x.Key == key })
			})
		}
	}
}

// choosable are the keys of a pool's requirements that limit its choice of instances. Left out are those that decide whether the
// pods run at all (architecture, operating system), labels of the user's own, and what package attribution measures.
func choosable(spec *karpv1.NodePoolSpec) (out []string) {
	for _, x := range spec.Template.Spec.Requirements {
		chosen := x.Key == corev1.LabelInstanceTypeStable || isInstanceLabel(x.Key)
		if chosen && !slices.Contains(out, x.Key) {
			out = append(out, x.Key)
		}
	}
	return out
}

// withPool returns the snapshot with one pool changed.
func withPool(s *snapshot.Snapshot, pool int, change func(*karpv1.NodePoolSpec)) *snapshot.Snapshot {
	out := *s
	out.Pools = slices.Clone(s.Pools)
	out.Pools[pool].NodePool = out.Pools[pool].NodePool.DeepCopy()
	change(&out.Pools[pool].NodePool.Spec)
	return &out
}
