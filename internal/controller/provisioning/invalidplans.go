package provisioning

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// codeInvalidPlan is the rejection code of pods in a launch that is withheld because the plan violates a rule.
const codeInvalidPlan schedule.Code = "InvalidPlan"

// maxLoggedViolations limits the log lines of one plan: violations of one defect repeat for each launch.
const maxLoggedViolations = 10

// withholdInvalid validates a plan before it is executed and removes the launches that violate a rule; their pods stay
// pending, with an event. A violation is a defect of the engine, never of the user.
func (p *Provisioner) withholdInvalid(snap *snapshot.Snapshot, plan schedule.Plan) schedule.Plan {
	out, broken, why := validate.Withhold(snap, plan)
	if len(broken) == 0 {
		return plan
	}
	p.Metrics.InvalidPlans.Inc()
	for _, v := range broken[:min(maxLoggedViolations, len(broken))] {
		p.Log.Error("the plan breaks a rule; this is a defect of Dovetail, please report it",
			"rule", v.Message, "launches-withheld", len(v.Launches), "rules-broken", len(broken))
	}
	out.Rejected = slices.Clone(plan.Rejected)
	for i := range plan.Launches {
		l := &plan.Launches[i]
		if why[i] == "" {
			continue
		}
		for _, pod := range l.Pods {
			out.Rejected = append(out.Rejected, schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{
				Code: codeInvalidPlan, NodePool: l.Pool.Name,
				Rule: stated("the node planned for the pod is not launched, because the plan is invalid, which is a defect of Dovetail: %s", why[i]),
			}}})
		}
	}
	return out
}
