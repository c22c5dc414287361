package validate

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Withhold returns the plan without the launches that violate a rule, the violations, and the message of the first rule that each of these
// launches violates, by its index in p. The pods of these launches are in none of the lists of the result. A violation is a defect of the
// engine, never of the user.
func Withhold(s *snapshot.Snapshot, p plan.Plan) (out plan.Plan, broken []Violation, why map[int]string) {
	broken = Check(s, p)
	if len(broken) == 0 {
		return p, nil, nil
	}
	why = map[int]string{}
	for _, v := range broken {
		for _, k := range v.Launches {
			if why[k] == "" {
				why[k] = v.Message
			}
		}
	}
	out = p
	out.Launches = make([]plan.Launch, 0, len(p.Launches))
	for i := range p.Launches {
		if why[i] == "" {
			out.Launches = append(out.Launches, p.Launches[i])
			continue
		}
		out.Stats.HourlyCost -= p.Launches[i].Offering.Price
	}
	return out, broken, why
}
