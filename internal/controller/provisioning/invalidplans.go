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
	broken := validate.Check(snap, plan)
	if len(broken) == 0 {
		return plan
	}
	p.Metrics.InvalidPlans.Inc()
	why := map[int]string{}
	for i, v := range broken {
		if i < maxLoggedViolations {
			p.Log.Error(
				"the plan breaks a rule; this is a defect of Dovetail, please report it",
				"rule",
				v.Message,
				"launches-withheld",
				len(v.Launches),
				"rules-broken",
				len(broken),
			)
		}
		for _, k := range v.Launches {
			if why[k] == "" {
				why[k] = v.Message
			}
		}
	}
	kept := make([]schedule.Launch, 0, len(plan.Launches))
	rejected := slices.Clone(plan.Rejected)
	for i := range plan.Launches {
		l := &plan.Launches[i]
		if why[i] == "" {
			kept = append(kept, *l)
			continue
		}
		plan.Stats.HourlyCost -= l.Offering.Price
		for _, pod := range l.Pods {
			rejected = append(rejected, schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{
				Code: codeInvalidPlan, NodePool: l.Pool.Name,
				Rule: stated("the node planned for the pod is not launched, because the plan is invalid, which is a defect of Dovetail: %s", why[i]),
			}}})
		}
	}
	plan.Launches, plan.Rejected = kept, rejected
	return plan
}
