package assess

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// SpotToSpot is the feature gate with which spot nodes may replace spot nodes.
const SpotToSpot = "SpotToSpotConsolidation"

// gate measures what SpotToSpot saves, compared with where consolidation finishes without it. It is nil if the gate is on, if there is no
// spot node that it is for, or if it saves nothing. Nodes that plans do not know cost unplanned $/h.
//
// Cost: that of consolidateFully, for a fleet with spot nodes.
func (a *assessment) gate(begin *future, consolidated *endState, unplanned float64) *Gate {
	if a.settings.Consolidation.SpotToSpot || !hasSpot(begin) {
		return nil
	}
	with := *a
	with.settings.Consolidation.SpotToSpot = true
	end := with.consolidateFully(begin, a.settings.FreeSteps)
	before, _ := cost(consolidated.Snapshot, a.prices)
	after, nodes := cost(end.Snapshot, a.prices)
	if before-after < leastCost {
		return nil
	}
	return &Gate{
		Name: SpotToSpot, HourlyCost: after + unplanned, MonthlyCost: monthly(after + unplanned),
		HourlySavings: before - after, MonthlySavings: monthly(before - after), Nodes: nodes, Cut: end.cut,
	}
}

// hasSpot reports whether a node is a spot instance that consolidation may replace.
func hasSpot(f *future) bool {
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Claim != "" && n.Labels[karpv1.LabelCapacityType] == karpv1.CapacityTypeSpot {
			return true
		}
	}
	return false
}
