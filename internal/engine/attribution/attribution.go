package attribution

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// maxOwners limits how many owners of a rule are measured one by one: as many as a line of the report can name.
	maxOwners = 5
	// LeastCost is the least cost that is reported, in $/h: less is printed as zero.
	LeastCost = 0.00005
)

// Settings describes what an attribution depends on besides snapshot and plan.
type Settings struct {
	// Budget bounds each of the plans, as it bounded the plan at hand.
	Budget schedule.Budget
	// OwnerSteps bounds the steps for single owners: no further owner is measured once all plans together have taken
	// that many. Zero means no bound.
	OwnerSteps int
	// Steps bounds the steps of all plans together: no further rule is measured once they have taken that many. Zero means no
	// bound.
	Steps int
	// Owner names the workload of a pod, as people know it.
	Owner func(*corev1.Pod) string
}

// Cost describes what a rule costs.
type Cost struct {
	Rule Rule
	// Hourly states how much less the plan without the rule costs, in $/h, nodes' overhead costs included.
	Hourly float64
	// Owners are the owners with the highest costs, the highest first. Owners that cost nothing alone are left out.
	Owners []OwnerCost
	// Unmeasured counts the owners that were not measured one by one.
	Unmeasured int
}

// OwnerCost describes what the rule of one workload or NodePool costs.
type OwnerCost struct {
	Owner  string
	Hourly float64
}

// Result describes what the rules cost.
type Result struct {
	// Costs are the costs of all rules that cost something, the highest first.
	Costs []Cost
	// Gap states how much the plan costs above its lower bound, in $/h. GapByRules is the part of it that is due to
	// rules that the bound leaves out, together: see Rule.Unbounded. The rest is room on nodes that pods cannot fill.
	Gap, GapByRules float64
	// Unmeasured are the rules that Settings.Steps did not reach. GapByRules is then zero. Steps is what all plans took.
	Unmeasured []Rule
	Steps      int
}

// Unbounded reports whether the lower bound leaves out the rule: it is a bound on plans without the rule, too.
func (r Rule) Unbounded() bool { return r == ZoneSpread || r == ZoneAffinity || r == Preferences }

// Attribute measures what the rules of the scheduled pods cost.
//
// Cost: one plan for each sort of rule that some pod or NodePool declares, one for all that the bound leaves out, and up
// to maxOwners for each sort that costs something.
func Attribute(s *snapshot.Snapshot, plan *schedule.Plan, settings Settings) Result {
	c := newComparison(s, plan, settings)
	out := Result{Gap: max(0, c.cost-plan.Stats.LowerBound)}
	if len(plan.Launches) == 0 {
		return out
	}
	var unbounded []Rule
	for _, r := range rules {
		owners := c.owners(r)
		if len(owners) == 0 {
			continue
		}
		if settings.Steps > 0 && c.steps >= settings.Steps {
			out.Unmeasured = append(out.Unmeasured, r)
			continue
		}
		if r.Unbounded() {
			unbounded = append(unbounded, r)
		}
		if saved := c.savings([]Rule{r}, ""); saved >= LeastCost {
			out.Costs = append(out.Costs, Cost{Rule: r, Hourly: saved})
		}
	}
	slices.SortStableFunc(out.Costs, func(a, b Cost) int { return cmp.Compare(b.Hourly, a.Hourly) })
	if len(out.Unmeasured) == 0 {
		out.GapByRules = min(out.Gap, c.together(unbounded, out.Costs))
	}
	for i := range out.Costs {
		c.addOwners(&out.Costs[i])
	}
	out.Steps = c.steps
	return out
}

// comparison compares a plan with plans without some rules.
type comparison struct {
	settings Settings
	// s has the pods that the plan schedules, and no others: those that no plan can schedule would confuse the costs.
	s *snapshot.Snapshot
	// cost is that of the plan, in $/h.
	cost  float64
	steps int // of all plans so far
}

func newComparison(s *snapshot.Snapshot, plan *schedule.Plan, settings Settings) *comparison {
	rejected := make(map[*corev1.Pod]bool, len(plan.Rejected))
	for i := range plan.Rejected {
		rejected[plan.Rejected[i].Pod] = true
	}
	own := *s
	own.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p *corev1.Pod) bool { return rejected[p] })
	return &comparison{settings: settings, s: &own, cost: plan.Stats.HourlyCost + plan.Stats.NodeCost}
}

// together returns what several rules cost together.
func (c *comparison) together(rules []Rule, measured []Cost) float64 {
	if len(rules) == 1 {
		if i := slices.IndexFunc(measured, func(x Cost) bool { return x.Rule == rules[0] }); i >= 0 {
			return measured[i].Hourly
		}
	}
	if len(rules) < 2 {
		return 0
	}
	return c.savings(rules, "")
}

// savings returns how much less the plan costs in which some rules do not count, for all owners or for one. It is zero where
// that plan costs more, or leaves out pods: then nothing is known of the rules' cost.
func (c *comparison) savings(rules []Rule, owner string) float64 {
	s := c.s
	for _, r := range rules {
		s = c.without(s, r, owner)
	}
	plan := schedule.Solve(s, c.settings.Budget)
	c.steps += plan.Stats.Steps
	if plan.Abandoned || len(plan.Rejected) > 0 {
		return 0
	}
	return max(0, c.cost-plan.Stats.HourlyCost-plan.Stats.NodeCost)
}

// without returns a snapshot in which the rule does not count, for all owners or for one.
func (c *comparison) without(s *snapshot.Snapshot, r Rule, owner string) *snapshot.Snapshot {
	relax := func(pods []*corev1.Pod) []*corev1.Pod {
		out := slices.Clone(pods)
		for i, p := range pods {
			if owner == "" || c.settings.Owner(p) == owner {
				out[i] = r.without(p, &s.Labels)
			}
		}
		return out
	}
	out := *s
	out.Pods = relax(s.Pods)
	if r == HostRules || r == ZoneAffinity { // anti-affinity of running pods keeps others away
		out.Nodes = slices.Clone(s.Nodes)
		for i := range out.Nodes {
			out.Nodes[i].Pods = relax(s.Nodes[i].Pods)
		}
	}
	out.Pools = slices.Clone(s.Pools)
	for i := range out.Pools {
		if p := &out.Pools[i]; owner == "" || poolOwner(p) == owner {
			*p = r.withoutInPool(p, &s.Labels)
		}
	}
	return &out
}

// poolOwner names a NodePool as the owner of a rule.
func poolOwner(p *snapshot.Pool) string { return "NodePool " + p.NodePool.Name }

// withoutInPool returns the pool without the rule, as a copy if the pool declares it.
func (r Rule) withoutInPool(p *snapshot.Pool, labels *requirement.Labels) snapshot.Pool {
	if !r.declaredBy(p, labels) {
		return *p
	}
	out := *p
	out.NodePool = p.NodePool.DeepCopy()
	spec := &out.NodePool.Spec.Template.Spec
	left := spec.Requirements[:0]
	for _, x := range spec.Requirements {
		if parsed, err := labels.Parse(x.Key, x.Operator, x.Values...); err != nil || !r.ofPool(parsed, labels) {
			left = append(left, x)
		}
	}
	spec.Requirements = left
	return out
}

// declaredBy reports whether a NodePool declares the rule.
func (r Rule) declaredBy(p *snapshot.Pool, labels *requirement.Labels) bool {
	for _, x := range p.NodePool.Spec.Template.Spec.Requirements {
		if parsed, err := labels.Parse(x.Key, x.Operator, x.Values...); err == nil && r.ofPool(parsed, labels) {
			return true
		}
	}
	return false
}

// owner declares a rule.
type owner struct {
	name string
	// cpu holds what its pods request together, in thousandths; pools come before all workloads.
	cpu  int64
	pool bool
}

// owners returns those of a rule, the largest first: their rules are the most likely to cost something.
func (c *comparison) owners(r Rule) []owner {
	if r == ReservedRules && !c.hasReservations() {
		return nil
	}
	index := map[string]int{}
	var out []owner
	for i := range c.s.Pools {
		if p := &c.s.Pools[i]; r.declaredBy(p, &c.s.Labels) {
			out = append(out, owner{name: poolOwner(p), pool: true})
		}
	}
	for _, p := range c.s.Pods {
		if r.without(p, &c.s.Labels) == p {
			continue
		}
		name := c.settings.Owner(p)
		k, known := index[name]
		if !known {
			k = len(out)
			index[name], out = k, append(out, owner{name: name})
		}
		requests := snapshot.Requests(p)
		out[k].cpu += requests.Cpu().MilliValue()
	}
	slices.SortFunc(out, func(a, b owner) int {
		if a.pool != b.pool {
			if a.pool {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.cpu, a.cpu), cmp.Compare(a.name, b.name))
	})
	return out
}

// hasReservations reports whether any pool could launch into a capacity reservation.
func (c *comparison) hasReservations() bool {
	return slices.ContainsFunc(c.s.Pools, func(p snapshot.Pool) bool {
		return slices.ContainsFunc(p.InstanceTypes, func(it *catalog.InstanceType) bool {
			return slices.ContainsFunc(it.Offerings, func(o catalog.Offering) bool { return o.ReservationID != "" })
		})
	})
}

// addOwners measures the largest owners of a rule, one by one. A single owner is not measured again.
func (c *comparison) addOwners(cost *Cost) {
	owners := c.owners(cost.Rule)
	if len(owners) == 1 {
		cost.Owners = []OwnerCost{{owners[0].name, cost.Hourly}}
		return
	}
	cost.Unmeasured = len(owners)
	for _, o := range owners[:min(len(owners), maxOwners)] {
		if c.settings.OwnerSteps > 0 && c.steps >= c.settings.OwnerSteps {
			break
		}
		cost.Unmeasured--
		if saved := c.savings([]Rule{cost.Rule}, o.name); saved >= LeastCost {
			cost.Owners = append(cost.Owners, OwnerCost{o.name, saved})
		}
	}
	slices.SortStableFunc(cost.Owners, func(a, b OwnerCost) int { return cmp.Compare(b.Hourly, a.Hourly) })
}
