package recorder

import (
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// KindAdoption is the kind of decisions to adopt instances that an earlier autoscaler of the cluster has launched.
const KindAdoption = "adoption"

// adoptionPass begins the IDs of these decisions. What they saw is not recorded: the engine decides nothing.
const adoptionPass PassKind = KindAdoption

// AdoptionDecision is the decision to adopt so many instances.
func AdoptionDecision(instances int) Decision {
	return Decision{
		Kind: KindAdoption,
		What: "adopt " + report.Plural(instances, "instance"),
		Why:  "an earlier autoscaler launched them for nodes of this cluster",
		Rule: Rule{
			Text: "adopt an instance if its tags have this cluster's name and no cluster's UID, and a Node and a NodeClaim stand for it: " +
				"it is tagged with this cluster's UID, and not replaced",
		},
	}
}

// Decide records a decision that is no part of a pass, and returns its ID. It waits for nothing. Without a Recorder, the ID is empty.
func (r *Recorder) Decide(d Decision) string {
	if r == nil {
		return ""
	}
	now := r.cfg.Now()
	d.Pass = passID(adoptionPass, r.ids.next(now))
	d.ID, d.At, d.Inputs.Version = d.Pass+"-0", now.UTC(), r.cfg.Version
	r.enqueue(nil, []Decision{d})
	return d.ID
}
