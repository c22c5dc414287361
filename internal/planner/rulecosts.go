package planner

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// RuleCosts measures what the rules of the scheduled pods cost. All plans for single owners together have the budget of
// one plan.
func RuleCosts(s *snapshot.Snapshot, plan *schedule.Plan, budget schedule.Budget) *attribution.Result {
	result := attribution.Attribute(s, plan, attribution.Settings{
		Budget: budget, OwnerSteps: budget.LookaheadSteps,
		Owner: func(p *corev1.Pod) string { return workloadOf(p).name },
	})
	return &result
}

// Workload returns the kind and the name, with its namespace, of the workload by which people know a pod: the Deployment, not its
// ReplicaSet; the Pod itself without one.
func Workload(p *corev1.Pod) (kind, name string) {
	w := workloadOf(p)
	return w.kind, w.name
}

type jsonRuleCosts struct {
	Gap        float64        `json:"gap"`
	GapByRules float64        `json:"gapByRules"`
	Rules      []jsonRuleCost `json:"rules"`
}

type jsonRuleCost struct {
	Rule             attribution.Rule `json:"rule"`
	HourlyCost       float64          `json:"hourlyCost"`
	Owners           []jsonOwnerCost  `json:"owners"`
	UnmeasuredOwners int              `json:"unmeasuredOwners"`
}

type jsonOwnerCost struct {
	Owner      string  `json:"owner"`
	HourlyCost float64 `json:"hourlyCost"`
}

func newRuleCosts(r *attribution.Result) jsonRuleCosts {
	out := jsonRuleCosts{Gap: r.Gap, GapByRules: r.GapByRules, Rules: make([]jsonRuleCost, 0, len(r.Costs))}
	for _, c := range r.Costs {
		rule := jsonRuleCost{c.Rule, c.Hourly, make([]jsonOwnerCost, 0, len(c.Owners)), c.Unmeasured}
		for _, o := range c.Owners {
			rule.Owners = append(rule.Owners, jsonOwnerCost{o.Owner, o.Hourly})
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// ruleCosts prints which part of the gap rules cause, and what each rule costs.
func (r *Report) ruleCosts(p *report.Page) {
	if r.RuleCosts == nil {
		return
	}
	if r.RuleCosts.Gap >= attribution.LeastCost {
		p.Printf("Gap:   %s above the bound, %s of it for rules that the bound leaves out\n",
			report.Hourly(r.RuleCosts.Gap), report.Hourly(r.RuleCosts.GapByRules))
	}
	title := "Rules: "
	for _, c := range r.RuleCosts.Costs {
		text := fmt.Sprintf("%s for %s", report.Hourly(c.Hourly), c.Rule)
		for i, o := range c.Owners {
			switch {
			case len(c.Owners) == 1 && c.Unmeasured == 0:
				text += " of " + o.Owner
			case i == 0:
				text += fmt.Sprintf("; without that of one owner only: %s %s", report.Hourly(o.Hourly), o.Owner)
			default:
				text += fmt.Sprintf(", %s %s", report.Hourly(o.Hourly), o.Owner)
			}
		}
		p.Labeled(title, "         ", text)
		title = "       "
	}
	if len(r.RuleCosts.Costs) == 0 && len(r.Plan.Launches) > 0 {
		p.Printf("Rules: none costs anything; without any sort of them these pods cost no less\n")
	}
}
