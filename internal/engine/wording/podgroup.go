package wording

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// podGroup returns why the pods of a group get no nodes.
func (s Style) podGroup(g *rejection.GroupOfPods) Clause {
	switch g.Cause {
	case rejection.GroupHeld:
		return clause(None, "PodGroup %q %s", g.Name, g.Held)
	case rejection.GroupNotFirst:
		return clause(None, "PodGroup %q would take the room of PodGroup %q, which comes before it", g.Name, g.Before)
	case rejection.GroupNoDomain:
		return clause(None, "PodGroup %q must be in one domain of %s (schedulingConstraints.topology), and none is "+
			"known: no node has the label, and no NodePool launches nodes of which the value is known before", g.Name, g.Key)
	case rejection.GroupNotTried:
		return clause(None, "PodGroup %q must be in one domain of %s (schedulingConstraints.topology), and this pass has spent "+
			"the plans that find domains on other groups; the group has its turn in one of the next passes", g.Name, g.Key)
	}
	fit := fmt.Sprintf("%d of its %d pods fit", g.Placed, g.Pods)
	if g.Scheduled > 0 {
		fit = fmt.Sprintf("%d have one, and %d of the other %d fit", g.Scheduled, g.Placed, g.Pods)
	}
	if g.Domain != "" {
		fit = fmt.Sprintf("in %s %s, where the most of them fit, %s", g.Key, g.Domain, fit)
	}
	if g.Tried > 0 {
		fit += fmt.Sprintf(" (%d of %d domains were tried; others have their turn in the next passes)", g.Tried, g.Domains)
	}
	out := fmt.Sprintf("PodGroup %q needs nodes for %d pods at the same time (gang.minCount): %s", g.Name, g.MinCount, fit)
	if g.Why == nil {
		if g.Placed == g.Pods {
			out += ". No others wait for a node: the rest of the group has completed, or is leaving"
		}
		return clause(None, "%s", out)
	}
	where := ""
	if g.Why.NodePool != "" {
		where = fmt.Sprintf("nodepool %s: ", g.Why.NodePool)
	}
	why := s.Clause(rejection.Reason{Code: g.Why.Code, NodePool: g.Why.NodePool, Rule: g.Why.Rule})
	return clause(None, "%s. Pod %q does not: %s%s (%s)", out, g.Pod, where, why, g.Why.Code)
}
