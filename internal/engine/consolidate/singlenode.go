package consolidate

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// singleNode simulates the removal of each remaining candidate alone. The cost is one simulation per candidate.
func (x *search) singleNode(nodes []*node) {
	for _, n := range nodes {
		switch {
		case n.removed || n.destination:
			continue
		case x.limitReached(Single):
			return
		case x.budget[n.Pool.Name] <= 0:
			x.result.OverBudget = true
			x.setWhy([]*node{n}, disrupt.Because(disrupt.OverBudget, "The budgets of its NodePool allow no further disruption now"))
			continue
		case !x.approvable(n):
			n.examined = true
			x.setWhy([]*node{n}, tooDisruptive())
			continue
		}
		g := []*node{n}
		plan := x.simulate(x.removalQuestion(g, x.openDestinations(nil), true))
		origins := x.origins(g)
		if _, why := x.unschedulable(&plan, origins); why.Reason != "" {
			x.setWhy(g, why)
			continue
		}
		m := &move{removed: g, plan: plan}
		if r := x.evaluate(m); r != nil {
			x.reject(g, r)
			continue
		}
		x.apply(m)
	}
}

// roundRobin are the candidates: the first of each pool, then the second of each, and so on. No pool starves if a
// limit stops the search.
func (x *search) roundRobin() []*node {
	var pools []string
	lists := map[string][]*node{}
	for _, n := range x.nodes {
		if lists[n.Pool.Name] == nil {
			pools = append(pools, n.Pool.Name)
		}
		lists[n.Pool.Name] = append(lists[n.Pool.Name], n)
	}
	out := make([]*node, 0, len(x.nodes))
	for k := 0; len(out) < len(x.nodes); k++ {
		for _, name := range pools {
			if k < len(lists[name]) {
				out = append(out, lists[name][k])
			}
		}
	}
	return out
}

// approvable reports whether the pool would approve if the node could be removed without replacement.
func (x *search) approvable(n *node) bool {
	t, ok := x.totals[n.Pool.Name]
	if n.Pool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationBalanced || !ok || t.Cost <= 0 {
		return true
	}
	return Score(t, n.Price, n.Cost).Approved
}
