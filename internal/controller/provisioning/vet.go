package provisioning

import (
	"fmt"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// withheld is the code of pods whose node is not bought because the plan of it breaks a rule.
const withheld schedule.Code = "InvalidPlan"

// loudest is how many broken rules of one plan are logged at most.
const loudest = 10

// vet checks a plan before money is spent on it, and takes out the launches that break a rule: their pods wait, and are loudest
// so. A plan that breaks a rule is a defect of the engine, never the user's.
func (p *Provisioner) vet(snap *snapshot.Snapshot, plan schedule.Plan) schedule.Plan {
	broken := validate.Check(snap, plan)
	if len(broken) == 0 {
		return plan
	}
	p.Metrics.InvalidPlans.Inc()
	why := map[int]string{}
	for i, v := range broken {
		if i < loudest {
			p.Log.Error("the plan breaks a rule; this is a defect of Dovetail, please report it", "rule", v.Message, "launches-withheld", len(v.Launches), "rules-broken", len(broken))
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
				Code: withheld, NodePool: l.Pool.Name,
				Message: fmt.Sprintf("the node planned for the pod is not bought, since the plan is not valid, which is a defect of Dovetail: %s", why[i]),
			}}})
		}
	}
	plan.Launches, plan.Rejected = kept, rejected
	return plan
}
